"""A query's member as a standby: what it was told to follow, and how much of it its driver has. Pure.

The member is in the reader's process, but executors open the state, and only the driver reaches them. So the driver
asks every few seconds what to follow (`door`), and says in its question what it already has. The member's joins pass
that on to the leader (`assign.standby`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.assign.filled import filled
from holdfast.assign.following import Followed, Says
from holdfast.assign.standby import NAME, StandbyAssignor
from holdfast.group.member import OnAssignment
from holdfast.model import Assignor, GroupMetadata, TopicPartition, TraceRecord, by_topic, flatten
from holdfast.model.trace import Value

STALE_MS = 30_000.0
"""A driver reports every few seconds. One that has been silent for this long hangs, or its follower has failed: what it
had may be gone and does not count. It is still to follow the partition."""

QUESTION = "follow "
"""Prefix of the driver's question; JSON with what it has follows."""

UNSEEN = Followed(-1, 0)


@dataclass(slots=True)
class Standby:
    """What one member follows. A query may have several states, each with a follower."""

    group: str
    wanted: int
    """How many followers each partition is to have; 0 turns standby off."""
    clock: Callable[[], float]
    told: frozenset[TopicPartition] = frozenset()
    rests: bool = False
    """The last round was planned by another assignor, because a member does not have ours."""
    trouble: str | None = None
    """A follower's last error."""
    _held: dict[str, dict[TopicPartition, tuple[float, Followed]]] = field(default_factory=dict)
    """By state: what is there of each partition, and when the driver said so."""

    def says(self) -> Says:
        """For the leader. What the driver had a moment ago counts too: in the second round of a handover the new owner
        no longer follows the partition, but must still be chosen."""
        since = self.clock() - STALE_MS
        states = [{p: one for p, (at, one) in held.items() if at >= since} for held in self._held.values()]
        seen = {partition for held in states for partition in held}
        return Says(self.wanted, {p: _least(states, p) for p in sorted(self.told | seen)})

    def assignors(self) -> tuple[Assignor, ...]:
        """Listed before cooperative-sticky, which plans as long as the group has a member without standby. So
        applications can be switched one by one."""
        return (filled(StandbyAssignor(self.says, self.hear)),) if self.wanted else ()

    def round(self, call: OnAssignment) -> TraceRecord | None:
        """A round has ended. Returns a trace record if it has changed what is followed."""
        before = (self.told, self.rests)
        if call.protocol == NAME:
            (assignor,) = self.assignors()
            of = call.membership
            assignor.on_assignment(
                call.assignment, GroupMetadata(member_id=of.member_id, generation=of.generation, group=self.group)
            )
        else:
            self.rest()
        if before == (self.told, self.rests):
            return None
        named: Value = {topic: list(numbers) for topic, numbers in by_topic(self.told).items()}
        return TraceRecord(
            at=self.clock(),
            source="spark",
            step="standby-rests" if self.rests else "following",
            group=self.group,
            member=call.membership.member_id,
            generation=call.membership.generation,
            cause=f"the group's assignor is {call.protocol}: a member has no standby" if self.rests else None,
            data={"partitions": named},
        )

    def hear(self, told: frozenset[TopicPartition]) -> None:
        """A round that our assignor planned has ended."""
        self.told, self.rests = told, False

    def rest(self) -> None:
        """A round that another assignor planned has ended: nobody follows."""
        self.told, self.rests = frozenset(), True

    def answer(self, question: str) -> dict[str, Any]:
        """The driver's question says what it has of one state; the answer says what to follow."""
        state, held, trouble = _read(question)
        now = self.clock()
        before = {p: said for p, said in self._held.get(state, {}).items() if said[0] >= now - STALE_MS}
        self._held[state] = before | {p: (now, one) for p, one in held.items()}
        self.trouble = trouble
        return {"standby": self.wanted, "follow": by_topic(self.told)}

    def report(self) -> dict[str, Any]:
        """The part of the query's report about standby."""
        if not self.wanted:
            return {}
        if self.rests:
            return {"standby": "rests: a member of the group has no standby"}
        followed = self.says().followed
        shares = {str(p): followed[p].held / 1_000 for p in sorted(self.told)}
        return {"standby": {"follows": shares} | ({"trouble": self.trouble} if self.trouble else {})}


def _least(states: Sequence[Mapping[TopicPartition, Followed]], partition: TopicPartition) -> Followed:
    """The least of several states, because all of them are needed."""
    return min((held.get(partition, UNSEEN) for held in states), key=lambda one: one.held, default=UNSEEN)


def question(state: str, held: Mapping[TopicPartition, Followed], trouble: str | None) -> str:
    """One line, from the driver to its reader."""
    rows = [[p.topic, p.partition, one.offset, one.held] for p, one in sorted(held.items())]
    return QUESTION + json.dumps({"state": state, "held": rows, "trouble": trouble})


def _read(asked: str) -> tuple[str, dict[TopicPartition, Followed], str | None]:
    try:
        said = json.loads(asked.removeprefix(QUESTION))
        held = {
            TopicPartition(str(topic), int(n)): Followed(int(at), int(share)) for topic, n, at, share in said["held"]
        }
        return str(said["state"]), held, said["trouble"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"a driver asked {asked[:80]!r}") from error


def followed_in(answer: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """The partitions to follow, from the reader's answer."""
    return flatten(answer["follow"])
