"""A simulated member's watchdog: a process beside the member's, which commits and leaves for it after a crash.

It knows what the member noted: who it is, and its application's positions. It commits these and leaves in the member's
name, over a connection of its own, and then pokes the others. Like `client.watchdog.child` it tries once; what fails is
left to the session timeout. It dies with its machine. A member that leaves by itself dismisses it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.group.member import MemberState
from holdfast.group.messages import Answer, CommitRequest, Leaver, LeaveRequest, OffsetEntry, Request
from holdfast.model import TopicPartition
from holdfast.sim.config import GROUP
from holdfast.sim.network import Connection

if TYPE_CHECKING:
    from holdfast.sim.member import Surroundings

WAKE_MS = 5.0
"""From the member's death to the first request: the system wakes it, and it connects."""

TIMEOUT_MS = 20_000.0
"""Time limit for an answer: much later the session timeout would have ended the membership anyway."""


class SimWatchdog:
    """Waits beside one process."""

    def __init__(self, world: Surroundings, name: str, incarnation: int) -> None:
        self.name = name
        """Its member's name: they share a machine, and its place in the network."""
        self._world = world
        self._connection = Connection(world.network, self, world.broker, f"watchdog-{incarnation}")
        self._unanswered = 0

    def run(self, call: Callable[..., None], *args: Any) -> None:
        """Always runs: faults that freeze or kill the member don't concern the watchdog."""
        call(*args)

    def speak(self, state: MemberState, noted: Mapping[TopicPartition, int]) -> None:
        """The member has died, in this state and at these positions."""
        self._world.clock.after(WAKE_MS, self._farewell, state, noted)

    def _farewell(self, state: MemberState, noted: Mapping[TopicPartition, int]) -> None:
        requests = self.requests(state, noted)
        self._unanswered = len(requests)

        def answered(_answer: Answer) -> None:
            self._unanswered -= 1
            if not self._unanswered:
                self._poke(state)

        for request in requests:
            self._connection.ask(request, TIMEOUT_MS, answered, _given_up)

    def requests(self, state: MemberState, noted: Mapping[TopicPartition, int]) -> list[Request]:
        """The commit comes first: after the leave it would be refused."""
        who, instance = state.membership, state.config.instance_id
        leave = LeaveRequest(group=GROUP, members=(Leaver(member_id=who.member_id, instance_id=instance),))
        if not noted or not who.joined:
            return [leave]
        offsets = {partition: OffsetEntry(position) for partition, position in noted.items()}
        return [CommitRequest(group=GROUP, membership=who, instance_id=instance, offsets=offsets), leave]

    def _poke(self, state: MemberState) -> None:
        for peer in state.pokes.peers:
            if peer != state.config.endpoint and state.pokes.token:
                self._world.poke(self.name, peer, state.pokes.token)


def _given_up(_reason: str) -> None:
    """It tries once; the session timeout does the rest."""
