"""The listener's calls of a round, and what happens to commits, positions and fetching around them.

The polling thread makes them, in the order of KIP-429. If a callback raises, even a Ctrl-C, the others are still made
and the group goes on; poll raises the first error. The positions that a revoker hands over are kept here from one call
of a round to the next.

Inside on_assign the added partitions are not read yet. `assign` or `seek` on one of them starts it right there; the
others start when the callback has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.client.clock import now_ms
from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.commits import Offsets
from holdfast.client.member.control import ControlPlane
from holdfast.client.member.listener import Listener
from holdfast.client.member.pending_calls import PendingCall
from holdfast.client.partitions import AS_COMMITTED, confluent_list, name_of, offsets_of
from holdfast.client.raised import Raised
from holdfast.client.reading.data_plane import REFUSALS, DataPlane
from holdfast.client.telemetry.tracing import ConsumerTrace
from holdfast.client.watchdog.positions import WatchdogNotes
from holdfast.group import member as mb
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
from holdfast.model import GroupMetadata, Membership, TopicPartition

TRIES = 3
"""How many times a step that the group counts on is performed if signals interrupt it."""


class RoundCalls:
    """One consumer's listener, and what has to happen around each of its calls."""

    def __init__(
        self,
        owner: Callable[[], Any],
        config: ConsumerConfig,
        data: DataPlane,
        offsets: Offsets,
        notes: WatchdogNotes,
        trace: ConsumerTrace,
    ) -> None:
        self.listener = Listener()
        self._owner = owner
        self._config = config
        self._data = data
        self._offsets = offsets
        self._notes = notes
        self._trace = trace
        self._committer = Committer.AUTOMATIC if config.auto_commit else Committer.BY_APPLICATION
        self._positions: dict[TopicPartition, OffsetEntry] = {}
        """Final positions of what was revoked: the next join carries them."""
        self._before: set[TopicPartition] = set()
        """What was assigned when on_assign was called, without what it adds."""
        self._listener_ms = 0.0
        self.raised = Raised()
        self.adding: dict[TopicPartition, int | None] | None = None
        """Inside on_assign: the added partitions and their start offsets; None means auto.offset.reset decides."""
        self.leaving: frozenset[TopicPartition] | None = None
        """Inside on_revoke and on_lost: the partitions that are taken away."""
        self.replaced = False
        """Whether on_assign called `assign` with the whole assignment. Allowed under the eager protocol only."""

    def make(self, plane: ControlPlane, pending: PendingCall) -> bool:
        """Everything around one call, in the order of `group.session.steps`, whatever a step raises. True when
        partitions changed hands."""
        state, started = plane.state, now_ms()
        self._listener_ms = 0.0
        for step in steps_around(state, pending.call, self._committer):
            self._make_sure(plane, pending, step)
        self.adding = None
        match pending.call:
            case mb.OnAssignment():
                return False
            case mb.Revoked(partitions):
                word = "lost" if state.lost else "revoked"
            case mb.Lost(partitions):
                word = "lost"
            case mb.Assigned(partitions):
                word = "assigned"
        took = now_ms() - started
        self._trace.callback(word, started, plane.state, partitions, took, listener_ms=self._listener_ms)
        return word != "assigned" or bool(partitions)

    def _make_sure(self, plane: ControlPlane, pending: PendingCall, step: Step) -> None:
        """Perform a step, and remember what it raises: a listener may raise anything; poll raises the first of them.

        The group counts on what is let go and what is started. So if Ctrl-C interrupts these, they are done again.
        """
        for _ in range(TRIES if isinstance(step, LetGo | Start) else 1):
            try:
                self._perform(plane, pending, step)
                return
            except REFUSALS as error:
                self.raised.remember(error)
                return
            except BaseException as error:  # noqa: BLE001  # Ctrl-C, or whatever a signal handler raises
                self.raised.remember(error)

    def _perform(self, plane: ControlPlane, pending: PendingCall, step: Step) -> None:
        match step:
            case HoldBack(partitions, ahead_of_join):  # records are handed out by this thread, which is busy here
                self._offsets.begin_revoke(partitions, ahead_of_join=ahead_of_join)
            case Commit(partitions):
                self._offsets.commit_positions(plane, partitions, member=True)
            case Await():
                self._offsets.wait_in_revoke(step)
            case Tell(call):
                self._tell(pending, call)
            case LetGo(partitions, hands_over):
                if hands_over:
                    self._positions.update(self._offsets.final(partitions))
                self._let_go(plane, partitions)
            case Start(partitions):
                self._start(plane, {p: pending.offsets.get(p) for p in partitions})

    def _metadata(self, membership: Membership) -> GroupMetadata:
        return GroupMetadata(
            member_id=membership.member_id,
            generation=membership.generation,
            group=self._config.group,
            instance_id=self._config.instance_id,
        )

    def end(self, plane: ControlPlane, last: PendingCall) -> None:
        """All calls of this round are made: the group may go on."""
        if not last.answered:
            plane.feed(mb.Notified(last.serial, self._positions))
        self._positions = {}

    def _tell(self, pending: PendingCall, call: mb.Call) -> None:
        """Call the listener. Inside on_assign the added partitions are known and not read yet."""
        heard = now_ms()
        try:
            match call:
                case mb.OnAssignment(protocol, assignment, membership):
                    assignor = next(a for a in self._config.all_assignors if a.name == protocol)
                    assignor.on_assignment(assignment, self._metadata(membership))
                case mb.Revoked(partitions):
                    self.leaving = partitions
                    self.listener.on_revoke(self._owner(), confluent_list(partitions))
                case mb.Lost(partitions):
                    self.leaving = partitions
                    self.listener.on_lost(self._owner(), confluent_list(partitions))
                case mb.Assigned(partitions):
                    self._offsets.given_up -= partitions
                    self._before = self._data.assigned - partitions
                    self.adding = {p: pending.offsets.get(p) for p in partitions}
                    self.replaced = False
                    self.listener.on_assign(self._owner(), confluent_list(partitions))
        finally:
            self.leaving = None
            self._listener_ms = now_ms() - heard

    def _let_go(self, plane: ControlPlane, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            plane.handed.pop(partition, None)
        self._data.drop(partitions)
        self._offsets.end_revoke()
        self._offsets.forget(partitions)
        self._offsets.given_up |= partitions
        self._notes.gave_up(partitions)

    def _start(self, plane: ControlPlane, starts: Mapping[TopicPartition, int | None]) -> None:
        if not self.replaced:
            self._drop_strangers(plane, self._before)
            self._data.add(starts)

    def _drop_strangers(self, plane: ControlPlane, before: set[TopicPartition]) -> None:
        """Under the eager protocol a member reads the group's assignment and nothing else: partitions that it assigned
        itself before may be another member's now. What on_assign itself has added stays."""
        state = plane.state
        strangers = (before & self._data.assigned) - state.owned - state.held.then_owned
        if strangers and not state.cooperative:
            self._offsets.before_unassign(plane, strangers, member=True)
            self._data.drop(strangers)
            self._offsets.forget(strangers)

    def start_now(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """Inside on_assign: start those of these that are being added, at the named offset or else at the round's."""
        adding, named = self.adding or {}, list(partitions)
        wanted = {p: at for p, at in offsets_of(named).items() if p in adding and p not in self._data.assigned}
        starts = {p: adding[p] if at in AS_COMMITTED else at for p, at in wanted.items()}
        self._data.add(starts, named=[p for p in named if name_of(p) in wanted])
