"""The same scenes, played before our coordinator and before a real Kafka: every answer must be the same.

A scene asks one side; what it hears is written down with member ids replaced by names in the order in which they came
up. Then the two transcripts are compared.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from coordinator_world import World, subscription

from holdfast.group.messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
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
from holdfast.model import ErrorCode, Membership, TopicPartition
from holdfast.testing.kafka import RealKafka
from holdfast.wire.api import Api
from holdfast.wire.codec import decode_response, encode_request
from holdfast.wire.groups import answer_of, api_of, body_of
from patience import PATIENCE_S

HERE = TopicPartition("like-kafka", 0)
"""A topic that both sides know: Kafka takes no commits for others."""


class Side(Protocol):
    """Somebody who coordinates a group."""

    group: str

    def send(self, request: Any) -> Any: ...

    def answer(self, sent: Any) -> Any: ...

    def await_state(self, state: str, members: int) -> None: ...


class Ours:
    def __init__(self) -> None:
        self.world = World()
        self.group = "g"

    def send(self, request: Any) -> int:
        return self.world.send(request)

    def answer(self, sent: int) -> Any:
        self.await_that(lambda: sent in self.world.answers)
        return self.world.answers[sent]

    def await_state(self, state: str, members: int) -> None:
        describe = self.world.coordinator.describe
        self.await_that(lambda: (describe("g").state, len(describe("g").members)) == (state, members))

    def await_that(self, holds: Callable[[], bool]) -> None:
        """Time passes from deadline to deadline."""
        until = self.world.now + PATIENCE_S * 1_000
        while not holds():
            deadline = self.world.coordinator.next_deadline()
            assert deadline is not None
            assert deadline <= until
            self.world.pass_time(deadline - self.world.now)


@dataclass
class Call:
    connection: socket.socket
    api: Api
    version: int
    request: Any = None

    def body(self) -> Any:
        with self.connection:
            size = int.from_bytes(self.take(4), "big")
            return decode_response(self.api, self.version, self.take(size)).body

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.connection.recv(count - len(data))
            assert more, "Kafka closed the connection"
            data += more
        return data


class Kafkas:
    """A connection per request: a parked join blocks its connection."""

    def __init__(self, kafka: RealKafka) -> None:
        host, port = kafka.bootstrap.split(":")
        self.address = host, int(port)
        self.group = f"like-{uuid.uuid4()}"
        self.calls: list[Call] = []

    def send(self, request: Any) -> Call:
        api = api_of(request)
        version = version_of(request)
        return self.post(api, version, body_of(request, version), request)

    def post(self, api: Api, version: int, body: Any, request: Any = None) -> Call:
        connection = socket.create_connection(self.address, timeout=PATIENCE_S)
        connection.sendall(encode_request(api, version, 1, "c", body))
        self.calls.append(Call(connection, api, version, request))
        return self.calls[-1]

    def answer(self, sent: Call) -> Any:
        return answer_of(sent.request, sent.version, sent.body())

    def await_state(self, state: str, members: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            body = {"groups": [self.group], "include_authorized_operations": False}
            (group,) = self.post(Api.DESCRIBE_GROUPS, 5, body).body().groups
            seen = group.group_state, len(group.members)
            if seen == (state, members):
                return
            assert time.monotonic() < until, f"Kafka's group is {seen}, awaited {(state, members)}"
            time.sleep(0.01)

    def close(self) -> None:
        for call in self.calls:
            call.connection.close()


def version_of(request: Any) -> int:
    """The version in which a request means what its flags say."""
    if isinstance(request, CommitRequest):
        return 8  # 9 answers GROUP_ID_NOT_FOUND for a group that is not there, which Java's member does not expect
    if isinstance(request, JoinRequest) and not request.supports_skipping_assignment:
        return 8
    if isinstance(request, JoinRequest) and not request.requires_known_member_id and request.instance_id is None:
        return 3
    return api_of(request).highest


@dataclass
class Stage:
    """Where a scene is played: short words for requests, and the transcript of the answers."""

    side: Side
    heard: list[Any] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def note(self, answer: Any) -> Any:
        self.heard.append(plain(answer, self.name))
        return answer

    def name(self, member_id: str) -> str:
        return self.names.setdefault(member_id, f"m{len(self.names)}") if member_id else ""

    def hear(self, sent: Any) -> Any:
        return self.note(self.side.answer(sent))

    def ask(self, request: Any) -> Any:
        return self.hear(self.side.send(request))

    def await_state(self, state: str, members: int) -> None:
        self.side.await_state(state, members)

    def joining(self, member_id: str = "", **more: Any) -> Any:
        more.setdefault("protocols", (("range", subscription()),))
        if more.get("instance_id") is None and not member_id:
            more.setdefault("requires_known_member_id", False)
        return self.side.send(JoinRequest(group=self.side.group, membership=Membership(member_id), **more))

    def join(self, member_id: str = "", **more: Any) -> Membership:
        answer = self.hear(self.joining(member_id, **more))
        membership = answer.membership
        assert isinstance(membership, Membership)
        return membership

    def syncing(self, who: Membership, plan: dict[str, bytes] | None = None, **more: Any) -> Any:
        more.setdefault("protocol", "range")
        return self.side.send(SyncRequest(group=self.side.group, membership=who, assignments=plan or {}, **more))

    def sync(self, who: Membership, plan: dict[str, bytes] | None = None, **more: Any) -> None:
        self.hear(self.syncing(who, plan, **more))

    def beat(self, who: Membership, **more: Any) -> None:
        self.ask(HeartbeatRequest(group=self.side.group, membership=who, **more))

    def commit(self, who: Membership | None = None, *, metadata: str = "", **more: Any) -> None:
        entries = {HERE: OffsetEntry(7, metadata=metadata)}
        self.ask(CommitRequest(group=self.side.group, membership=who or Membership(), offsets=entries, **more))

    def committed(self) -> None:
        self.ask(FetchOffsetsRequest(group=self.side.group, partitions=(HERE,)))

    def leave(self, *leavers: Leaver) -> None:
        self.ask(LeaveRequest(group=self.side.group, members=leavers))

    def everything(self, who: Membership, **more: Any) -> None:
        """All that a member says which can't change the group when it is refused."""
        self.beat(who, **more)
        self.commit(who, **more)
        self.sync(who, **more)

    def two(self, **more: Any) -> tuple[Membership, Membership]:
        """A stable group of two dynamic members."""
        a = self.join(**more)
        self.sync(a, {a.member_id: b"all"})
        second = self.joining(**more)
        self.await_state("PreparingRebalance", 2)
        a = self.join(a.member_id, **more)
        b = self.hear(second).membership
        self.plan(a, b)
        return a, b

    def plan(self, leader: Membership, follower: Membership, **more: Any) -> None:
        waiting = self.syncing(follower, **more)
        self.sync(leader, {leader.member_id: b"one", follower.member_id: b"two"})
        self.hear(waiting)

    def with_static(self) -> tuple[Membership, Membership]:
        """A stable group of a dynamic leader and the static member x."""
        a = self.join()
        self.sync(a, {a.member_id: b"all"})
        second = self.joining(instance_id="x")
        self.await_state("PreparingRebalance", 2)
        a = self.join(a.member_id)
        x = self.hear(second).membership
        self.plan(a, x, instance_id="x")
        return a, x


def plain(answer: Any, name: Callable[[str], str]) -> Any:
    """An answer as both sides can say it. Of refusals only the error counts, and the id that comes with it.

    Members in the leader's answer stay nameless: their order is a hash map's with Kafka, and names go by order.
    """
    match answer:
        case JoinAnswer():
            who = name(answer.membership.member_id) if answer.error is not ErrorCode.UNKNOWN_MEMBER_ID else ""
            if answer.error is not ErrorCode.NONE:
                return "join", answer.error.name, who
            members = sorted((each.instance_id or "", each.metadata) for each in answer.members)
            how = answer.protocol, name(answer.leader), answer.skip_assignment
            return "join", who, answer.membership.generation, how, members
        case SyncAnswer():
            return "sync", answer.error.name, answer.assignment
        case CommitAnswer():
            return "commit", {str(partition): error.name for partition, error in answer.errors.items()}
        case FetchOffsetsAnswer():
            return "offsets", answer.error.name, {str(each): entry for each, entry in answer.offsets.items()}
        case LeaveAnswer():
            return "leave", answer.error.name, [error.name for _, error in answer.members]
    return type(answer).__name__, answer.error.name


# The scenes


def a_group_that_is_not_there(stage: Stage) -> None:
    stage.everything(Membership("who", 3))
    stage.leave(Leaver(member_id="who"), Leaver(instance_id="x"))
    stage.join("who")
    stage.committed()


def asking_for_an_id(stage: Stage) -> None:
    first = stage.join(requires_known_member_id=True)
    stage.beat(first)
    a = stage.join(first.member_id)
    stage.sync(a, {a.member_id: b"all"})
    pending = stage.join(requires_known_member_id=True)
    stage.leave(Leaver(member_id=pending.member_id))
    stage.join(pending.member_id)


def each_state_to_a_member(stage: Stage) -> None:
    a = stage.join()
    stage.everything(Membership(a.member_id, a.generation - 1))
    stage.beat(a)
    stage.commit(a)
    stage.commit()
    stage.sync(a, {a.member_id: b"all"})
    stage.everything(a)
    stage.everything(Membership(a.member_id, a.generation + 1))
    stage.everything(Membership("who", a.generation))
    stage.commit()
    second = stage.joining()
    stage.await_state("PreparingRebalance", 2)
    stage.everything(a)
    stage.everything(Membership(a.member_id, a.generation - 1))
    stage.everything(Membership("who", a.generation))
    stage.commit()
    stage.join(a.member_id)
    stage.hear(second)
    stage.committed()


def joining_again(stage: Stage) -> None:
    a, b = stage.two()
    stage.join(b.member_id)
    stage.sync(b)
    changed = stage.joining(b.member_id, protocols=(("range", subscription("orders", "more")),))
    stage.await_state("PreparingRebalance", 2)
    stage.beat(a)
    stage.join(a.member_id)
    b = stage.hear(changed).membership
    stage.join(a.member_id)
    stage.plan(Membership(a.member_id, b.generation), b)
    asked = stage.joining(a.member_id)
    stage.await_state("PreparingRebalance", 2)
    stage.join(b.member_id, protocols=(("range", subscription("orders", "more")),))
    stage.hear(asked)


def a_new_member_while_completing(stage: Stage) -> None:
    a, b = stage.two()
    again = stage.joining(a.member_id)
    stage.await_state("PreparingRebalance", 2)
    b = stage.join(b.member_id)
    a = stage.hear(again).membership
    waiting = stage.syncing(b)
    stage.await_state("CompletingRebalance", 2)
    stage.beat(b)
    third = stage.joining()
    stage.await_state("PreparingRebalance", 3)
    stage.hear(waiting)
    stage.beat(a)
    again = [stage.joining(a.member_id), stage.joining(b.member_id)]
    for sent in (*again, third):
        stage.hear(sent)


def left_out_of_the_plan(stage: Stage) -> None:
    a = stage.join()
    stage.sync(a, {"stranger": b"all"}, protocol="range")
    stage.sync(a)


def protocols_that_do_not_fit(stage: Stage) -> None:
    stage.join(protocols=())
    a = stage.join(protocols=(("range", b"r"), ("sticky", b"s")))
    stage.sync(a, {}, protocol="sticky")
    stage.sync(a, {}, protocol_type="connect")
    stage.sync(a, {a.member_id: b"all"})
    stage.join(protocols=(("other", b""),))
    stage.join(protocol_type="connect")
    stage.join(a.member_id, protocols=(("other", b""),))
    second = stage.joining(protocols=(("sticky", b"s"), ("mine", b""), ("range", b"r")))
    stage.await_state("PreparingRebalance", 2)
    third = stage.joining(protocols=(("sticky", b"s"), ("range", b"r")))
    stage.await_state("PreparingRebalance", 3)
    stage.join(a.member_id, protocols=(("range", b"r"), ("sticky", b"s")))
    stage.hear(second)
    stage.hear(third)


def timeouts_out_of_bounds(stage: Stage) -> None:
    stage.join(session_timeout_ms=5_999)
    stage.join(session_timeout_ms=1_800_001)
    stage.join(session_timeout_ms=6_000)


def leaving(stage: Stage) -> None:
    a, b = stage.two()
    stage.commit(a)
    stage.leave(Leaver(member_id="who"), Leaver(member_id=b.member_id, reason="tired"), Leaver(member_id=b.member_id))
    stage.everything(b)
    stage.beat(a)
    a = stage.join(a.member_id)
    stage.leave(Leaver(member_id=a.member_id))
    stage.await_state("Empty", 0)
    stage.everything(a)
    stage.join(a.member_id)
    stage.commit()
    stage.committed()
    stage.join()


def a_static_member_returns(stage: Stage) -> None:
    _, x = stage.with_static()
    new = stage.join(instance_id="x")
    stage.sync(new, instance_id="x")
    stage.everything(new, instance_id="x")
    stage.everything(x, instance_id="x")
    stage.everything(x)
    stage.join(x.member_id, instance_id="x")
    stage.leave(Leaver(member_id=x.member_id, instance_id="x"), Leaver(instance_id="nobody"))
    stage.beat(new, instance_id="nobody")
    stage.leave(Leaver(instance_id="x"))
    stage.beat(new, instance_id="x")


def a_static_leader_returns(stage: Stage) -> None:
    old = stage.join(instance_id="x")
    stage.sync(old, {old.member_id: b"all"}, instance_id="x")
    new = stage.join(instance_id="x")
    stage.sync(new, instance_id="x")
    stage.join(instance_id="x", supports_skipping_assignment=False)


def a_static_member_is_replaced_while_it_waits(stage: Stage) -> None:
    a, x = stage.with_static()
    old = stage.joining(x.member_id, instance_id="x", protocols=(("range", subscription("orders", "more")),))
    stage.await_state("PreparingRebalance", 2)
    new = stage.joining(instance_id="x")
    stage.hear(old)
    a = stage.join(a.member_id)
    x = stage.hear(new).membership
    waiting = stage.syncing(x, instance_id="x")
    stage.beat(x, instance_id="x")
    newest = stage.joining(instance_id="x")
    stage.await_state("PreparingRebalance", 2)
    stage.hear(waiting)
    stage.beat(a)
    stage.join(a.member_id)
    stage.hear(newest)


def commits_from_outside(stage: Stage) -> None:
    stage.commit()
    stage.commit(metadata="x" * 4_097)
    stage.commit(metadata="x" * 4_096)
    stage.committed()
    stage.commit(Membership("who", 1))
    a = stage.join()
    stage.commit()
    stage.committed()
    stage.leave(Leaver(member_id=a.member_id))
    stage.commit()


QUICK: dict[str, Any] = {"rebalance_timeout_ms": 400}
"""Short, because Kafka's time is real."""


def late_for_the_join_barrier(stage: Stage) -> None:
    a = stage.join(**QUICK)
    stage.sync(a, {a.member_id: b"all"})
    b = stage.join(**QUICK)
    stage.everything(a)
    stage.sync(b, {b.member_id: b"all"})


def late_for_the_sync_barrier(stage: Stage) -> None:
    a, b = stage.two()
    again = stage.joining(a.member_id, **QUICK)
    stage.await_state("PreparingRebalance", 2)
    b = stage.join(b.member_id, **QUICK)
    a = stage.hear(again).membership
    stage.sync(a, {a.member_id: b"one", b.member_id: b"two"})
    stage.await_state("PreparingRebalance", 1)
    stage.beat(a)
    stage.everything(b)
    a = stage.join(a.member_id, **QUICK)


def static_members_are_not_late(stage: Stage) -> None:
    a = stage.join(**QUICK)
    stage.sync(a, {a.member_id: b"all"})
    second = stage.joining(instance_id="x", **QUICK)
    stage.await_state("PreparingRebalance", 2)
    a = stage.join(a.member_id, **QUICK)
    x = stage.hear(second).membership
    stage.plan(a, x, instance_id="x")
    a = stage.join(a.member_id, **QUICK)
    stage.beat(x, instance_id="x")


SCENES = [
    a_group_that_is_not_there,
    asking_for_an_id,
    each_state_to_a_member,
    joining_again,
    a_new_member_while_completing,
    left_out_of_the_plan,
    protocols_that_do_not_fit,
    timeouts_out_of_bounds,
    leaving,
    a_static_member_returns,
    a_static_leader_returns,
    a_static_member_is_replaced_while_it_waits,
    commits_from_outside,
    late_for_the_join_barrier,
    late_for_the_sync_barrier,
    static_members_are_not_late,
]


@pytest.fixture
def kafkas(kafka: RealKafka) -> Iterator[Kafkas]:
    if HERE.topic not in kafka.admin.list_topics(timeout=PATIENCE_S).topics:
        kafka.create_topic(HERE.topic, partitions=1)
    side = Kafkas(kafka)
    yield side
    side.close()


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_kafka_answers_the_same(scene: Callable[[Stage], None], kafkas: Kafkas) -> None:
    ours, theirs = Stage(Ours()), Stage(kafkas)
    scene(ours)
    scene(theirs)
    assert ours.heard == theirs.heard
