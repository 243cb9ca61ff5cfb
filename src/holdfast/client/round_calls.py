"""The listener's calls of a round, and what happens to commits, positions and fetching around them.

The polling thread makes them, in the order of KIP-429. If a callback raises, even a Ctrl-C, the others are still made
and the group goes on; poll raises the first error. The positions that a revoker hands over, and those that a new owner
was handed, are kept here from one call of a round to the next.

Inside on_assign the added partitions are not read yet. `assign` or `seek` on one of them starts it right there; the
others start when the callback has returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import confluent_kafka as ck

from holdfast.client.config import ConsumerConfig
from holdfast.client.control import ControlPlane, PendingCall, now_ms
from holdfast.client.data import AS_COMMITTED, DataPlane
from holdfast.client.listener import Listener
from holdfast.client.noting import Noting
from holdfast.client.offsets import Offsets
from holdfast.client.tracing import ConsumerTrace
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.group.user_data import fit_in
from holdfast.model import GroupMetadata, HoldfastError, Membership, TopicPartition


class RoundCalls:
    """One consumer's listener, and what has to happen around each of its calls."""

    def __init__(
        self,
        owner: Callable[[], Any],
        config: ConsumerConfig,
        data: DataPlane,
        offsets: Offsets,
        noting: Noting,
        trace: ConsumerTrace,
    ) -> None:
        self.listener = Listener()
        self._owner = owner
        self._config = config
        self._data = data
        self._offsets = offsets
        self._noting = noting
        self._trace = trace
        self._positions: dict[TopicPartition, OffsetEntry] = {}
        """Final positions of what was revoked: the next join carries them."""
        self._handed: dict[TopicPartition, OffsetEntry] = {}
        """Positions that the previous owners of what was assigned handed over: we commit them."""
        self._raised: BaseException | None = None
        self.adding: dict[TopicPartition, int | None] | None = None
        """Inside on_assign: the added partitions and their start offsets; None means auto.offset.reset decides."""
        self.leaving: frozenset[TopicPartition] | None = None
        """Inside on_revoke and on_lost: the partitions that are taken away."""
        self.replaced = False
        """Whether on_assign called `assign` with the whole assignment. Allowed under the eager protocol only."""

    def make(self, plane: ControlPlane, pending: PendingCall) -> bool:
        """One call, whatever it raises: the first error comes out of poll when all are made (KIP-429)."""
        changed = True
        with self._remembering():
            changed = self._make(plane, pending)
        return changed

    def _make(self, plane: ControlPlane, pending: PendingCall) -> bool:
        match pending.call:
            case mb.Revoked(partitions) if plane.state.lost:
                self._lose(plane, partitions)  # queued as a revoke, but the membership was lost since
            case mb.Revoked(partitions):
                self._revoke(plane, partitions)
            case mb.Lost(partitions):
                self._lose(plane, partitions)
            case mb.OnAssignment(protocol, assignment, membership):
                assignor = next(a for a in self._config.all_assignors if a.name == protocol)
                assignor.on_assignment(assignment, self._metadata(membership))
                return False
            case mb.Assigned(partitions):
                self._assign(plane, pending, partitions)
                return bool(partitions)
        return True

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
        if self._handed:  # numbered before any commit of the application's own, so that its own replaces this one
            handed, self._handed = self._handed, {}
            with contextlib.suppress(HoldfastError):  # no longer a member: then it is not ours to commit
                plane.submit(plane.commit_handed(handed))

    def remember(self, error: BaseException) -> None:
        """Keep the first error of a callback for poll; a Ctrl-C replaces an ordinary error."""
        if self._raised is None or (isinstance(self._raised, Exception) and not isinstance(error, Exception)):
            self._raised = error

    def raise_first(self) -> None:
        """Raise the first error that a callback raised, if one did, and forget it."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def _revoke(self, plane: ControlPlane, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        state = plane.state
        # A join follows the revoke and carries the positions. A member that leaves sends no join, so it must commit.
        # One that drains joins once more only where its positions reach the next owners.
        joins = self._config.inventions.offset_handover and state.phase is not mb.Phase.LEAVING
        # An eager member revokes before it knows who else will be in the round and which assignor will plan it.
        reaches = joins and state.cooperative and state.positions_reach and fit_in(partitions, state.room)
        hands_over = reaches or (joins and state.draining is None)
        try:
            self._offsets.begin_revoke(plane, partitions, handed_over=reaches)
            self.leaving = partitions
            heard = now_ms()
            with self._remembering():
                self.listener.on_revoke(self._owner(), _listed(partitions))
            listener_ms = now_ms() - heard
            final = self._offsets.end_revoke(plane, partitions, handed_over=reaches)
            if hands_over:
                self._positions.update(final)
        finally:  # whatever happened, another member reads them from here on
            self._let_go(partitions)
            self.leaving = None
        self._trace.callback("revoked", started, plane.state, partitions, now_ms() - started, listener_ms=listener_ms)

    def _lose(self, plane: ControlPlane, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        self._let_go(partitions)
        self.leaving = partitions
        heard = now_ms()
        with self._remembering():
            self.listener.on_lost(self._owner(), _listed(partitions))
        listener_ms = now_ms() - heard
        self.leaving = None
        self._trace.callback("lost", started, plane.state, partitions, now_ms() - started, listener_ms=listener_ms)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._data.drop(partitions)
        self._offsets.forget(partitions)
        self._offsets.given_up |= partitions
        self._noting.gave_up(partitions)

    def _assign(self, plane: ControlPlane, pending: PendingCall, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        self._offsets.given_up -= partitions
        self.adding = {p: pending.offsets.get(p) for p in partitions}
        self.replaced = False
        before = self._data.assigned - partitions
        with self._remembering():
            self.listener.on_assign(self._owner(), _listed(partitions))
        listener_ms = now_ms() - started
        starts, self.adding = self.adding, None
        if not self.replaced:
            self._drop_strangers(plane, before)
            self._data.add(starts)
        self._handed = {
            p: entry for p, entry in sorted(pending.handed.items()) if pending.offsets.get(p) == entry.offset
        }
        self._trace.callback("assigned", started, plane.state, partitions, now_ms() - started, listener_ms=listener_ms)

    def _drop_strangers(self, plane: ControlPlane, before: set[TopicPartition]) -> None:
        """Under the eager protocol a member reads the group's assignment and nothing else: partitions that it assigned
        itself before may be another member's now. What on_assign itself has added stays."""
        state = plane.state
        strangers = (before & self._data.assigned) - state.owned - state.next_phase_owned
        if strangers and not state.cooperative:
            self._offsets.part(plane, strangers, member=True)
            self._data.drop(strangers)
            self._offsets.forget(strangers)

    def begin(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """Inside on_assign: start those of these that are being added, at the named offset or else at the round's."""
        adding = self.adding or {}
        named = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        wanted = {p: at for p, at in named.items() if p in adding and p not in self._data.assigned}
        self._data.add({p: adding[p] if at in AS_COMMITTED else at for p, at in wanted.items()})

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001  # a listener may raise anything; poll raises the first of them
            self.remember(error)


def _listed(partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.partition) for p in sorted(partitions)]
