"""A member driven by hand: feed events, look at effects. The clock is a number the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.group.member import (
    Assigned,
    Effect,
    Emit,
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    Lost,
    MemberConfig,
    MemberState,
    Notified,
    Notify,
    OnAssignment,
    Phase,
    Plan,
    Planned,
    Revoked,
    Send,
    Subscribe,
    SyncAnswered,
    Tick,
    next_deadline,
    strict_step,
)
from holdfast.group.messages import HeartbeatAnswer, JoinAnswer, JoinRequest, OffsetEntry, SyncAnswer
from holdfast.group.user_data import LeaderNote, encode_leader_note
from holdfast.model import (
    Assignment,
    ClusterView,
    ErrorCode,
    JoinedMember,
    Membership,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)
from holdfast.model.consumer_protocol import decode_subscription, encode_assignment

E = TypeVar("E")


def tps(*names: str) -> frozenset[TopicPartition]:
    """`tps("orders-0", "orders-1")`."""
    return frozenset(TopicPartition(topic, int(number)) for topic, number in (name.rsplit("-", 1) for name in names))


class PlainAssignor:
    """An assignor that sends just its generation, as cooperative-sticky does."""

    def __init__(
        self, name: str = "cooperative-sticky", protocols: tuple[RebalanceProtocol, ...] | None = None
    ) -> None:
        self.name = name
        self.version = 0
        self.protocols = protocols or (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> bytes | None:
        return generation.to_bytes(4, "big", signed=True)

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        return {member: Assignment() for member in members}

    def on_assignment(self, assignment: Assignment, membership: Membership) -> None:
        return None


@dataclass
class Driven:
    """One member and everything it asked for so far."""

    protocol: RebalanceProtocol = RebalanceProtocol.COOPERATIVE
    settings: dict[str, object] = field(default_factory=dict)
    now: float = 0.0
    last: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        config = MemberConfig(
            group="g",
            assignors=(PlainAssignor(),),
            protocol=self.protocol,
            name="m",
            **self.settings,  # type: ignore[arg-type]
        )
        self.state = MemberState(config=config)
        self.history: list[Effect] = []

    def feed(self, event: Event, *, after_ms: float = 0.0) -> Driven:
        self.now += after_ms
        self.state, self.last = strict_step(self.state, event, self.now)
        self.history.extend(self.last)
        return self

    def tick_until(self, end: float, event: Event) -> Driven:
        """Feed this event, and then every tick that is wanted until then."""
        self.feed(event)
        while (deadline := self.deadline) is not None and deadline < end:
            self.feed(Tick(), after_ms=deadline - self.now)
        self.now = end
        return self

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def deadline(self) -> float | None:
        return next_deadline(self.state)

    def effects(self, kind: type[E]) -> list[E]:
        """What the last event asked for, of one kind."""
        return [effect for effect in self.last if isinstance(effect, kind)]

    def requests(self, kind: type[E]) -> list[E]:
        return [effect.request for effect in self.effects(Send) if isinstance(effect.request, kind)]

    def calls(self) -> list[object]:
        return [call for effect in self.effects(Notify) for call in effect.calls]

    def steps(self) -> list[str]:
        return [effect.record.step for effect in self.effects(Emit)]

    def joins(self) -> list[Subscription]:
        """The subscriptions of the joins just sent."""
        return [decode_subscription(request.protocols[0][1]) for request in self.requests(JoinRequest)]

    # -- whole stretches of a member's life

    def subscribe(self, *topics: str) -> Driven:
        return self.feed(Subscribe(frozenset(topics or ("orders",))))

    def answer_join(
        self,
        *,
        generation: int = 1,
        leader: str = "other",
        member_id: str = "m-1",
        members: tuple[str, ...] = (),
        protocol: str = "cooperative-sticky",
    ) -> Driven:
        answer = JoinAnswer(
            membership=Membership(member_id, generation),
            protocol_type="consumer",
            protocol=protocol,
            leader=leader,
            members=tuple(JoinedMember(member_id=name) for name in members),
        )
        return self.feed(JoinAnswered(self.pending, answer))

    def refuse_join(self, error: ErrorCode, member_id: str = "") -> Driven:
        return self.feed(JoinAnswered(self.pending, JoinAnswer(error=error, membership=Membership(member_id))))

    def answer_sync(self, *names: str, note: LeaderNote | None = None) -> Driven:
        data = encode_assignment(
            Assignment(partitions=tps(*names), user_data=encode_leader_note(note) if note else None)
        )
        return self.feed(SyncAnswered(self.pending, SyncAnswer(assignment=data)))

    def refuse_sync(self, error: ErrorCode) -> Driven:
        return self.feed(SyncAnswered(self.pending, SyncAnswer(error=error)))

    def answer_heartbeat(self, error: ErrorCode = ErrorCode.NONE) -> Driven:
        assert self.state.requests.heartbeat is not None, "no heartbeat is under way"
        return self.feed(HeartbeatAnswered(self.state.requests.heartbeat, HeartbeatAnswer(error=error)))

    def notified(self, **positions: int) -> Driven:
        """The listener returns; positions as orders_0=17."""
        final = {
            TopicPartition(topic, int(number)): OffsetEntry(offset)
            for (topic, number), offset in ((name.rsplit("_", 1), offset) for name, offset in positions.items())
        }
        return self.feed(Notified(self.pending, final))

    def planned(self, **counts: int) -> Driven:
        (plan,) = self.effects(Plan)
        return self.feed(Planned(plan.serial, {member.member_id: b"" for member in plan.members}, counts))

    def stable_with(self, *names: str, generation: int = 1, note: LeaderNote | None = None) -> Driven:
        """From the start to Stable, owning these."""
        self.subscribe(*({name.rsplit("-", 1)[0] for name in names} or {"orders"}))
        self.answer_join(generation=generation).answer_sync(*names, note=note or LeaderNote()).notified()
        assert self.phase is Phase.STABLE
        return self

    @property
    def pending(self) -> int:
        assert self.state.requests.pending is not None, f"nothing is awaited in {self.phase}"
        return self.state.requests.pending


__all__ = ["Assigned", "Driven", "Lost", "OnAssignment", "PlainAssignor", "Revoked", "tps"]
