"""The planner's values: the state of one partition's fetching, what an answer says, and what follows from it.

All of them are frozen values. Times are seconds of one clock that only the caller reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model import ErrorCode, HoldfastError

# -- who reads, and how patiently


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a reader wants its partitions fetched. A consumer waits for ever; a task has an end to reach."""

    backoff_s: float = 0.1
    """Before the next try after something that passes by itself."""
    error_backoff_s: float = 0.5
    """Before the next try after an error that may stay (fetch.error.backoff.ms)."""
    told_backoff_s: float = 1.0
    """Before the next try after an error that was reported once: permissions and topics change rarely."""
    unknown_s: float = 3.0
    """An unknown topic is reported after this: a new one takes a moment to be known everywhere."""
    patience_s: float | None = None
    """How long something that passes by itself may go on before it is reported. None: for ever."""
    cut_off_s: float | None = None
    """How long the log may be shorter than the range to read before that is reported. None: for ever."""
    replica_age_s: float = 300.0
    """How long a follower is read before the leader is asked again which replica is best (metadata.max.age.ms), and how
    long the leader alone is read after a follower has failed."""
    partition_bytes: int = 1024 * 1024
    """The usual size to ask for (max.partition.fetch.bytes)."""
    read_committed: bool = False


# -- one partition


@dataclass(frozen=True, slots=True)
class Replica:
    """Which replica to read, and until when that holds."""

    node: int | None
    """A follower; None: only the leader, because a follower has failed."""
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is known about the fetching of one partition, from its last answers."""

    ready_at: float = 0.0
    """Not asked for before this time."""
    replica: Replica | None = None
    """None: the leader, which may name a follower."""
    partition_bytes: int = 0
    """More than usual once a batch did not fit; 0: the usual."""
    quiet: int = 0
    """Answers in a row that brought no record."""
    told: str = ""
    """The code of the error last reported: not reported again until it is over."""
    unknown_since: float | None = None
    failing_since: float | None = None
    """Since when there has been no answer without an error."""
    stalled_since: float | None = None
    """Since when answers without an error have brought nothing, though more is to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of one partition, and when."""

    offset: int
    at: float
    end: int | None = None
    """The end of the range that is to be read; None: whatever comes."""
    follower: int | None = None
    """The follower that was asked; None: the leader."""
    epoch: int = -1
    """The leader epoch of the record before `offset`; -1: not known."""


# -- what an answer says about one partition


@dataclass(frozen=True, slots=True)
class Came:
    """At least one whole batch."""

    rows: int = 1
    """Records, as the batches' headers claim."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a batch that is larger than what was asked for."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes that are not a record batch."""

    error: HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No records, and no error."""

    high_watermark: int
    last_stable: int = -1
    preferred: int = -1
    """The follower that the leader tells us to read (KIP-392); -1: none."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """The log does not have what was read: it was lost with a former leader (KIP-320)."""

    epoch: int
    """The newest epoch that this log and what was read may have in common."""
    end_offset: int
    """Where that epoch ends in this log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An error: of the partition, of the whole answer, or from the metadata."""

    code: ErrorCode
    error: HoldfastError
    """The same in words."""
    passes: bool
    """Whether trying again may help."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An answer without an error that does not name the partition. A throttled broker names none (KIP-219)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """No answer at all: the broker is gone, slow or can't be found."""

    error: HoldfastError
    passes: bool


Answer = Came | Cut | Damaged | Nothing | Diverged | Refused | LeftOut | Unanswered


# -- what follows


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand on the records, and continue after them."""


@dataclass(frozen=True, slots=True)
class AskFirst:
    """Ask for it before the others next time: it got nothing although there are records."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Everything was read."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask who leads now: what we know is outdated."""


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The leader does not have the offset: choose another one."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """Records that were read are no longer in the log. Others may be at their offsets: go back to this one."""

    offset: int
    epoch: int
    """Of the record before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report this error. A reader with endless patience goes on afterwards."""

    error: HoldfastError
    number: int = 0
    """Kafka's error code as it came; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The patience is over and nothing came. Records may be there: they must not be skipped."""

    since: float
    reach: int | None
    """How far the log goes, as the leader says; None: it did not say."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """The leader's log has ended here, before the end of the range, for longer than `cut_off_s`."""

    reach: int


Effect = Deliver | AskFirst | AtEnd | LookUp | OutOfRange | Truncated | Report | Stalled | CutOff


@dataclass(frozen=True, slots=True)
class Step:
    """A partition after an answer, and what its reader has to do."""

    track: Track
    effects: tuple[Effect, ...] = ()
