"""What a fetcher is told, and what it hands on: settings, places to start, fetched records, and what went wrong.

Values only. `flows` keeps them, `fetching` fills them; readers take them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.fetch.values import Rules
from holdfast.model import HoldfastError, TopicPartition

BEGINNING = -2
END = -1
"""Symbolic offsets that have to be looked up; the numbers are those of ListOffsets and of confluent-kafka."""

TAIL = -2_000
"""`TAIL - n` is n records before the end, as in confluent-kafka."""

NEWEST = -3
"""The record with the latest time, to be looked up too (ListOffsets from version 7 on)."""

NOWHERE = -1_001
"""No offset is known and none may be chosen (auto.offset.reset=error)."""

KIB = 1024

NO_END = -1
"""Of `Fetched.end`: there are records, and they say nothing of the partition's end."""


def is_place(at: int) -> bool:
    """Whether this says where to read: an offset, or one of the symbolic ones."""
    return at >= 0 or at in (BEGINNING, END, NEWEST) or at <= TAIL


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that can't be read, and why."""

    error: HoldfastError
    partition: TopicPartition | None = None
    """None: it is not about one partition."""
    offset: int | None = None
    number: int = 0
    """The broker's error code as it came: it may be one that we have no name for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much is fetched and how long a broker may wait. Defaults are librdkafka's, except for the wait."""

    wait_ms: int = 50
    """fetch.wait.max.ms. librdkafka's half second would be most of a moved partition's gap."""
    idle_wait_ms: int = 500
    """The same once a partition has been silent for a while: twenty empty requests a second would cost too much."""
    min_bytes: int = 1
    max_bytes: int = 50 * KIB * KIB
    """fetch.max.bytes: of one answer."""
    partition_bytes: int = KIB * KIB
    """max.partition.fetch.bytes: of one partition in it."""
    queued_bytes: int = 64 * KIB * KIB
    """queued.max.messages.kbytes: fetched and not read, over all partitions."""
    read_committed: bool = True
    rack: str = ""
    reset: int = END
    """Where to go when an offset is out of range or none is known: BEGINNING, END or NOWHERE."""
    backoff_s: float = 0.1
    error_backoff_s: float = 0.5
    """fetch.error.backoff.ms: the pause before a partition that could not be read is tried again."""
    replica_age_s: float = 300.0
    """How long a follower is read before the leader is asked again which replica is best (metadata.max.age.ms)."""
    tell_ends: bool = False
    """enable.partition.eof: report when a partition was read to its end."""

    def rules(self) -> Rules:
        """The planner's part of the settings. A consumer waits without a limit."""
        return Rules(
            backoff_s=self.backoff_s,
            error_backoff_s=self.error_backoff_s,
            replica_age_s=self.replica_age_s,
            partition_bytes=self.partition_bytes,
            read_committed=self.read_committed,
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records of one partition in one answer."""

    records: memoryview | bytes
    start: int
    next_offset: int
    rows: int
    """As the batches' headers claim; filtered ones count too."""
    aborted: tuple[tuple[int, int], ...] | None
    era: int = 0
    """Increased when the partition was reset: offsets may be lower than before."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(first offset, leader epoch) wherever the epoch changes."""
    end: int = NO_END
    """If set, there are no records, and the partition was read to its end: its high watermark."""

    @property
    def size(self) -> int:
        return len(self.records)

    def copied(self) -> Fetched:
        """The same with a copy of its bytes: a small part must not keep a large answer in memory."""
        return replace(self, records=bytes(self.records))


def no_place_to_start(partition: TopicPartition) -> HoldfastError:
    return HoldfastError(
        "AUTO_OFFSET_RESET",
        f"the group has no offset for {partition}, and auto.offset.reset is error.",
        "Seek, commit an offset for the group, or set auto.offset.reset to earliest or latest.",
    )


def log_truncated(partition: TopicPartition, at: int, offset: int) -> HoldfastError:
    return HoldfastError(
        "LOG_TRUNCATION",
        f"{partition} was read up to offset {at}, and its new leader has other records from {offset} on: an unclean "
        "leader election has lost some.",
        f"Reading goes back to {offset}, unless auto.offset.reset is error: then seek to where to go on. To prevent it "
        "set unclean.leader.election.enable=false and produce with acks=all and min.insync.replicas of at least 2.",
    )


def no_such_place(partition: TopicPartition, asked: int) -> HoldfastError:
    """The code is the one that a broker answers to such an offset."""
    return HoldfastError(
        "UNSUPPORTED_VERSION",
        f"{partition} was sought to {asked}, which is not a valid offset; auto.offset.reset decides where to read.",
        "Seek to an offset, the beginning (-2), the end (-1) or n records before the end (-2000 - n).",
    )
