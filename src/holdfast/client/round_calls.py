"""The calls of a round: what the listener is told, and what becomes of positions and fetching around it.

Made by the polling thread, in the order of KIP-429. Whatever a callback raises, the others are made; the first error
is kept for poll. What a revoker hands over, and what a new owner was handed, live here between two calls of one round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.config import ConsumerConfig
from holdfast.client.control import ControlPlane, PendingCall, now_ms
from holdfast.client.data import DataPlane
from holdfast.client.listener import Listener
from holdfast.client.noting import Noting
from holdfast.client.offsets import Offsets
from holdfast.client.tracing import ConsumerTrace
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.group.user_data import MAX_HANDED_OVER
from holdfast.model import HoldfastError, TopicPartition

if TYPE_CHECKING:
    from holdfast.client.consumer import Consumer


class RoundCalls:
    """One consumer's listener, and what has to happen around each of its calls."""

    def __init__(
        self,
        consumer: Consumer,
        config: ConsumerConfig,
        data: DataPlane,
        offsets: Offsets,
        noting: Noting,
        trace: ConsumerTrace,
    ) -> None:
        self.listener = Listener()
        self._consumer = consumer
        self._config = config
        self._data = data
        self._offsets = offsets
        self._noting = noting
        self._trace = trace
        self._positions: dict[TopicPartition, int] = {}
        """Final positions of what was revoked: they ride in the next join."""
        self._handed: dict[TopicPartition, OffsetEntry] = {}
        """Where the last owners of what was assigned stood; the group hears it from us."""
        self._raised: BaseException | None = None

    def make(self, plane: ControlPlane, pending: PendingCall) -> bool:
        """One call, whatever it raises: the first error comes out of poll when all are made (KIP-429)."""
        match pending.call:
            case mb.Revoked(partitions) if plane.state.lost:
                self._lose(plane, partitions)  # it was asked for while we still were a member; by now it is lost
            case mb.Revoked(partitions):
                self._revoke(plane, partitions)
            case mb.Lost(partitions):
                self._lose(plane, partitions)
            case mb.OnAssignment(protocol, assignment, membership):
                with self._remembering():
                    assignor = next(a for a in self._config.assignors if a.name == protocol)
                    assignor.on_assignment(assignment, membership)
                return False
            case mb.Assigned(partitions):
                self._assign(plane, pending, partitions)
                return bool(partitions)
        return True

    def end(self, plane: ControlPlane, last: PendingCall) -> None:
        """All calls of this round are made: the group may go on."""
        plane.feed(mb.Notified(last.serial, self._positions))
        self._positions = {}
        if self._handed:  # ahead of any commit of the application's own: they share one connection
            plane.submit(_quietly(plane.commit(self._handed)))
            self._handed = {}

    def raise_first(self) -> None:
        """What the first callback to fail raised, if one did; once."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def _revoke(self, plane: ControlPlane, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        state = plane.state
        # A join follows the revoke and carries the positions. Whoever leaves must commit instead; somebody who drains
        # joins once more only where that reaches the next owners.
        joins = self._config.inventions.offset_handover and state.phase is not mb.Phase.LEAVING
        # An eager member revokes before it can know who else will be in the round, and which assignor will plan it.
        reaches = joins and state.cooperative and state.positions_reach and len(partitions) <= MAX_HANDED_OVER
        hands_over = reaches or (joins and state.draining is None)
        self._offsets.commit_before_revoke(plane, partitions, handed_over=reaches)
        self._offsets.acknowledged.clear()
        with self._remembering():
            self.listener.on_revoke(self._consumer, _listed(partitions))
        if hands_over:
            # Whoever commits for himself hands over what he committed just now, and nothing he did not.
            final = self._offsets.committable(partitions) if self._config.auto_commit else {}
            self._positions.update({p: entry.offset for p, entry in final.items()})
            self._positions.update({p: at for p, at in self._offsets.acknowledged.items() if p in partitions})
        self._let_go(partitions)
        self._trace.callback("revoked", started, plane.state, partitions, now_ms() - started)

    def _lose(self, plane: ControlPlane, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        self._let_go(partitions)
        with self._remembering():
            self.listener.on_lost(self._consumer, _listed(partitions))
        self._trace.callback("lost", started, plane.state, partitions, now_ms() - started)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._data.drop(partitions)
        self._offsets.forget(partitions)
        self._noting.gave_up(partitions)

    def _assign(self, plane: ControlPlane, pending: PendingCall, partitions: frozenset[TopicPartition]) -> None:
        started = now_ms()
        with self._remembering():
            self.listener.on_assign(self._consumer, _listed(partitions))
        waiting = {p: pending.offsets.get(p) for p in partitions if p not in self._data.assigned}
        self._data.add(waiting)
        self._handed = {
            p: OffsetEntry(offset) for p in sorted(pending.handed) if (offset := pending.offsets.get(p)) is not None
        }
        self._trace.callback("assigned", started, plane.state, partitions, now_ms() - started)

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # a listener may raise anything; poll raises the first of them
            if self._raised is None:
                self._raised = error


async def _quietly(work: Any) -> None:
    """For what is a courtesy to others: a handed-over offset is committed again with the next commit anyway."""
    with contextlib.suppress(HoldfastError):
        await work


def _listed(partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.partition) for p in sorted(partitions)]
