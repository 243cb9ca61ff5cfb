"""A coordinator, a clock that tests move, and the log that its records go to: what the tests here speak to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.group.coordinator import (
    Coordinator,
    CoordinatorSettings,
    Effect,
    Emit,
    Group,
    Persist,
    Record,
    Reply,
    State,
)
from holdfast.group.messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Leaver,
    LeaveRequest,
    OffsetEntry,
    SyncAnswer,
    SyncRequest,
)
from holdfast.model import ErrorCode, Membership, Subscription, TopicPartition, TraceRecord
from holdfast.model.consumer_protocol import encode_subscription

A = TypeVar("A")
OUTSIDE = Membership()
T0 = TopicPartition("orders", 0)
T1 = TopicPartition("orders", 1)


def subscription(*topics: str, **more: Any) -> bytes:
    return encode_subscription(Subscription(topics=topics or ("orders",), **more))


class World:
    """One coordinator and one group, unless a call names another. Requests get tokens 1, 2, 3 …"""

    def __init__(self, *, now: float = 1_000_000.0, log: list[Record] | None = None, **settings: Any) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0.0)
        self.settings = CoordinatorSettings(**settings)
        self.now = now
        self.log: list[Record] = log if log is not None else []
        self.answers: dict[int, Any] = {}
        self.order: list[int] = []
        """Tokens in the order of their answers."""
        self.trace: list[TraceRecord] = []
        self.ids = 0
        self.tokens = 0
        self.coordinator = Coordinator.replay(
            self.log, self.now, settings=self.settings, new_member_id=self.new_member_id
        )

    def new_member_id(self, name: str) -> str:
        self.ids += 1
        return f"{name}-{self.ids}"

    def restarted(self, **settings: Any) -> World:
        """A new coordinator on the same log: what a crash leaves."""
        every = {name: getattr(self.settings, name) for name in CoordinatorSettings.__dataclass_fields__}
        after = World(now=self.now, log=list(self.log), **{**every, **settings})
        after.ids = self.ids
        return after

    # Driving

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(records):
                    self.log += records
                case Reply(token, answer):
                    assert token not in self.answers, f"token {token} was answered twice"
                    assert isinstance(token, int)
                    self.answers[token] = answer
                    self.order.append(token)
                case Emit(record):
                    self.trace.append(record)

    def send(self, request: Any) -> int:
        self.tokens += 1
        self.perform(self.coordinator.handle(self.tokens, request, self.now))
        return self.tokens

    def ask(self, request: Any, answer_type: type[A]) -> A:
        """Send something that is answered at once."""
        answer = self.answers[self.send(request)]
        assert isinstance(answer, answer_type)
        return answer

    def pass_time(self, ms: float) -> None:
        """Let time pass, ticking whenever the coordinator asked for it."""
        until = self.now + ms
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.perform(self.coordinator.tick(self.now))
        self.now = until

    def disconnect(self, token: int) -> None:
        self.perform(self.coordinator.disconnected(token, self.now))

    # Requests

    def join(self, member_id: str = "", *, group: str = "g", **more: Any) -> int:
        more.setdefault("protocols", (("range", subscription()),))
        more.setdefault("requires_known_member_id", False)
        more.setdefault("client_id", "c")
        return self.send(JoinRequest(group=group, membership=Membership(member_id), **more))

    def joined(self, token: int) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def join_error(self, member_id: str = "", **more: Any) -> ErrorCode:
        return self.joined(self.join(member_id, **more)).error

    def sync(self, who: Membership, plan: dict[str, bytes] | None = None, **more: Any) -> int:
        more.setdefault("protocol_type", None)
        return self.send(SyncRequest(group="g", membership=who, assignments=plan or {}, **more))

    def synced(self, token: int) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def sync_error(self, who: Membership, **more: Any) -> ErrorCode:
        return self.synced(self.sync(who, **more)).error

    def beat(self, who: Membership, **more: Any) -> ErrorCode:
        return self.ask(HeartbeatRequest(group="g", membership=who, **more), HeartbeatAnswer).error

    def leave(self, *member_ids: str, reason: str | None = None) -> list[ErrorCode]:
        return self.leave_as(*(Leaver(member_id=each, reason=reason) for each in member_ids))

    def leave_as(self, *leavers: Leaver) -> list[ErrorCode]:
        answer = self.ask(LeaveRequest(group="g", members=leavers), LeaveAnswer)
        assert [leaver for leaver, _ in answer.members] == list(leavers)
        return [error for _, error in answer.members]

    def commit(
        self, who: Membership = OUTSIDE, offsets: dict[TopicPartition, int] | None = None, **more: Any
    ) -> ErrorCode:
        entries = {partition: OffsetEntry(offset) for partition, offset in (offsets or {T0: 1}).items()}
        more.setdefault("group", "g")
        return self.ask(CommitRequest(membership=who, offsets=entries, **more), CommitAnswer).first_error

    def committed(self, group: str = "g") -> dict[TopicPartition, int]:
        answer = self.answers[self.send(FetchOffsetsRequest(group=group))]
        return {partition: entry.offset for partition, entry in answer.offsets.items()}

    # Whole scenes

    def stable(self, *names: str, **more: Any) -> list[Membership]:
        """A stable group of these members (by client id; "~x" is the static member x), led by the first."""
        tokens = [self.join(**member_named(name), **more) for name in names]
        ids = [self.members_by_name()[name] for name in names]
        for name, member_id in zip(names[:-1], ids[:-1], strict=True):
            if len(names) > 1:
                tokens.append(self.join(member_id, **member_named(name), **more))
        everybody = [Membership(each, self.group.roster.generation) for each in ids]
        self.plan(everybody)
        assert self.state is State.STABLE, self.state
        assert all(token in self.answers for token in tokens)
        return everybody

    def plan(self, everybody: list[Membership]) -> None:
        """All sync, the leader with a plan that gives everybody its own name."""
        for who in everybody:
            leads = who.member_id == self.group.roster.leader
            self.sync(who, {each.member_id: each.member_id.encode() for each in everybody} if leads else None)

    def members_by_name(self) -> dict[str, str]:
        members = self.group.roster.members.values()
        return {f"~{m.instance_id}" if m.instance_id else m.client_id: m.member_id for m in members}

    # Looking

    @property
    def group(self) -> Group:
        group = self.coordinator.group("g")
        assert group is not None
        return group

    @property
    def state(self) -> State:
        return State(self.coordinator.describe("g").state)

    @property
    def generation(self) -> int:
        return self.coordinator.describe("g").generation

    @property
    def member_ids(self) -> list[str]:
        return [member.member_id for member in self.coordinator.describe("g").members]

    def steps(self, name: str) -> list[TraceRecord]:
        return [record for record in self.trace if record.step == name]

    def causes(self) -> list[str]:
        return [record.cause or "" for record in self.steps("rebalance-started")]


def member_named(name: str) -> dict[str, Any]:
    if name.startswith("~"):
        return {"instance_id": name[1:], "client_id": name[1:]}
    return {"client_id": name}
