"""What a finding is, and what the checks that make them share.

A finding is about something that keeps happening. What happened once for a reason, such as a start, a stop or a single
join or leave, is not a finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.doctor import causes
from holdfast.doctor.history import History
from holdfast.doctor.people import Life
from holdfast.doctor.rounds import Rebalance

CRASH_LOOP, STORM, HANG, COLLISION, EAGER = "crash-loop", "storm", "hang", "instance-id-collision", "eager"
SLOW_LISTENER, FLAPPING, RESTARTS, COMMITS, SKEW = (
    "slow-to-join", "flapping", "restarts-without-instance-ids", "commit-failures", "skew",
)  # fmt: skip
CRASHES, BUSY = "crash", "many-rebalances"

AGAIN = 2
"""What happened twice will go on; what happened once may be a deploy or an accident."""

SLOW_MS = 3_000.0
"""A round whose slowest member takes longer than a default heartbeat interval kept everybody waiting."""

SHORT_LIFE_MS = 600_000.0
"""A member that joins and leaves within ten minutes was not needed, or should have stayed."""

MOST_PER_HOUR = 5.0
EVIDENCE_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    at_ms: float
    what: str
    where: str


@dataclass(slots=True, kw_only=True)
class Finding:
    kind: str
    culprit: str = ""
    """A client id, an instance id or a host, as people know it; empty if nobody is to blame."""
    host: str = ""
    what: str
    times: int = 1
    cost_ms: float = 0.0
    """Time without processing, summed over all partitions."""
    measured: bool = False
    change: dict[str, str] = field(default_factory=dict)
    """Settings, with the values to give them."""
    do: str = ""
    saves_ms: float = float("nan")
    """How much of the cost the change would save, according to a replay in the simulator."""
    saves_how: str = ""
    evidence: list[Evidence] = field(default_factory=list)


def by_process(history: History, *hows: str) -> dict[str, list[Life]]:
    """All lives, in order, of each process that ended at least once in one of these ways. Processes that share a client
    id and can't be told apart count as one, named by that client id."""
    lives: dict[str, list[Life]] = defaultdict(list)
    for life in sorted(history.people.lives.values(), key=lambda one: (one.since_ms, one.member)):
        process = history.people.process_of(life)
        lives[life.client if process == life.member and life.client else process].append(life)
    return {who: each for who, each in lives.items() if any(life.how in hows for life in each)}


def caused_by(history: History, lives: Sequence[Life], *triggers: str) -> list[Rebalance]:
    ids = dict.fromkeys(life.member for life in lives)
    return [one for who in ids for one in history.disturbances_by.get(who, ()) if one.trigger in triggers]


def cost_of(history: History, rebalances: Sequence[Rebalance]) -> tuple[float, bool]:
    """Their cost, and whether all of it was measured; otherwise it is the most that it can be."""
    costly = [one for one in rebalances if one.partition_ms]
    return sum(one.partition_ms for one in costly), bool(costly) and all(one.measured for one in costly)


def share_of(history: History) -> float:
    """How many partitions a member has on average."""
    return max(1.0, history.partitions / max(1, history.members))


def span_of(lives: Sequence[Life]) -> float:
    """The time from the first life's end to the last. While two processes share an instance id, one is always out."""
    return max((one.to_ms for one in lives), default=0.0) - min((one.to_ms for one in lives), default=0.0)


def evidence_of(one: Rebalance) -> Evidence:
    who = f" ({one.who})" if one.who else ""
    what = f"generation {one.generation}: {causes.WORDS[one.trigger]}{who}, {one.took_ms / 1000:.1f} s"
    return Evidence(at_ms=one.began_ms, what=what, where=one.where)


def lives_evidence(lives: Sequence[Life], what: str) -> list[Evidence]:
    return [Evidence(at_ms=one.to_ms, what=f"{one.name}: {what}", where=one.where) for one in lives[:EVIDENCE_KEPT]]


def host_of(lives: Sequence[Life]) -> str:
    return next((one.host for one in lives if one.host), "")


def instance_id_for(life: Life) -> str:
    return life.instance or "${HOSTNAME}"


def session_key(history: History) -> str:
    """The setting that holds a member's session. Clients of the new protocol refuse session.timeout.ms: there the
    group has one (kafka-configs.sh --entity-type groups), or the broker."""
    return "consumer.session.timeout.ms" if history.level == "consumer" else "session.timeout.ms"


SHORT_SESSION_MS = 10_000.0


def shorter_session(history: History) -> dict[str, str]:
    """The settings with which a dead member is noticed sooner; none if its session is short already."""
    if history.session_ms <= SHORT_SESSION_MS:
        return {}
    key, session = session_key(history), f"{SHORT_SESSION_MS:.0f}"
    return {key: session, key.replace("session.timeout", "heartbeat.interval"): "3000"}


def session_for(needed_ms: float) -> str:
    return str(int(max(45_000.0, needed_ms)))


def times_text(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counted(number: int, what: str) -> str:
    """1 file, 2 files."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
