"""One thing that a log line says about a group. Histories are built from these events alone, whatever wrote the line.

An event holds what its writer knew. A coordinator knows the rounds and who joined and left. A member knows its own
joins, its partitions and why it left. `--describe` knows who held what at one moment. The kinds below are grouped so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

# -- what a coordinator says
PREPARING = "preparing"
"""A round begins; `said` is the reason, `generation` the old one."""
GENERATION = "generation"
"""The join barrier is complete: the new generation; `number` is how many members it has."""
STABLE = "stable"
"""The leader's plan has arrived."""
EMPTY = "empty"
ARRIVED = "arrived"
"""A member id was given out, or a member of the new protocol joined."""
LEFT = "left"
EXPIRED = "expired"
EXPELLED = "expelled"
"""The member did not join the round within its rebalance timeout."""
REPLACED = "replaced"
"""An instance id was taken over: `member` is the new id, `said` the old one."""
FENCED = "fenced"
REFUSED_COMMIT = "refused-commit"
LOADED = "loaded"
"""A coordinator has read the group: it was started, or took the group over from another broker."""

# -- what a member says
WANTS = "wants"
"""The member asks for a round; `said` is why."""
JOINING = "joining"
JOINED = "joined"
"""The member is in the generation; `said` is the assignor."""
SYNCED = "synced"
PLANNED = "planned"
"""The leader's plan: `partitions` is "member id=topic-0 topic-1;…"."""
ADDED = "added"
REVOKED = "revoked"
LOST = "lost"
LEAVING = "leaving"
TOO_SLOW = "too-slow"
"""max.poll.interval.ms was exceeded; `number` is by how many milliseconds, if the line tells."""
SILENT = "silent"
"""The member noticed that its session had run out."""
COMMIT_FAILED = "commit-failed"
LISTENER = "listener"
"""A listener's call has returned; `number` is how many milliseconds it took."""
NAMED = "named"
"""A client names its group, and nothing else."""

# -- what a saved --describe says
HOLDS = "holds"
"""A row: this member holds this partition; `number` is its lag."""

COORDINATOR_KINDS = frozenset(
    {PREPARING, GENERATION, STABLE, EMPTY, ARRIVED, LEFT, EXPIRED, EXPELLED, REPLACED, FENCED, REFUSED_COMMIT, LOADED}
)

BROKER, JAVA, LIBRDKAFKA, TRACE, DESCRIBE = "broker", "java", "librdkafka", "trace", "describe"

_UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")

MAX_SAID = 500
"""Characters kept of a reason. Clients write it, so it can be of any length."""


@dataclass(slots=True, kw_only=True)
class Event:
    """Not frozen: a line is parsed in steps, and there are millions of events."""

    at_ms: float
    """Milliseconds since 1970 on the writer's clock; NaN where the line tells no time."""
    kind: str
    source: str
    group: str = ""
    """Empty where the line does not say, as most of librdkafka's do not."""
    member: str = ""
    client: str = ""
    instance: str = ""
    host: str = ""
    generation: int = -1
    number: float = -1.0
    said: str = ""
    partitions: str = ""
    """`topic-0 topic-1`; a plan has one such list for each member."""
    level: str = ""
    """The group protocol: "classic" or "consumer" (KIP-848)."""
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


MOST_INT = 2**31 - 1
MOST_MS, MOST_NUMBER = 1e15, 2.0**63
"""Later than the year 30,000, and more than Kafka's widest number: no clock and no counter says so."""


def plausible(event: Event) -> bool:
    """Whether its numbers are such as Kafka has, and fit into the tables' columns. A damaged line may hold any."""
    counts_members = event.kind in (GENERATION, STABLE, LOADED)
    return (
        (event.at_ms != event.at_ms or abs(event.at_ms) <= MOST_MS)
        and abs(event.generation) <= MOST_INT
        and abs(event.number) <= (MOST_INT if counts_members else MOST_NUMBER)
    )


FIELDS = tuple(field.name for field in fields(Event))


def client_of(member_id: str) -> str:
    """Kafka builds a member id from the client id (or the instance id) and a random part."""
    return _UUID.sub("", member_id) if _UUID.search(member_id) else ""


def as_row(event: Event) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in FIELDS)
