"""I11: a member that dies while its watchdog lives is out of the group within seconds, with its positions committed.

Only if nothing stops the watchdog. It tries once: after a lost message, a refusal, a broker that is down or a cut
network, the session timeout has to do it, and this invariant does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.checkers.standing import Standing

if TYPE_CHECKING:
    from holdfast.sim.world import World

WITHIN_MS = 4_000.0
"""Generous: the slowest networks of random worlds take a second for a message now and then."""

CUTS = frozenset({"cut", "mute", "deafen"})


@dataclass(slots=True)
class Death:
    """A member that died, for which the watchdog has to commit and leave."""

    name: str
    died_at: float
    generation: int | None
    uncommitted: dict[str, object]
    """The positions its application had reached, without those committed since."""


class SpokenFor(Checker):
    """Keeps the deaths that watchdogs still have to deal with."""

    invariant = "I11"

    def __init__(self) -> None:
        super().__init__()
        self._standing = Standing()
        self._owed: dict[str, Death] = {}
        """By member id."""
        self._wrong: list[tuple[float, str]] = []
        """Possible violations, until it is known whether a fault in the world excuses them."""
        self._cut: set[str] = set()
        self._broker_up = True

    def watches(self) -> Mapping[str, Watch]:
        return {
            **self._standing.watches(),
            "member-left": self._on_left,
            "member-expired": self._on_gone,
            "member-expelled": self._on_gone,
            "broker-died": self._on_broker_died,
            "broker-started": self._on_broker_started,
            "process-died": self._on_died,
            "commit-taken": self._on_taken,
            "happened": self._on_happened,
        }

    def _on_died(self, record: TraceRecord) -> None:
        member_id, noted = record.data.get("watched"), record.data.get("noted")
        if not isinstance(member_id, str) or not isinstance(noted, dict):
            return
        if self._broker_up and self._standing.has(member_id) and record.member not in self._cut:
            self._owed[member_id] = Death(record.member, record.at, record.generation, dict(noted))

    def _on_taken(self, record: TraceRecord) -> None:
        death = self._owed.get(record.member)
        offsets = record.data["offsets"]
        assert isinstance(offsets, dict)
        if death is not None:
            death.uncommitted = {p: at for p, at in death.uncommitted.items() if offsets.get(p) != at}

    def _on_left(self, record: TraceRecord) -> None:
        death = self._owed.pop(record.member, None)
        may_commit = death is not None and self._standing.has(record.member, death.generation)
        if death is not None and death.uncommitted and may_commit and not self._standing.completing:
            lost = ", ".join(sorted(death.uncommitted))
            self._wrong.append((record.at, f"{record.member} was taken out before its positions in {lost} were kept"))
        self._standing.on_gone(record)

    def _on_gone(self, record: TraceRecord) -> None:
        death = self._owed.pop(record.member, None)
        if death is not None and record.at - death.died_at > WITHIN_MS:
            self._wrong.append((record.at, _silence(record.member, death)))
        self._standing.on_gone(record)

    def _on_broker_died(self, _record: TraceRecord) -> None:
        self._broker_up = False
        self._owed.clear()

    def _on_broker_started(self, _record: TraceRecord) -> None:
        self._broker_up = True

    def _on_happened(self, record: TraceRecord) -> None:
        if record.data["kind"] in CUTS:
            name = str(record.data["target"])
            self._cut.add(name)
            self._owed = {each: death for each, death in self._owed.items() if death.name != name}

    def look(self, world: World) -> None:
        if world.config.network.loss or world.config.refuses or not world.broker.up:
            self._owed.clear()
            self._wrong.clear()
        for at, what in self._wrong:
            self.violated(at, what)
        self._wrong.clear()
        now = world.clock.now
        for member_id, death in self._owed.items():
            if now - death.died_at > WITHIN_MS:
                self.violated(now, _silence(member_id, death))


def _silence(member_id: str, death: Death) -> str:
    return f"{member_id} died at {death.died_at / 1000:.3f} s beside its watchdog, and nobody spoke for it"
