"""One turn of the machine: a state going in, a state and effects coming out.

A `Turn` lives for one event and is the only mutable thing in this package. The helpers here are what every handler
needs: sending, notifying, tracing, failing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.group.member.effects import Call, Effect, Emit, Fail, Lost, Notify, Poke, Send
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.messages import HeartbeatRequest, JoinRequest, LeaveRequest, SyncRequest
from holdfast.group.user_data import Positions
from holdfast.model import HoldfastError, TopicPartition, TraceRecord, Value, by_topic


def changed(state: MemberState, changes: Mapping[str, Any]) -> MemberState:
    """`dataclasses.replace`, many times as fast: the state has no rules that a constructor would have to check.

    Every event makes one to five of them; random worlds run on millions of events, and a process may have hundreds of
    members.
    """
    new = object.__new__(MemberState)
    fields = vars(new)
    fields.update(vars(state))
    fields.update(changes)
    return new


SURE_WORD = "k"
UNSURE_WORDS = ("a", "b")
"""The three pokes of one generation in a large group, where pokes are passed on. "k": the coordinator knows of the
change (a watchdog's bare token means the same). "a" and "b": the change is on its way to the coordinator. A member
sends each at most once, so a generation costs it at most three datagrams to each of its peers."""


class Turn:
    """Collects what one event does."""

    __slots__ = ("_changes", "_state", "effects", "now")

    def __init__(self, state: MemberState, now: float) -> None:
        self._state = state
        self._changes: dict[str, Any] = {}
        self.now = now
        self.effects: list[Effect] = []

    @property
    def state(self) -> MemberState:
        """The current state: an immutable value, rebuilt when it is read after a change."""
        if self._changes:
            self._state = changed(self._state, self._changes)
            self._changes = {}
        return self._state

    def set(self, **changes: Any) -> None:
        """Move to a state with these fields changed."""
        self._changes.update(changes)

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def trace(self, step: str, *, cause: str | None = None, culprit: str | None = None, **data: Value) -> None:
        state = self.state
        self.effects.append(
            Emit(
                TraceRecord(
                    at=self.now,
                    source="member",
                    step=step,
                    group=state.config.group,
                    member=state.name,
                    generation=state.membership.generation,
                    cause=cause,
                    culprit=culprit,
                    data=data,
                )
            )
        )

    def heard(self) -> None:
        """The coordinator acknowledged us."""
        self.set(last_heard_at=self.now, unheard=False)

    def vouched(self, sent_at: float) -> None:
        """The coordinator acknowledged what we sent then."""
        vouched_at = max(self.state.vouched_at, sent_at)
        self.set(last_heard_at=self.now, unheard=False, vouched_at=vouched_at)

    def next_serial(self) -> int:
        serial = self.state.serial + 1
        self.set(serial=serial)
        return serial

    def send(self, request: JoinRequest | SyncRequest | LeaveRequest) -> None:
        """Send a request whose answer this phase waits for."""
        serial = self.next_serial()
        self.set(pending=serial, retry_at=None, asked_at=self.now)
        self.do(Send(serial, request))

    def send_and_forget(self, request: LeaveRequest) -> None:
        """Send a request whose answer does not matter."""
        self.do(Send(self.next_serial(), request))

    def send_heartbeat(self) -> None:
        """Send a heartbeat, unless one is under way: more of them would not help a slow coordinator."""
        state = self.state
        if state.heartbeat is not None or not state.membership.joined:
            return
        serial = self.next_serial()
        self.set(heartbeat=serial, heartbeat_at=self.now)
        request = HeartbeatRequest(
            group=state.config.group, membership=state.membership, instance_id=state.config.instance_id
        )
        self.do(Send(serial, request))

    def poke(self, *, known: bool, heard: bool = False) -> None:
        """Tell the peers of a rebalance, so that they don't have to wait for their next heartbeat.

        `known`: the coordinator has acknowledged what started it. `heard`: the coordinator itself told us of it.
        """
        state = self.state
        if not state.passed_on:
            self._poke_with((), known=known)
        elif not known and not heard:
            self._poke_with(UNSURE_WORDS, known=False)
        elif not state.poked_with:  # else the others have heard of it from us, or through us
            self._poke_with((SURE_WORD,), known=True)

    def pass_on(self, word: str) -> None:
        """In a large group: pass a poke on to our peers, unless we have sent the same one in this generation."""
        if self.state.passed_on and word in (*UNSURE_WORDS, SURE_WORD, ""):
            self._poke_with((word or SURE_WORD,), known=True)

    def _poke_with(self, words: tuple[str, ...], *, known: bool) -> None:
        state = self.state
        others = tuple(peer for peer in state.peers if peer != state.config.endpoint)
        if not others or state.config.endpoint is None or not state.poke_token:
            return
        new = tuple(word for word in words if word not in state.poked_with)
        if new or not words:
            self.set(poked_with=state.poked_with | set(new))
            self.do(Poke(others, state.poke_token, known, new))

    def notify(self, calls: Iterable[Call], *, then_owned: frozenset[TopicPartition]) -> None:
        """Have these calls made. What is owned becomes `then_owned` only when they have returned."""
        serial = self.next_serial()
        self.set(pending=serial, next_phase_owned=then_owned)
        self.do(Notify(serial, tuple(calls)))

    def to_hand_over(self, positions: Positions) -> Positions:
        """The final positions, or none if the membership was lost: then another member may be beyond them."""
        return {} if self.state.lost else dict(positions)

    def fail(self, error: HoldfastError) -> None:
        """End with a fatal error. What was owned is lost: other members may get it.

        If listener's calls are under way, they count as made: the loss is reported after they have returned.
        """
        state = self.state
        listening = state.pending is not None and state.phase in (Phase.PREPARING, Phase.APPLYING, Phase.LEAVING)
        owned = state.next_phase_owned if listening else state.owned
        self.set(
            phase=Phase.FAILED, error=error, owned=frozenset(), pending=None, heartbeat=None, retry_at=None, lost=True
        )
        self.trace("failed", cause=str(error))
        if owned:
            self.do(Notify(self.next_serial(), (Lost(owned),)))
        self.do(Fail(error))


def as_value(partitions: Iterable[TopicPartition]) -> Value:
    """Partitions the way traces carry them."""
    return {topic: list(numbers) for topic, numbers in by_topic(partitions).items()}
