"""Snapshots of a live group as the events that a coordinator's log would hold.

`observe.history` decides what two snapshots tell about a rebalance. This module only translates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.doctor import events as e
from holdfast.doctor.events import Event
from holdfast.observe.history import History, Rebalance
from holdfast.observe.snapshot import DescribedMember, GroupSnapshot

_REASONS = {
    "expired": "removing member {} on heartbeat expiration",
    "leave": "Removing member {} on LeaveGroup; client reason: not provided",
    "join": "Adding new member {}",
    "return": "Adding new member {}",
    "restart": "Adding new member {}",
    "subscription": "Updating metadata for member {}; client reason: its subscription changed",
    "partitions": "Leader {} re-joining group; client reason: cached metadata has changed",
}


@dataclass(slots=True)
class Watched:
    """Takes snapshots in order and returns events."""

    group: str
    history: History = field(default_factory=History)
    generation: int = 0
    _before: GroupSnapshot | None = None

    def see(self, look: GroupSnapshot, now_ms: float) -> list[Event]:
        first, ended = self.history.first is None, self.history.see(look, now_ms)
        if self.history.rebalancing:
            return []
        before, self._before = self._before, look
        if first or before is None:
            return [
                *(self._event(now_ms, e.ARRIVED, member) for member in look.described.members),
                *self._plan(look, now_ms, now_ms),
            ]
        was = {member.member_id: member for member in before.described.members}
        now = {member.member_id: member for member in look.described.members}
        came = [now[name] for name in sorted(now.keys() - was.keys())]
        went = [was[name] for name in sorted(was.keys() - now.keys())]
        if ended is None:
            return [self._replaced(now_ms, new, went) for new in came if new.instance_id]
        return self._rebalanced(ended, look, came, went)

    def _rebalanced(
        self, ended: Rebalance, look: GroupSnapshot, came: list[DescribedMember], went: list[DescribedMember]
    ) -> list[Event]:
        kind = e.EXPIRED if ended.cause == "expired" else e.LEFT
        named = went if ended.cause in ("expired", "leave") else came
        culprit = named[0] if named else next(iter(look.described.members), None)
        told = [self._event(ended.began_ms, kind, member) for member in went]
        told += [self._event(ended.began_ms, e.ARRIVED, member) for member in came]
        if culprit is not None:
            begun = self._event(ended.began_ms, e.PREPARING, culprit)
            begun.said = _REASONS.get(ended.cause, "").format(culprit.member_id)
            begun.generation = self.generation
            told.append(begun)
        return [*told, *self._plan(look, ended.ended_ms, ended.began_ms)]

    def _plan(self, look: GroupSnapshot, at_ms: float, began_ms: float) -> list[Event]:
        """The round's end, with everybody's partitions. A snapshot does not tell when the join barrier completed, so
        the round appears to have waited for nobody."""
        self.generation += 1
        members = look.described.members
        if not members:
            return [Event(at_ms=at_ms, kind=e.EMPTY, source=e.DESCRIBE, group=self.group)]
        whole = Event(
            at_ms=began_ms, kind=e.GENERATION, source=e.DESCRIBE, group=self.group, generation=self.generation,
            number=float(len(members)), said=look.described.protocol, level=look.described.kind or "classic",
        )  # fmt: skip
        held = ";".join(
            f"{one.member_id}={' '.join(f'{at.topic}-{at.partition}' for at in sorted(one.assigned))}"
            for one in members
        )
        done = Event(at_ms=at_ms, kind=e.STABLE, source=e.DESCRIBE, group=self.group, generation=self.generation)
        plan = Event(at_ms=at_ms, kind=e.PLANNED, source=e.DESCRIBE, group=self.group, generation=self.generation)
        plan.partitions = held
        return [whole, done, plan]

    def _replaced(self, at_ms: float, new: DescribedMember, went: list[DescribedMember]) -> Event:
        told = self._event(at_ms, e.REPLACED, new)
        told.said = next((one.member_id for one in went if one.instance_id == new.instance_id), "")
        return told

    def _event(self, at_ms: float, kind: str, member: DescribedMember) -> Event:
        return Event(
            at_ms=at_ms, kind=kind, source=e.DESCRIBE, group=self.group, member=member.member_id,
            client=member.client_id, instance=member.instance_id or "", host=member.host.lstrip("/"), level="classic",
        )  # fmt: skip
