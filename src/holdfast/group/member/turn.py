"""One turn of the machine: a state going in, a state and effects coming out.

A `Turn` lives for one event and is the only mutable thing in this package. The helpers here are what every handler
needs: sending, notifying, tracing, failing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.group.member.effects import Call, Effect, Emit, Fail, Lost, Notify, Poke, Send
from holdfast.group.member.parts import (
    Adapting,
    Beats,
    Draining,
    Held,
    LeaderSaid,
    Leaving,
    Planning,
    Pokes,
    Requests,
    Round,
    Trouble,
)
from holdfast.group.member.state import Facts, MemberConfig, MemberState, Parts, Phase
from holdfast.group.messages import HeartbeatRequest, JoinRequest, LeaveRequest, SyncRequest
from holdfast.group.user_data import Positions
from holdfast.model import HoldfastError, Membership, TopicPartition, TraceRecord, Value, by_topic

P = ParamSpec("P")
T = TypeVar("T")


def changed(value: T, changes: Mapping[str, Any]) -> T:
    """`dataclasses.replace`, many times as fast: a state and its parts have no rules that a constructor would have to
    check, and no slots, because a dictionary is copied ten times as fast.

    Every event makes one to five of them; random worlds run on millions of events, and a process may have hundreds of
    members. A new dictionary is put in place as a whole: it is also read faster than one that `update` has filled.
    """
    new = _NEW(type(value))
    _SET(new, "__dict__", {**value.__dict__, **changes})
    return new


_NEW, _SET = object.__new__, object.__setattr__


def changes_facts(_fields: Callable[P, Facts]) -> Callable[Concatenate[Turn, P], None]:
    """A method that changes fields of the state itself. They are typed as in its constructor."""

    def change(turn: Turn, /, *_: P.args, **changes: P.kwargs) -> None:
        turn._changes.update(changes)

    return change


def changes_part(name: str, _fields: Callable[P, object]) -> Callable[Concatenate[Turn, P], None]:
    """A method that changes fields of one part of the state. They are typed as in the part's constructor."""

    def change(turn: Turn, /, *_: P.args, **changes: P.kwargs) -> None:
        waiting = turn._in_parts.get(name)
        if waiting is None:
            turn._in_parts[name] = changes
        else:
            waiting.update(changes)

    return change


def replaces_parts(_parts: Callable[P, Parts]) -> Callable[Concatenate[Turn, P], None]:
    """A method that replaces whole parts, with all that was changed in them before."""

    def replace(turn: Turn, /, *_: P.args, **parts: P.kwargs) -> None:
        for name in parts:
            turn._in_parts.pop(name, None)
        turn._changes.update(parts)

    return replace


SURE_WORD = "k"
UNSURE_WORDS = ("a", "b")
"""The three pokes of one generation in a large group, where pokes are passed on. "k": the coordinator knows of the
change (a watchdog's bare token means the same). "a" and "b": the change is on its way to the coordinator. A member
sends each at most once, so a generation costs it at most three datagrams to each of its peers."""


class Turn:
    """Collects what one event does."""

    __slots__ = ("_changes", "_in_parts", "_state", "effects", "now")

    def __init__(self, state: MemberState, now: float) -> None:
        self._state = state
        self._changes: dict[str, Any] = {}
        self._in_parts: dict[str, dict[str, Any]] = {}
        """Part -> the fields of it that change."""
        self.now = now
        self.effects: list[Effect] = []

    @property
    def config(self) -> MemberConfig:
        return self._state.config

    @property
    def state(self) -> MemberState:
        """The current state: an immutable value, rebuilt when it is read after a change."""
        changes = self._changes
        if self._in_parts:
            before = self._state.__dict__
            for name, fields in self._in_parts.items():
                changes[name] = changed(changes.get(name) or before[name], fields)
            self._in_parts = {}
        if changes:
            self._state = changed(self._state, changes)
            self._changes = {}
        return self._state

    set = changes_facts(Facts)
    replace = replaces_parts(Parts)
    set_held = changes_part("held", Held)
    set_round = changes_part("round", Round)
    set_said = changes_part("said", LeaderSaid)
    set_pokes = changes_part("pokes", Pokes)
    set_requests = changes_part("requests", Requests)
    set_beats = changes_part("beats", Beats)
    set_trouble = changes_part("trouble", Trouble)
    set_planning = changes_part("planning", Planning)
    set_adapting = changes_part("adapting", Adapting)
    set_drain = changes_part("drain", Draining)
    set_leaving = changes_part("leaving", Leaving)

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def trace(self, step: str, *, cause: str | None = None, culprit: str | None = None, **data: Value) -> None:
        membership: Membership = self._changes.get("membership", self._state.membership)
        config = self._state.config
        self.effects.append(
            Emit(
                TraceRecord(
                    at=self.now,
                    source="member",
                    step=step,
                    group=config.group,
                    member=config.called(membership),
                    generation=membership.generation,
                    cause=cause,
                    culprit=culprit,
                    data=data,
                )
            )
        )

    def heard(self) -> None:
        """The coordinator acknowledged us."""
        self.set_requests(heard_at=self.now, unheard=False)

    def vouched(self, sent_at: float) -> None:
        """The coordinator acknowledged what we sent then."""
        before = self._in_parts.get("requests", {}).get("vouched_at", self._state.requests.vouched_at)
        self.set_requests(heard_at=self.now, unheard=False, vouched_at=max(before, sent_at))

    def next_serial(self) -> int:
        serial: int = self._changes.get("serial", self._state.serial) + 1
        self._changes["serial"] = serial
        return serial

    def send(self, request: JoinRequest | SyncRequest | LeaveRequest) -> None:
        """Send a request whose answer this phase waits for."""
        serial = self.next_serial()
        self.set_requests(pending=serial, retry_at=None, sent_at=self.now, looked_at=self.now)
        self.do(Send(serial, request))

    def send_and_forget(self, request: LeaveRequest) -> None:
        """Send a request whose answer does not matter."""
        self.do(Send(self.next_serial(), request))

    def send_heartbeat(self) -> None:
        """Send a heartbeat, unless one is under way: more of them would not help a slow coordinator."""
        state = self.state
        if state.requests.heartbeat is not None or not state.membership.joined:
            return
        serial = self.next_serial()
        self.set_requests(heartbeat=serial, heartbeat_at=self.now)
        request = HeartbeatRequest(
            group=state.config.group, membership=state.membership, instance_id=state.config.instance_id
        )
        self.do(Send(serial, request))

    def poke(self, *, known: bool, heard: bool = False) -> None:
        """Tell the peers of a rebalance, so that they don't have to wait for their next heartbeat.

        `known`: the coordinator has acknowledged what started it. `heard`: the coordinator itself told us of it.
        """
        state = self.state
        if not state.pokes.passed_on:
            self._poke_with((), known=known)
        elif not known and not heard:
            self._poke_with(UNSURE_WORDS, known=False)
        elif not state.pokes.sent:  # else the others have heard of it from us, or through us
            self._poke_with((SURE_WORD,), known=True)

    def pass_on(self, word: str) -> None:
        """In a large group: pass a poke on to our peers, unless we have sent the same one in this generation."""
        if self.state.pokes.passed_on and word in (*UNSURE_WORDS, SURE_WORD, ""):
            self._poke_with((word or SURE_WORD,), known=True)

    def _poke_with(self, words: tuple[str, ...], *, known: bool) -> None:
        state = self.state
        others = tuple(peer for peer in state.pokes.peers if peer != state.config.endpoint)
        if not others or state.config.endpoint is None or not state.pokes.token:
            return
        new = tuple(word for word in words if word not in state.pokes.sent)
        if new or not words:
            self.set_pokes(sent=state.pokes.sent | set(new))
            self.do(Poke(others, state.pokes.token, known, new))

    def notify(self, calls: Iterable[Call], *, then_owned: frozenset[TopicPartition]) -> None:
        """Have these calls made. What is owned becomes `then_owned` only when they have returned."""
        serial = self.next_serial()
        self.set_held(then_owned=then_owned)
        self.set_requests(pending=serial)
        self.do(Notify(serial, tuple(calls)))

    def to_hand_over(self, positions: Positions) -> Positions:
        """The final positions, or none if the membership was lost: then another member may be beyond them."""
        return {} if self.state.lost else dict(positions)

    def fail(self, error: HoldfastError) -> None:
        """End with a fatal error. What was owned is lost: other members may get it.

        If listener's calls are under way, they count as made: the loss is reported after they have returned.
        """
        state = self.state
        pending = state.requests.pending is not None
        listening = pending and state.phase in (Phase.PREPARING, Phase.APPLYING, Phase.LEAVING)
        owned = state.held.then_owned if listening else state.owned
        self.set(phase=Phase.FAILED, error=error, owned=frozenset(), lost=True)
        self.set_requests(pending=None, heartbeat=None, retry_at=None)
        self.trace("failed", cause=str(error))
        if owned:
            self.do(Notify(self.next_serial(), (Lost(owned),)))
        self.do(Fail(error))


def as_value(partitions: Iterable[TopicPartition]) -> Value:
    """Partitions the way traces carry them."""
    return {topic: list(numbers) for topic, numbers in by_topic(partitions).items()}
