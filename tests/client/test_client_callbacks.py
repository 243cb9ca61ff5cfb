"""What callbacks may do: start elsewhere, commit, store, unassign, raise, and be interrupted. Nothing is lost by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from committed import LONG_MS, by_hand, code_of, offsets, reached
from polling import COUNTER, take

import holdfast
from holdfast.testing import Broker
from holdfast.trace import read_trace_file
from holdfast.wire.api import Api
from patience import PATIENCE_S

QUICK_S, CLOSE_TIMEOUT_S = 60.0, 100.0
"""A close that is not quick takes what it gives a coordinator: here so much that a busy machine is no excuse."""


@pytest.fixture(autouse=True)
def patient_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.core.CLOSE_TIMEOUT_S", CLOSE_TIMEOUT_S)


Callback = Callable[[Any, list[ck.TopicPartition]], None]


class Group:
    """Members of one group, each with what it was told and got, polled in turn."""

    def __init__(self, broker: Broker, topic: str, stack: ExitStack) -> None:
        self.broker, self.topic, self.stack = broker, topic, stack
        self.name = f"callbacks-{next(COUNTER)}"
        self.members: list[Any] = []
        self.records: dict[Any, list[tuple[int, int]]] = {}
        self.raised: list[BaseException] = []

    def join(
        self,
        *,
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        **settings: Any,
    ) -> Any:
        config = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10_000,
            "auto.commit.interval.ms": LONG_MS,
        }
        consumer = holdfast.Consumer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
        self.stack.callback(consumer.close)
        given = {"on_assign": on_assign, "on_revoke": on_revoke}
        called: dict[str, Any] = {name: call for name, call in given.items() if call is not None}
        consumer.subscribe([self.topic], **called)
        self.members.append(consumer)
        self.records[consumer] = []
        return consumer

    def until(self, holds: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, (self.records, self.raised)
            for consumer in self.members:
                self.step(consumer)

    def step(self, consumer: Any) -> None:
        try:
            message = consumer.poll(0.01)
        except (RuntimeError, KeyboardInterrupt) as error:
            self.raised.append(error)
            return
        if message is not None:
            assert message.error() is None, message.error()
            self.records[consumer].append((message.partition(), message.offset()))

    def shared(self) -> bool:
        """Whether everybody has something and all is given out."""
        held = [{p.partition for p in consumer.assignment()} for consumer in self.members]
        return all(held) and sum(len(part) for part in held) == len(set.union(*held)) == 3


@pytest.fixture
def group(broker: Broker, topic: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(broker, topic, stack)


STRATEGIES = ["cooperative-sticky", "range"]


# -- on_assign


@pytest.mark.parametrize("way", ["assign", "seek", "incremental_assign"])
def test_on_assign_says_where_to_start_what_is_added(group: Group, way: str) -> None:
    """Symptom: assign() in on_assign threw away what was kept, and nobody read it; seek() there raised. The docs
    recommended both. Rule: what is added starts where the callback says, what is kept goes on."""

    def assigned(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        wanted = [ck.TopicPartition(p.topic, p.partition, 3) for p in partitions]
        if way == "seek":
            for one in wanted:
                consumer.seek(one)
        elif wanted:
            getattr(consumer, way)(wanted)

    first = group.join(on_assign=assigned)
    group.until(lambda: len(group.records[first]) == 6)
    assert {offset for _, offset in group.records[first]} == {3, 4}
    second = group.join(on_assign=assigned)
    group.until(group.shared)
    second.close()
    group.members.remove(second)
    before = len(group.records[first])
    group.until(lambda: len(first.assignment()) == 3)
    group.until(lambda: len(group.records[first]) > before)
    assert {p.partition for p in first.assignment()} == {0, 1, 2}


def test_what_on_assign_does_not_name_starts_where_it_would(group: Group) -> None:
    def assigned(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        named = [p for p in partitions if p.partition == 1]
        consumer.assign([ck.TopicPartition(p.topic, p.partition, 4) for p in named])

    consumer = group.join(on_assign=assigned)
    group.until(lambda: len(group.records[consumer]) == 11)
    assert sorted(group.records[consumer]) == [
        *((0, offset) for offset in range(5)),
        (1, 4),
        *((2, offset) for offset in range(5)),
    ]


def test_what_on_assign_assigns_without_an_offset_starts_where_the_group_stands(group: Group, topic: str) -> None:
    outside = holdfast.Consumer({"bootstrap.servers": group.broker.bootstrap, "group.id": group.name})
    outside.commit(offsets=[ck.TopicPartition(topic, number, 4) for number in range(3)], asynchronous=False)
    outside.close()
    consumer = group.join(on_assign=lambda consumer, partitions: consumer.assign(partitions))
    group.until(lambda: len(group.records[consumer]) == 3)
    assert sorted(group.records[consumer]) == [(0, 4), (1, 4), (2, 4)]


def test_an_eager_member_that_unassigns_in_on_assign_reads_nothing(group: Group) -> None:
    """Symptom: unassign() in on_assign did nothing: every partition was read all the same. `assign([])` worked.
    confluent-kafka reads nothing after either."""
    heard: list[int] = []

    def assigned(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        consumer.unassign()
        heard.append(len(partitions))

    consumer = group.join(on_assign=assigned, partition_assignment_strategy="range")
    group.until(lambda: heard == [3])
    assert consumer.assignment() == [] and consumer.poll(0.2) is None
    consumer.assign(by_hand(group.topic, 1))  # it may read again what it likes
    group.until(lambda: len(group.records[consumer]) == 5)


def test_a_cooperative_member_does_not_throw_away_what_the_group_gave_it(group: Group, topic: str) -> None:
    """Whatever the group counts as ours is read, or the application hears why not: librdkafka says _STATE too."""
    consumer = group.join()
    group.until(lambda: len(group.records[consumer]) == 15)
    for call in (lambda: consumer.assign(by_hand(topic, 0)), consumer.unassign):
        with pytest.raises(ck.KafkaException) as caught:
            call()
        assert code_of(caught) == ck.KafkaError._STATE
    assert {p.partition for p in consumer.assignment()} == {0, 1, 2}


def test_calls_inside_on_assign_do_what_they_do_with_librdkafka(group: Group, topic: str) -> None:
    seen: dict[str, Any] = {}

    def assigned(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        one = ck.TopicPartition(topic, partitions[0].partition, 1, "from on_assign")
        seen["position"] = [p.offset for p in consumer.position(partitions)]
        seen["committed"] = [p.offset for p in consumer.committed(partitions, timeout=PATIENCE_S)]
        consumer.pause(partitions)  # of no effect: they are not read yet
        with pytest.raises(ck.KafkaException) as caught:
            consumer.commit(asynchronous=False)
        seen["nothing"] = code_of(caught)
        seen["sync"] = [p.offset for p in consumer.commit(offsets=[one], asynchronous=False)]
        seen["async"] = consumer.commit(offsets=[one])

    consumer = group.join(on_assign=assigned, enable_auto_commit=False)
    group.until(lambda: len(group.records[consumer]) >= 14)
    nowhere = [ck.OFFSET_INVALID] * 3
    assert seen == {
        "position": nowhere,
        "committed": nowhere,
        "nothing": ck.KafkaError._NO_OFFSET,
        "sync": [1],
        "async": None,
    }


# -- on_revoke


def act(consumer: Any, partitions: list[ck.TopicPartition], what: str) -> None:
    done = [ck.TopicPartition(p.topic, p.partition, 4) for p in partitions]
    match what:
        case "incremental_unassign":
            consumer.incremental_unassign(partitions)
        case "commit":
            consumer.commit(offsets=done, asynchronous=False)
        case "commit-later":
            consumer.commit(offsets=done)
        case "commit-all":
            consumer.commit(asynchronous=False)
        case "commit-all-later":
            consumer.commit()
        case "store":
            consumer.store_offsets(offsets=done)
        case "seek":
            consumer.seek(ck.TopicPartition(partitions[0].topic, partitions[0].partition, 1))
        case "raise":
            raise RuntimeError("from on_revoke")
        case "interrupt":
            raise KeyboardInterrupt


BY_ITSELF = {"incremental_unassign": 5, "commit": 5, "commit-later": 5, "commit-all": 5, "seek": 5, "raise": 5}
"""With auto-commit everything done counts, whatever else the callback commits."""
BY_HAND = {"commit": 4, "commit-later": 4, "commit-all": 5, "commit-all-later": 5}
CASES: list[tuple[str, int, dict[str, Any]]] = [(what, at, {}) for what, at in {**BY_ITSELF, "interrupt": 5}.items()]
CASES += [(what, at, {"enable_auto_commit": False}) for what, at in BY_HAND.items()]
CASES += [("store", 4, {"enable_auto_offset_store": False})]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("what", "at", "settings"), CASES, ids=[f"{what}-{len(more)}" for what, _, more in CASES])
def test_what_on_revoke_does_counts_at_close(
    group: Group, topic: str, what: str, at: int, settings: dict[str, Any], strategy: str
) -> None:
    """Symptom: store_offsets() in the last on_revoke came too late, an asynchronous commit() there was not waited for,
    and a Ctrl-C in it kept the member in the group. Rule: what the listener did is committed before we leave."""
    consumer = group.join(
        on_revoke=lambda consumer, partitions: act(consumer, partitions, what),
        partition_assignment_strategy=strategy,
        **settings,
    )
    group.until(lambda: len(group.records[consumer]) == 15)
    began = time.monotonic()
    if what in ("raise", "interrupt"):
        with pytest.raises((RuntimeError, KeyboardInterrupt)):
            consumer.close()
    else:
        consumer.close()
    assert time.monotonic() - began < QUICK_S
    assert reached(group.broker, group.name, topic) == dict.fromkeys(range(3), at)
    assert group.broker.group(group.name).members == ()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("what", "at", "settings"), CASES, ids=[f"{what}-{len(more)}" for what, _, more in CASES])
def test_the_next_owner_goes_on_where_on_revoke_says(
    group: Group, topic: str, what: str, at: int, settings: dict[str, Any], strategy: str
) -> None:
    """Symptom: incremental_unassign() in on_revoke lost the hand-over, an asynchronous commit() was neither waited for
    nor handed over, and after a Ctrl-C the partition was read beside its new owner. The new owner did it all again."""
    ready: list[bool] = []

    def revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        if ready:
            act(consumer, partitions, what)

    common = {"partition_assignment_strategy": strategy, **settings}
    first = group.join(on_revoke=revoke, **common)
    group.until(lambda: len(group.records[first]) == 15)
    ready.append(True)
    second = group.join(**common)
    group.until(group.shared)
    moved = {p.partition for p in second.assignment()}
    expected = {(partition, offset) for partition in moved for offset in range(at, 5)}
    group.until(lambda: set(group.records[second]) >= expected)
    for _ in range(30):
        group.until(lambda: True)
        group.step(second)
    assert sorted(group.records[second]) == sorted(expected)
    kept = {p.partition for p in first.assignment()}
    again = group.records[first][15:]
    assert {partition for partition, _ in again} <= kept
    assert min((offset for _, offset in again), default=at) >= at
    if what in ("raise", "interrupt"):
        assert [type(error) for error in group.raised] == [RuntimeError if what == "raise" else KeyboardInterrupt]
    assert {partition: reached(group.broker, group.name, topic)[partition] for partition in moved} == dict.fromkeys(
        moved, at
    )
    ready.clear()


# -- interrupted


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_ctrl_c_in_on_assign_comes_out_of_poll_and_the_member_goes_on(
    group: Group, topic: str, strategy: str
) -> None:
    """Symptom: after Ctrl-C in a callback no record came any more, close() took ten seconds, there was no LeaveGroup,
    and the watchdog was sent away. Cause: only Exceptions were kept for poll; the round was never ended."""

    def assigned(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        if partitions:
            raise KeyboardInterrupt

    consumer = group.join(on_assign=assigned, partition_assignment_strategy=strategy)
    group.until(lambda: len(group.records[consumer]) == 15)
    assert [type(error) for error in group.raised] == [KeyboardInterrupt]
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < QUICK_S
    assert reached(group.broker, group.name, topic) == {0: 5, 1: 5, 2: 5}
    assert group.broker.group(group.name).members == ()


def test_a_ctrl_c_is_not_hidden_by_an_exception_of_the_same_round(group: Group) -> None:
    """Of several errors of one round poll raises the first; but Ctrl-C ends a program, and nothing may swallow it."""
    to_raise: list[BaseException] = []

    def revoke(_consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
        if to_raise:
            raise to_raise.pop(0)

    first = group.join(on_revoke=revoke, on_assign=revoke)
    group.until(lambda: len(group.records[first]) == 15)
    to_raise += [RuntimeError("first"), KeyboardInterrupt()]
    group.join()
    group.until(lambda: bool(group.raised))
    assert [type(error) for error in group.raised] == [KeyboardInterrupt]


def test_unsubscribing_in_a_callback_ends_the_records(group: Group) -> None:
    """Symptom: after unsubscribe() in on_assign records were handed out until the revoke was served."""
    revoked: list[int] = []
    consumer = group.join(
        on_assign=lambda consumer, _partitions: consumer.unsubscribe(),
        on_revoke=lambda _consumer, partitions: revoked.extend(p.partition for p in partitions),
    )
    group.until(lambda: sorted(revoked) == [0, 1, 2])
    assert group.records[consumer] == []
    consumer.assign([ck.TopicPartition(group.topic, 0, 0)])
    assert len(take(consumer, 5)) == 5


def test_a_commit_in_on_revoke_keeps_its_metadata(group: Group, topic: str) -> None:
    """What was committed with a note at the very offset where it stands is not committed again without it."""

    def revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        consumer.commit(offsets=[ck.TopicPartition(p.topic, p.partition, 5, "note") for p in partitions])

    consumer = group.join(on_revoke=revoke)
    group.until(lambda: len(group.records[consumer]) == 15)
    consumer.close()
    assert set(offsets(group.broker, group.name, topic).values()) == {(5, "note\0", 0)}, (
        "and its record's epoch is there"
    )


@pytest.mark.parametrize("new", [True, False])
def test_a_commit_in_on_revoke_is_of_what_was_new_before_it(group: Group, new: bool) -> None:
    """With auto-commit a commit() in on_revoke finds what librdkafka's finds, although it has just been committed: a
    program that does not expect _NO_OFFSET there would break by it."""
    heard: list[Any] = []

    def revoke(consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
        try:
            heard.extend(p.offset for p in consumer.commit(asynchronous=False))
        except ck.KafkaException as error:
            heard.append(error.args[0].code())

    consumer = group.join(on_revoke=revoke)
    group.until(lambda: len(group.records[consumer]) == 15)
    if not new:
        consumer.commit(asynchronous=False)
    consumer.close()
    assert heard == ([5, 5, 5] if new else [ck.KafkaError._NO_OFFSET])


def test_the_trace_tells_a_slow_listener_from_a_slow_commit(group: Group, tmp_path: Path) -> None:
    """A handover's time is the listener's or the commit's, and who is to blame differs: `took_ms` has both,
    `listener_ms` is on_revoke alone."""
    path = tmp_path / "trace.jsonl"
    consumer = group.join(on_revoke=lambda *_: time.sleep(0.05), holdfast_trace_file=str(path))
    group.until(lambda: len(group.records[consumer]) == 15)
    group.broker.faults.delay(Api.OFFSET_COMMIT, ms=100, times=1)
    consumer.close()
    (revoked,) = [r for r in read_trace_file(path, on_bad=print) if r.step == "callback-revoked"]
    listener_ms, took_ms = revoked.data["listener_ms"], revoked.data["took_ms"]
    assert isinstance(listener_ms, float) and isinstance(took_ms, float)
    assert listener_ms >= 50
    assert took_ms >= listener_ms + 90, "the commit was waited for, and is not the listener's"
