"""From eager to cooperative and back, with live members; and what a member that skipped a step is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
from holdfast.client.config.settings import parse
from holdfast.client.operate import migration
from holdfast.client.operate.migration import Assessment, assess, missed_step
from holdfast.group.messages import JoinAnswer, JoinRequest, LeaveAnswer, LeaveRequest
from holdfast.group.user_data import MemberNote, append_note
from holdfast.model import ErrorCode, HoldfastError, Membership, RebalanceProtocol, Subscription, TopicPartition
from holdfast.net.config import client_config
from holdfast.observe.snapshot import DescribedGroup, DescribedMember
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

RANGE, BOTH, COOPERATIVE = ("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)
Lists = tuple[str, ...] | None


def member(number: int, lists: Lists, *, owns: bool = False) -> DescribedMember:
    data = None if lists is None else append_note(None, MemberNote(assignors=lists), 3)
    owned = frozenset({TopicPartition("orders", number)}) if owns else frozenset()
    subscription = Subscription(topics=("orders",), owned=owned, user_data=data)
    return DescribedMember(
        member_id=f"m{number}", instance_id=None, client_id=f"c{number}", host="here", subscription=subscription
    )


def group(protocol: str, *lists: Lists, **more: Any) -> DescribedGroup:
    return DescribedGroup(
        group="billing",
        state="Stable" if lists else "Empty",
        protocol_type="consumer",
        protocol=protocol,
        coordinator=("here", 1),
        members=tuple(member(number, one, **more) for number, one in enumerate(lists)),
    )


def judged(protocol: str, *lists: Lists, to: str = "cooperative-sticky", **more: Any) -> Assessment:
    asked = more.pop("asked", {})
    return assess(group(protocol, *lists), to, asked, **more)


# -- where a group stands


@pytest.mark.parametrize(
    ("protocol", "lists", "stage", "bounce", "following", "safe"),
    [
        ("range", (RANGE, RANGE), "before-first", 0, 1, True),
        ("range", (RANGE, BOTH), "in-first", 1, 2, False),
        ("cooperative-sticky", (BOTH, BOTH), "after-first", 1, 2, True),
        ("cooperative-sticky", (BOTH, COOPERATIVE), "in-second", 2, None, True),
        ("cooperative-sticky", (COOPERATIVE, COOPERATIVE), "done", 2, None, True),
        ("", (), "empty", 0, None, True),
    ],
)
def test_the_way_up_step_by_step(
    protocol: str, lists: tuple[Lists, ...], stage: str, bounce: int, following: int | None, safe: bool
) -> None:
    found = judged(protocol, *lists)
    assert (found.stage, found.bounce, found.next_bounce, found.safe) == (stage, bounce, following, safe)


@pytest.mark.parametrize(
    ("protocol", "lists", "stage", "safe"),
    [
        ("cooperative-sticky", (COOPERATIVE, COOPERATIVE), "before-first", True),
        ("cooperative-sticky", (COOPERATIVE, BOTH), "in-first", False),
        ("cooperative-sticky", (BOTH, BOTH), "after-first", True),
        ("range", (BOTH, RANGE), "in-second", True),
        ("range", (RANGE, RANGE), "done", True),
    ],
)
def test_the_way_down_is_the_same_with_the_roles_exchanged(
    protocol: str, lists: tuple[Lists, ...], stage: str, safe: bool
) -> None:
    found = judged(protocol, *lists, to="range")
    assert (found.stage, found.safe) == (stage, safe)


def test_in_the_first_bounce_the_members_that_block_are_named_and_what_to_do_with_them() -> None:
    found = judged("range", RANGE, BOTH, RANGE)
    assert [(one.member.member_id, one.why) for one in found.blocking] == [
        ("m0", "lists range and not cooperative-sticky"),
        ("m2", "lists range and not cooperative-sticky"),
    ]
    assert "partition.assignment.strategy=cooperative-sticky,range" in found.do


def test_members_that_say_nothing_are_judged_by_what_the_coordinator_says_of_all() -> None:
    not_all = judged("range", None, BOTH, asked={"cooperative-sticky": False})
    assert (not_all.stage, not_all.safe) == ("in-first", False)
    assert [one.member.member_id for one in not_all.blocking] == ["m0"], "the other one said that it lists both"
    everybody = judged("range", None, BOTH, asked={"cooperative-sticky": True})
    assert (everybody.stage, everybody.safe) == ("after-first", True)
    unknown = judged("range", None, BOTH)
    assert (unknown.stage, unknown.safe) == ("in-first", False), "what nobody can tell is not safe"
    foreign = judged("range", None, None, asked={"cooperative-sticky": False})
    assert (foreign.stage, foreign.safe, foreign.unsaid) == ("before-first", True, ("m0", "m1"))
    assert "If it has begun already, it is not finished" in foreign.do


def test_a_question_about_one_bounce_is_answered_for_that_one() -> None:
    assert not judged("range", RANGE, RANGE, bounce=2).safe
    assert judged("range", RANGE, BOTH, bounce=1).safe


def test_the_silent_danger_is_a_member_that_keeps_its_partitions_in_an_eager_group() -> None:
    """KIP-429: an eager leader takes claimed partitions for free. Nothing fails; two members process one partition."""
    described = group("range", RANGE, RANGE, owns=True)
    found = assess(described, "cooperative-sticky", {})
    assert not found.safe
    assert {one.member.member_id for one in found.blocking} == {"m0", "m1"}
    assert "two members may process one partition" in found.blocking[0].why
    assert assess(group("cooperative-sticky", COOPERATIVE, owns=True), "range", {}).blocking == ()


# -- what a refused member is told

REFUSED = HoldfastError("INCONSISTENT_GROUP_PROTOCOL", "no.", "look.")


def test_a_member_is_told_which_step_was_missed() -> None:
    up = missed_step(REFUSED, group("range", None, None), COOPERATIVE)
    assert "the group runs range (c0, c1), and this member lists only cooperative-sticky" in up.what
    assert "first bounce of the migration was missed" in up.what
    assert "cooperative-sticky,range" in up.do and "holdfast preflight billing --to cooperative-sticky" in up.do
    down = missed_step(REFUSED, group("cooperative-sticky", None), RANGE)
    assert "from before the migration, or on the way back the first bounce was missed" in down.what
    assert "--to range" in down.do
    across = missed_step(REFUSED, group("roundrobin", None), RANGE)
    assert "in which everybody lists both, was missed" in across.what


def test_where_the_group_does_not_show_why_the_refusal_stays_as_it_was() -> None:
    assert missed_step(REFUSED, group(""), COOPERATIVE) is REFUSED
    assert missed_step(REFUSED, group("cooperative-sticky", None), COOPERATIVE) is REFUSED


class Admin:
    """Describes a group as it is told to, one answer after another, the last one for ever."""

    def __init__(self, *answers: DescribedGroup) -> None:
        self._answers = list(answers)

    async def describe_group(self, _group: str) -> DescribedGroup:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def settled(*answers: DescribedGroup) -> DescribedGroup:
    admin: Any = Admin(*answers)
    return asyncio.run(migration.settled(admin, "billing"))


def test_a_group_in_the_middle_of_a_round_is_looked_at_again_until_it_is_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migration, "LOOK_EVERY_S", 0.0)
    busy, quiet = replace(group("", None), state="PreparingRebalance"), group("range", None)
    assert settled(busy, busy, quiet) is quiet
    monkeypatch.setattr(migration, "SETTLE_S", 0.0)
    with pytest.raises(HoldfastError, match="GROUP_DOES_NOT_SETTLE"):
        settled(busy)


def test_groups_that_have_no_assignor_to_migrate_are_told_so() -> None:
    with pytest.raises(HoldfastError, match="GROUP_NEEDS_NO_MIGRATION"):
        settled(replace(group("uniform", None), kind="consumer"))
    with pytest.raises(HoldfastError, match="GROUP_IS_NO_CONSUMER_GROUP"):
        settled(replace(group("default", None), protocol_type="connect"))


class Coordinator:
    """A cluster of one connection, which answers a join as it is told to."""

    def __init__(self, version: int, error: ErrorCode, member_id: str = "") -> None:
        self.config = client_config({"bootstrap.servers": "h:1"})
        self.asked: list[Any] = []
        self._version, self._answer = version, JoinAnswer(error=error, membership=Membership(member_id))

    async def coordinator(self, _group: str) -> tuple[str, int]:
        return "h", 1

    async def connection(self, _address: object) -> Coordinator:
        return self

    def version(self, _api: Api) -> int:
        return self._version

    async def ask_coordinator(self, request: Any, *, timeout_s: float) -> Any:
        self.asked.append(request)
        return self._answer if isinstance(request, JoinRequest) else LeaveAnswer()


@pytest.mark.parametrize(
    ("version", "error", "known", "requests"),
    [
        (9, ErrorCode.MEMBER_ID_REQUIRED, True, [JoinRequest, LeaveRequest]),
        (9, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, False, [JoinRequest]),
        (9, ErrorCode.GROUP_AUTHORIZATION_FAILED, None, [JoinRequest]),
        (3, ErrorCode.MEMBER_ID_REQUIRED, None, []),
    ],
    ids=["everybody does", "somebody does not", "not allowed to ask", "too old to be asked without joining"],
)
def test_the_coordinator_is_asked_by_a_join_that_never_becomes_one(
    version: int, error: ErrorCode, known: bool | None, requests: list[type]
) -> None:
    cluster: Any = Coordinator(version, error, "given-id" if error is ErrorCode.MEMBER_ID_REQUIRED else "")
    found = asyncio.run(migration.everybody_lists(cluster, "billing", "range"))
    assert found is known
    assert [type(request) for request in cluster.asked] == requests
    if len(requests) == 2:
        assert [leaver.member_id for leaver in cluster.asked[1].members] == ["given-id"], "the id is given back"


def test_a_refusal_is_not_held_up_by_a_group_that_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __init__(self, _cluster: object) -> None:
            """Of any cluster."""

        async def describe_group(self, _group: str) -> DescribedGroup:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(migration, "GroupAdmin", Silent)
    monkeypatch.setattr(migration, "EXPLAIN_S", 0.01)
    cluster: Any = None
    told = asyncio.run(migration.explained(REFUSED, cluster, "billing", COOPERATIVE))
    assert told is REFUSED


def test_a_list_with_an_eager_assignor_in_it_speaks_eager() -> None:
    def protocol(strategy: str) -> RebalanceProtocol:
        given = {"group.id": "g", "bootstrap.servers": "h:1", "partition.assignment.strategy": strategy}
        return parse(given, {}).protocol

    assert protocol("cooperative-sticky,range") is protocol("range") is RebalanceProtocol.EAGER
    assert protocol("cooperative-sticky") is RebalanceProtocol.COOPERATIVE


# -- live members


class Seen:
    """What was processed, how often, by whom and when."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], list[str]] = {}
        self._began = time.monotonic()

    def add(self, partition: int, offset: int, who: str) -> None:
        when = time.monotonic() - self._began
        self._times.setdefault((partition, offset), []).append(f"{who} at {when:.3f}")

    def records(self) -> set[tuple[int, int]]:
        return set(self._times)

    def doubled(self) -> dict[tuple[int, int], list[str]]:
        return {one: times for one, times in sorted(self._times.items()) if len(times) > 1}


class Worker:
    """A consumer on a thread, that can be bounced with another list."""

    def __init__(self, broker: Broker, group_id: str, topic: str, seen: Seen) -> None:
        self._settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
        }
        self._topic = topic
        self._seen = seen
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._name = ""
        self.error: BaseException | None = None
        self.owned: set[int] = set()

    def start(self, strategy: str, kind: Callable[[dict[str, Any]], Any] = holdfast.Consumer) -> None:
        self._stop.clear()
        self._name = f"{id(self) % 1_000}/{kind.__module__}/{strategy}"
        consumer = kind({**self._settings, "partition.assignment.strategy": strategy})
        self._thread = threading.Thread(target=self._work, args=(consumer,))
        self._thread.start()

    def _work(self, consumer: Any) -> None:
        try:
            consumer.subscribe([self._topic])
            while not self._stop.is_set():
                message = consumer.poll(0.02)
                if message is not None and message.error() is not None:
                    self.error = ck.KafkaException(message.error())
                elif message is not None:
                    self._seen.add(message.partition(), message.offset(), self._name)
                self.owned = {p.partition for p in consumer.assignment()}
        except BaseException as error:
            self.error = error
        finally:
            consumer.close()
            self.owned = set()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)
            assert not self._thread.is_alive()


class Feed:
    """A producer that never stops, so that a record lost on the way shows."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def _run(self) -> None:
        while not self._stop.wait(0.004):
            self._producer.produce(self._topic, b"x", partition=self.sent % 6)
            self.sent += 1

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


def until(holds: Callable[[], bool], workers: list[Worker], limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        failed = [worker.error for worker in workers if worker.error is not None]
        assert not failed, failed
        assert time.monotonic() < deadline, [worker.owned for worker in workers]
        time.sleep(0.02)


@pytest.fixture
def live(broker: Broker, topic: str) -> Iterator[tuple[str, str, list[Worker], Seen]]:
    name, seen = f"moving-{topic}", Seen()
    six = f"six-{topic}"
    broker.topics.create(six, 6)
    workers = [Worker(broker, name, six, seen) for _ in range(3)]
    yield name, six, workers, seen
    for worker in workers:
        worker.stop()


@pytest.mark.slow
def test_two_bounces_up_and_two_down_lose_no_record(broker: Broker, live: tuple[str, str, list[Worker], Seen]) -> None:
    """edge A21 franz-go 686: a live group of librdkafka members on range becomes one of cooperative holdfast members,
    and goes back, while records come in."""
    name, topic, workers, seen = live

    def shared() -> bool:
        return sum(len(worker.owned) for worker in workers) == 6 and all(worker.owned for worker in workers)

    def bounce(strategy: str, kind: Callable[[dict[str, Any]], Any] = holdfast.Consumer) -> str:
        for worker in workers:
            worker.stop()
            worker.start(strategy, kind)
            until(shared, workers)
        return broker.group(name).protocol

    with Feed(broker, topic) as feed:
        for worker in workers:
            worker.start("range", ck.Consumer)
        until(shared, workers)
        assert bounce("cooperative-sticky,range") == "cooperative-sticky", "everybody lists it, and prefers it"
        assert bounce("cooperative-sticky") == "cooperative-sticky"
        assert bounce("cooperative-sticky,range") == "cooperative-sticky"
        assert bounce("range", ck.Consumer) == "range"
        sent = feed.sent
        until(lambda: len(seen.records()) >= sent, workers)
    ends = {partition.partition: end for partition, (_, end) in broker.topics.offsets(topic).items()}
    until(lambda: len(seen.records()) == sum(ends.values()), workers)
    assert seen.records() == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    assert seen.doubled() == {}, "every handover was clean, so nothing was done twice either"


def test_whoever_skips_the_first_bounce_is_refused_and_told_so(
    broker: Broker, live: tuple[str, str, list[Worker], Seen]
) -> None:
    name, _, workers, _ = live
    workers[0].start("range", ck.Consumer)
    until(lambda: len(workers[0].owned) == 6, workers[:1])
    workers[1].start("cooperative-sticky")
    deadline = time.monotonic() + PATIENCE_S
    while workers[1].error is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert isinstance(workers[1].error, ck.KafkaException)
    error = workers[1].error.args[0]
    assert error.code() == ck.KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert "the group runs range (rdkafka)" in error.str()
    assert "first bounce of the migration was missed" in error.str()
    assert f"holdfast preflight {name} --to cooperative-sticky" in error.str()
    workers[1].error = None
    assert len(workers[0].owned) == 6, "and nobody was disturbed"


@pytest.mark.slow
def test_an_eager_member_joins_after_its_commit_whatever_the_last_leader_said() -> None:
    """edge B36 Symptom: on the way back to range every member did a dozen records again. Cause: under
    cooperative-sticky the leader says that handed-over positions reach everybody, so nobody waits for the commit before
    a revoke; the next round was planned by range, which hands nothing on, and the next owners read offsets of before.
    Invariant: whoever revokes before it joins can't know who plans the round, and joins when its commit is through."""
    with Broker() as broker:
        broker.topics.create("orders", 6)
        seen = Seen()
        workers = [Worker(broker, "late", "orders", seen) for _ in range(3)]
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(60):
            producer.produce("orders", b"x", partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        for worker in workers[:2]:
            worker.start("cooperative-sticky,range")
        until(lambda: all(worker.owned for worker in workers[:2]) and len(seen.records()) >= 60, workers[:2])
        broker.faults.delay(Api.OFFSET_COMMIT, ms=300)
        workers[2].start("range", ck.Consumer)
        until(lambda: all(worker.owned for worker in workers), workers)
        until(lambda: broker.group("late").protocol == "range", workers)
        deadline = time.monotonic() + 0.5
        until(lambda: time.monotonic() > deadline, workers)
        broker.faults.clear()
        for worker in workers:
            worker.stop()
        assert seen.doubled() == {}
