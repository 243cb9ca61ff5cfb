"""The application's thread of a simulated member: it makes the listener's calls, one after the other, in virtual time.

A notice of the machine waits for the batch in work and for a hung application. A partition's lane stops before the
listener is told of its revoke, and opens after the machine says that it is owned: `owned` alone is not enough, because
what is about to be revoked stays owned until the listener has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.group.member import Assigned, Call, Lost, Notified, Notify, OnAssignment, Phase, Revoked
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.steps import (
    Await,
    Commit,
    Committer,
    HoldBack,
    LetGo,
    Start,
    Step,
    Tell,
    steps_around,
)
from holdfast.model import TopicPartition, Value, by_topic

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember

WORDS = {Revoked: "revoked", Lost: "lost", Assigned: "assigned"}


class Listener:
    """Makes the calls for one process."""

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self._notices: deque[Notify] = deque()
        self._calling = False
        self.giving_up: set[TopicPartition] = set()
        """Owned until the listener has returned, but on their way out: no lane opens for these any more."""
        self._ahead_of_join = False
        """Whether commits of the call that is being made go ahead of the join."""
        self._unstored: dict[TopicPartition, OffsetEntry] = {}
        """What it takes away and the application stores only when its listener is called."""
        self._uncommitted: dict[TopicPartition, OffsetEntry] = {}
        """What it takes away and is to be committed."""
        self._final: dict[TopicPartition, int] = {}
        """Where the next owners of it go on."""
        # A hook for mutations.
        self.steps_around = steps_around
        self._starts: dict[TopicPartition, int] = {}
        """Handed-over positions of partitions that the listener is being told of."""

    @property
    def busy(self) -> bool:
        return self._calling or bool(self._notices)

    @property
    def waiting(self) -> int:
        return len(self._notices)

    def notify(self, notice: Notify) -> None:
        for call in notice.calls:
            if isinstance(call, Revoked | Lost):
                self.giving_up |= call.partitions
            elif isinstance(call, Assigned) and call.offsets:
                self._member.offsets.commit_handed(call.offsets)
        self._notices.append(notice)
        self.go_on()

    def go_on(self) -> None:
        """Begin with the next notice if the application's thread is free."""
        member = self._member
        if not self._notices or self._calling or member.polling.hung or member.dead or member.polling.working:
            return
        self._calling = True
        notice = self._notices.popleft()
        if member.plan.batch_ms and member.app.lanes and not member.plan.slow:
            member.later(member.world.random.uniform(0.0, member.plan.batch_ms), self._call, notice, 0, {})
        else:
            self._call(notice, 0, {})

    def _call(self, notice: Notify, index: int, positions: dict[TopicPartition, int]) -> None:
        """Make one call of a notice; the next one comes when the listener has returned."""
        if index == len(notice.calls):
            self._answer(notice, positions)
            return
        committer = Committer.AUTOMATIC if self._member.plan.commit_on_revoke else Committer.BY_APPLICATION
        steps = deque(self.steps_around(self._member.state, notice.calls[index], committer))
        self._perform(steps, (self._call, notice, index + 1, positions), positions)

    def _perform(self, steps: deque[Step], then: tuple[Any, ...], positions: dict[TopicPartition, int]) -> None:
        """Perform the steps around one call, in order. After a step that takes time, this continues with the rest."""
        offsets = self._member.offsets
        while steps:
            step = steps.popleft()
            on = partial(self._perform, steps, then, positions)
            match step:
                case HoldBack():
                    self._hold_back(step)
                case Commit():
                    offsets.commit(self._uncommitted, ahead_of_join=self._ahead_of_join)
                    self._uncommitted = {}
                case Await():
                    offsets.wait(step, on)
                    return
                case Tell(OnAssignment()):
                    pass
                case Tell(call):
                    self._tell(call, on)
                    return
                case LetGo(partitions, hands_over):
                    self._forget(partitions)
                    self._member.app.close(partitions, "lost")
                    positions.update(self._final if hands_over else {})
                case Start():
                    pass  # the lanes open after the answer
        call, *arguments = then
        call(*arguments)

    def _hold_back(self, step: HoldBack) -> None:
        member = self._member
        self._ahead_of_join = step.ahead_of_join
        processed = member.app.uncommitted(step.partitions)
        late = member.plan.stores_in_listener
        self._unstored, self._uncommitted = (processed, {}) if late else ({}, processed)
        final = member.app.close(step.partitions, "left" if member.state.phase is Phase.LEAVING else "revoked")
        self._final = final if member.plan.commits_what_it_gives_up else {}

    def _tell(self, call: Call, then: Callable[[], None]) -> None:
        member = self._member
        self._uncommitted, self._unstored = {**self._uncommitted, **self._unstored}, {}
        if isinstance(call, Assigned):
            self._starts.update({partition: entry.offset for partition, entry in call.offsets.items()})
        elif isinstance(call, Revoked) and member.plan.commits_in_listener:
            member.offsets.commit(self._uncommitted, ahead_of_join=self._ahead_of_join)
            self._uncommitted = {}
        self.note(call)
        if member.plan.listener_raises:
            member.trace("listener-raised")
        told = not isinstance(call, OnAssignment) and call.partitions
        member.later(member.plan.listener_ms if told else 0.0, then)

    def note(self, call: Call) -> None:
        """What the listener hears, for the trace."""
        if isinstance(call, OnAssignment):
            return
        grouped: dict[str, Value] = {topic: [*numbers] for topic, numbers in by_topic(call.partitions).items()}
        self._member.trace("called", call=WORDS[type(call)], partitions=grouped)

    def _answer(self, notice: Notify, positions: dict[TopicPartition, int]) -> None:
        self._calling = False
        for call in notice.calls:
            if isinstance(call, Revoked | Lost):
                self.giving_up -= call.partitions
        self._member.feed(Notified(notice.serial, {p: OffsetEntry(at) for p, at in positions.items()}))
        self._open_lanes()
        self.go_on()

    def _open_lanes(self) -> None:
        """Process what is owned now, from the handed-over position or the committed one."""
        member = self._member
        if member.state.lost:
            return
        wanted: list[TopicPartition] = []
        for partition in sorted(member.state.owned - self.giving_up):
            if partition in member.app.lanes or member.offsets.is_fetching(partition):
                continue
            position = self._starts.pop(partition, None)
            if position is None:
                wanted.append(partition)
            else:
                member.app.open(partition, position, "handed over")
        self._starts.clear()
        if wanted:
            member.offsets.fetch(wanted)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Cancel what was under way to start with these."""
        for partition in partitions:
            self._member.offsets.stop_fetching(partition)
            self._starts.pop(partition, None)
