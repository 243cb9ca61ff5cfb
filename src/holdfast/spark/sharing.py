"""How a query shares its group with others: its options, which queries conflict, and the errors. Pure.

A member gets the rows of its partitions, and partitions move. This has three consequences. Each is refused, so that
nothing goes wrong silently:

- State does not move with partitions. A query that aggregates, joins streams or drops duplicates would continue without
  the past of the partitions it gains. Only the plan shows that, so the driver checks it (`guard`).
- A query that keeps state may be the only member (`kafka.holdfast.stateful=alone`). It fails when it is not.
- Two queries of one application in one group get a part of the rows each. A program that writes one stream to two sinks
  expects all rows in both. If the split is intended, `kafka.holdfast.share=true` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.model.subscription import MAX_FOLLOWERS

STATEFUL, SHARE, PLAN, STANDBY = "holdfast.stateful", "holdfast.share", "holdfast.plan", "holdfast.standby"
"""Options of a query, without the prefix `kafka.`. They are not passed on to the member or the readers."""
QUERY_KEYS = frozenset({STATEFUL, SHARE, STANDBY})
"""Those that people set. PLAN is set by `guard`."""
ALONE, NONE = "alone", "none"
STRATEGY, STICKY = "partition.assignment.strategy", "cooperative-sticky"
SEEN = "seen"

WAYS_OUT = (
    "Use holdfast.spark.stateful, whose state follows the partition (windows, sessions, aggregates, duplicates). Or "
    "say kafka.holdfast.stateful=alone for one application, which ends if others join the group; or read partitions by "
    "hand (assign); or aggregate each batch by itself, in foreachBatch."
)


@dataclass(frozen=True, slots=True)
class Sharing:
    """A query's options about sharing."""

    alone: bool = False
    """It keeps state and must be the only member."""
    shares: bool = False
    """Other queries of the same application may be members too."""
    plan_known: bool = False
    """Its plan is checked before it starts, or the user has said whether it keeps state."""
    standby: int = 0
    """How many other members follow the state of each partition (`spark.standby`)."""


def take_sharing(kafka: Mapping[str, str]) -> tuple[dict[str, str], Sharing]:
    """The other options, and the options about sharing."""
    stateful = kafka.get(STATEFUL, "").strip().lower()
    if stateful not in ("", ALONE, NONE):
        raise _bad(STATEFUL, kafka[STATEFUL], f"Choose {ALONE} or {NONE}.")
    share = kafka.get(SHARE, "false").strip().lower()
    if share not in ("true", "false"):
        raise _bad(SHARE, kafka[SHARE], "Choose true or false.")
    plan = kafka.get(PLAN, "")
    if plan not in ("", SEEN):
        raise _bad(PLAN, plan, "It is set by holdfast.spark: leave it out.")
    standby = kafka.get(STANDBY, "0").strip()
    if standby not in map(str, range(MAX_FOLLOWERS + 1)):
        raise _bad(STANDBY, kafka[STANDBY], f"Give a number of followers, from 0 (none) to {MAX_FOLLOWERS}.")
    if standby != "0" and stateful == ALONE:
        raise _bad(STANDBY, standby, f"A query that is alone in its group ({STATEFUL}={ALONE}) has no followers.")
    if standby != "0" and kafka.get(STRATEGY, STICKY).strip() != STICKY:
        raise _bad(STANDBY, standby, f"It brings its own assignor: leave kafka.{STRATEGY} out.")
    others = {key: value for key, value in kafka.items() if key not in (STATEFUL, SHARE, PLAN, STANDBY)}
    sharing = Sharing(
        alone=stateful == ALONE,
        shares=share == "true",
        plan_known=bool(plan or stateful),
        standby=int(standby),
    )
    return others, sharing


def _bad(key: str, value: str, do: str) -> HoldfastError:
    return HoldfastError("INVALID_OPTION", f"option kafka.{key} is {value!r}.", do)


# -- conflicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one reader reads, and in which group."""

    servers: str
    group: str
    topics: tuple[str, ...] = ()
    """Names, or one pattern that starts with ^."""
    assigned: tuple[TopicPartition, ...] = ()
    shares: bool = False
    cluster: str = ""
    """The cluster's own id, once a broker has been asked: one cluster has many addresses."""

    @property
    def topic_names(self) -> tuple[str, ...]:
        return self.topics or tuple(sorted({partition.topic for partition in self.assigned}))

    def to_json(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "group": self.group,
            "topics": list(self.topics),
            "assigned": [[topic, partition] for topic, partition in self.assigned],
            "shares": self.shares,
            "cluster": self.cluster,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Claim:
        return Claim(
            servers=str(data["servers"]),
            group=str(data["group"]),
            topics=tuple(map(str, data["topics"])),
            assigned=tuple(TopicPartition(str(topic), int(partition)) for topic, partition in data["assigned"]),
            shares=bool(data["shares"]),
            cluster=str(data.get("cluster", "")),
        )


def collide(one: Claim, other: Claim) -> bool:
    """Whether two readers of one application would get a part of the rows each, or move each other's offsets."""
    if one.group != other.group or not one_cluster(one, other):
        return False
    if one.assigned and other.assigned:
        return not set(one.assigned).isdisjoint(other.assigned)
    if one.shares and other.shares:
        return False
    return overlap(one.topic_names, other.topic_names)


def one_cluster(one: Claim, other: Claim) -> bool:
    """By the clusters' ids where both are known, else by the addresses that were given."""
    if one.cluster and other.cluster:
        return one.cluster == other.cluster
    return not servers_of(one).isdisjoint(servers_of(other))


def servers_of(claim: Claim) -> frozenset[str]:
    return frozenset(server.strip().lower() for server in claim.servers.split(",") if server.strip())


def overlap(ones: Sequence[str], others: Sequence[str]) -> bool:
    """Whether they may read a common topic. Names, or one pattern each; two patterns always may, now or later."""
    one, other = _pattern_in(ones), _pattern_in(others)
    if one and other:
        return True
    if one or other:
        return any(re.search(one or other, name) for name in (others if one else ones))
    return not set(ones).isdisjoint(others)


def _pattern_in(names: Sequence[str]) -> str:
    return next((name for name in names if name.startswith("^")), "")


# -- errors


def stateful_in_a_group(operators: Iterable[str], group: str) -> HoldfastError:
    return HoldfastError(
        "STATEFUL_IN_A_GROUP",
        f"the query keeps state ({', '.join(operators)}) and reads as a member of {group}. State stays behind when a "
        "partition moves to another member: windows would be missing or split, and duplicates let through.",
        WAYS_OUT,
    )


def plan_not_seen(group: str) -> HoldfastError:
    return HoldfastError(
        "PLAN_NOT_SEEN",
        f"nobody has looked whether this member of {group} keeps state, which would stay behind when partitions move.",
        "Put `import holdfast.spark` before .load() in the program that starts the query. Where that can't be (Spark "
        "Connect, Scala, SQL), say kafka.holdfast.stateful=none if it keeps no state, or =alone if it does.",
    )


def two_in_one_group(group: str, topics: Iterable[str]) -> HoldfastError:
    return HoldfastError(
        "GROUP_SHARED",
        f"two streams of this application read {', '.join(topics)} in the group {group}: each would get a part of the "
        "rows.",
        "For two sinks with all rows each, give each query a kafka.group.id of its own, or write both in one "
        "foreachBatch. If a part each is meant, say kafka.holdfast.share=true for both.",
    )


def not_alone(group: str, what: str) -> HoldfastError:
    return HoldfastError(
        "NOT_ALONE",
        f"the query keeps state and is to be the only member of {group} (kafka.holdfast.stateful=alone), but {what}.",
        "Stop the other members, or give this query a group of its own. Then start it again on its checkpoint.",
    )
