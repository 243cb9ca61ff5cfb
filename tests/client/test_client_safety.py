"""What a consumer must not hand out, commit or note: regressions, each found in a group mixed of several clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.client.watchdog.child import read_positions
from holdfast.client.watchdog.guard import Watchdog
from holdfast.group import member as mb
from holdfast.model import TopicPartition
from holdfast.net.security import Security
from holdfast.testing import Broker
from holdfast.wire.api import Api
from inside import parts_of, reading_of, watchdog_of
from patience import PATIENCE_S

EACH = 200
"""Records in each of three partitions: more than librdkafka hands out in one poll, so some are always waiting."""

QUICK = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 100, "max.poll.interval.ms": 1_000}


def told(watchdog: Watchdog) -> dict[tuple[str, int], tuple[int, int]]:
    """The positions that it would commit, with their epochs."""
    return read_positions(watchdog.memory, [(slot, p.topic, p.partition) for p, slot in watchdog.slots.items()])


class Watched:
    """A consumer, and all that it was told and given, in order."""

    def __init__(self, kind: type[Any], bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.story: list[tuple[str, int, int]] = []
        self.consumer = kind(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
                **settings,
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._hear("assigned"), on_revoke=self._hear("revoked"), on_lost=self._hear("lost")
        )

    def _hear(self, what: str) -> Callable[[Any, list[ck.TopicPartition]], None]:
        return lambda _consumer, partitions: self.story.extend((what, p.partition, -1) for p in partitions)

    def step(self) -> None:
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:  # it may be told, as a message, what is wrong
            self.story.append(("record", message.partition(), message.offset()))

    def records(self) -> list[tuple[int, int]]:
        return [(partition, offset) for what, partition, offset in self.story if what == "record"]

    def owned(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def settled(self) -> bool:
        """Whether the group knows, and so the watchdog, that all three partitions are ours."""
        plane = parts_of(self.consumer).link.plane
        return plane is not None and len(plane.state.owned) == 3

    def noted(self) -> dict[int, int]:
        """Where the watchdog would commit, were this process killed now."""
        return {partition: offset for (_, partition), (offset, _) in told(watchdog_of(self.consumer)).items()}


@pytest.fixture
def full(broker: Broker) -> str:
    """A fresh topic with so many records that a consumer always has more than it has handed out."""
    name = f"full-{next(COUNTER)}"
    broker.topics.create(name, partitions=3)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3 * EACH):
        producer.produce(name, b"x" * 10, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def join(broker: Broker, full: str) -> Iterator[Callable[..., Watched]]:
    with ExitStack() as stack:

        def member(kind: type[Any] = holdfast.Consumer, **settings: Any) -> Watched:
            made = Watched(kind, broker.bootstrap, f"group-{full}", full, **settings)
            stack.callback(made.consumer.close)
            return made

        yield member
        broker.faults.clear()


def until(holds: Callable[[], bool], *members: Watched, limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, [member.story[-5:] for member in members]
        for member in members:
            member.step()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:[0-9]+ ms went by between two polls")  # so it shall
def test_after_an_eviction_nothing_of_what_was_lost_is_handed_out(join: Callable[..., Watched]) -> None:
    """Symptom: a member that had hung processed a few records that others had taken over long before. Cause: poll first
    returned what librdkafka still held, and told the listener of the loss afterwards. Invariant: what is lost is not
    handed out, whether or not the listener has heard of it."""
    hung = join(**QUICK)
    until(lambda: len(hung.records()) >= 30, hung)
    other = join()
    told = len(hung.story)
    until(lambda: other.owned() == {0, 1, 2}, other)

    until(lambda: len(hung.story) > told, hung)

    assert {what for what, _, _ in hung.story[told:]} == {"lost"}


@pytest.mark.slow
def test_a_member_cut_off_from_its_coordinator_hands_out_nothing_once_its_session_is_over(
    broker: Broker, join: Callable[..., Watched]
) -> None:
    """Symptom: two members processed one partition, one of which the coordinator had not heard of for its session
    timeout. Cause: it tried and tried to reach it, and went on working. Invariant: after a session timeout without an
    answer nothing is handed out until there is one."""
    cut = join(**{**QUICK, "max.poll.interval.ms": 60_000})
    until(lambda: len(cut.records()) >= 30, cut)
    name = cut.consumer.memberid()
    broker.faults.disconnect(Api.HEARTBEAT, when=lambda exchange: exchange.body.member_id == name)
    broker.faults.disconnect(Api.OFFSET_COMMIT)
    other = join()
    until(lambda: bool(other.records()), cut, other)

    told = len(cut.story)
    for _ in range(20):
        cut.step()

    assert cut.story[told:] == []
    assert not {offset for _, partition, offset in other.story} >= {0, 1}, "it is the other's turn, not a new beginning"


class Slow:
    """librdkafka in a process that is frozen while it waits."""

    def __init__(self, handle: Any, seconds: float) -> None:
        self._handle = handle
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def poll(self, timeout: float) -> Any:
        message = self._handle.poll(timeout)
        time.sleep(self._seconds)
        return message

    def consume(self, count: int, timeout: float) -> Any:
        messages = self._handle.consume(count, timeout)
        time.sleep(self._seconds)
        return messages


@pytest.mark.slow
def test_a_process_that_freezes_while_it_waits_hands_out_nothing_when_it_wakes(
    broker: Broker, join: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a process that was frozen handed out, on waking, one more batch. Cause: it had looked whether it may
    before it waited for records, which is where a process mostly is when it freezes. Invariant: it looks again."""
    frozen = join(**{**QUICK, "max.poll.interval.ms": 60_000})
    reader = reading_of(frozen.consumer)
    until(lambda: len(frozen.records()) >= 30 and not reader.ahead.ready, frozen)  # the next poll waits in librdkafka
    told = len(frozen.story)
    broker.faults.disconnect(Api.HEARTBEAT)
    broker.faults.disconnect(Api.OFFSET_COMMIT)
    monkeypatch.setattr(reader, "handle", Slow(reader.handle, 1.2))

    frozen.step()

    assert frozen.story[told:] == []


@pytest.mark.slow
def test_a_process_that_freezes_while_it_decodes_hands_out_nothing_when_it_wakes(
    broker: Broker, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: ten minutes of chaos had one record done twice, by a member that had been frozen inside
    `consume_arrow()`. Cause: it looked whether it may before it took a batch, and not again before it handed it out.
    Rule: every way of reading looks again; what is kept back is read again if it is still ours."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"decodes-{full}", "auto.offset.reset": "earliest"}
    consumer = holdfast.Consumer({**settings, **QUICK, "max.poll.interval.ms": 60_000})
    consumer.subscribe([full])
    while not (first := consumer.consume_arrow(1, 0.2)).num_rows:
        pass
    where = first.column("partition")[0].as_py(), first.column("offset")[0].as_py()
    reader = reading_of(consumer)
    take = reader.take_batch

    def frozen(*arguments: Any, **named: Any) -> Any:
        batch = take(*arguments, **named)
        time.sleep(1.2)
        return batch

    broker.faults.disconnect(Api.HEARTBEAT)
    broker.faults.disconnect(Api.OFFSET_COMMIT)
    monkeypatch.setattr(reader, "take_batch", frozen)

    def rows(count: int, timeout: float) -> list[tuple[int, int]]:
        try:
            batch = consumer.consume_arrow(count, timeout)
        except ck.KafkaException:  # heartbeats fail, and it says so
            return []
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("partition", "offset")]
        return list(zip(*columns, strict=True))

    assert rows(100, 1.0) == []

    monkeypatch.setattr(reader, "take_batch", take)
    broker.faults.clear()
    everything = {(p, n) for p in range(3) for n in range(EACH)}
    seen, deadline = {where}, time.monotonic() + PATIENCE_S
    while seen != everything:
        assert time.monotonic() < deadline, everything - seen
        seen |= set(rows(100, 0.2))
    consumer.close()


def test_an_asyncio_consumer_that_freezes_while_it_decodes_hands_out_nothing(
    broker: Broker, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for every way of an AsyncConsumer: what it took is read again, and counts as returned only then."""

    async def scene() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"aio-{full}", "auto.offset.reset": "earliest"}
        async with holdfast.AsyncConsumer(settings) as consumer:
            await consumer.subscribe([full])
            seen = [await consumer.poll(PATIENCE_S)]
            may, asked = mb.may_process, []

            def not_the_second_time(*given: Any, **named: Any) -> bool:
                asked.append(True)
                return len(asked) % 2 == 1 and may(*given, **named)

            for read in (
                lambda: consumer.poll(0.3),
                lambda: consumer.consume(10, 0.3),
                lambda: consumer.consume_arrow(10, 0.3),
            ):
                asked.clear()
                with monkeypatch.context() as patched:
                    patched.setattr(mb, "may_process", not_the_second_time)
                    found = await read()
                    assert found is None or len(found) == 0
            while len(seen) < 3 * EACH:
                seen += await consumer.consume(50, 0.2)
            where = [(one.partition(), one.offset()) for one in seen if one is not None]
            assert sorted(where) == [(p, n) for p in range(3) for n in range(EACH)]

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_what_was_taken_and_not_handed_out_is_fetched_again(join: Callable[..., Watched]) -> None:
    member = join()
    messages: list[ck.Message] = []
    while len(messages) < 20:
        messages += member.consumer.consume(50, 0.2)
    returned = {(message.partition(), message.offset()) for message in messages}

    parts_of(member.consumer).data.rewind(messages)

    until(lambda: returned <= set(member.records()), member)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_member_on_another_client_goes_on_where_a_holdfast_member_stopped(
    broker: Broker, join: Callable[..., Watched], strategy: str
) -> None:
    """Symptom: a librdkafka member did again what a holdfast member had done. Cause: the revoker sent its positions
    along with its join, which nobody but holdfast reads, and did not wait for its commit; the join overtook it.
    Invariant: where positions may not reach the next owner, the commit is through before the join."""
    settings = {"partition.assignment.strategy": strategy}
    ours = join(**settings)
    until(lambda: len(ours.records()) == 3 * EACH, ours)
    broker.faults.delay(Api.OFFSET_COMMIT, ms=600)

    theirs = join(ck.Consumer, **settings)
    until(lambda: bool(theirs.owned()) and bool(ours.owned()), ours, theirs)
    for _ in range(30):
        theirs.step()

    assert theirs.records() == []


def test_what_consume_has_not_returned_yet_is_neither_committed_nor_noted(
    broker: Broker, join: Callable[..., Watched]
) -> None:
    """Symptom: records were lost after a kill -9 although delivery is at least once. Cause: while consume() waited for
    more, the records it had gathered counted as processed, and were committed and noted for the watchdog. Invariant:
    what is returned counts as processed when the application calls again."""
    member = join(**{"auto.commit.interval.ms": 1})
    until(lambda: len(member.owned()) == 3, member)
    returned = len(member.records())
    while returned < 3 * EACH:
        commits: list[Any] = []
        watching = broker.faults.call(Api.OFFSET_COMMIT, commits.append)
        noted = sum(member.noted().values())
        batch = member.consumer.consume(1_000, 0.3)
        watching.clear()

        assert sum(member.noted().values()) in (noted, returned)
        top = {p: o for each in commits for t in each.body.topics for p, o in _committed(t)}
        assert sum(top.values()) <= returned
        returned += len(batch)

    member.consumer.poll(0)
    assert sum(member.noted().values()) == 3 * EACH


def _committed(topic: Any) -> list[tuple[int, int]]:
    return [(partition.partition_index, partition.committed_offset) for partition in topic.partitions]


@pytest.mark.parametrize("batch", [1, 50, 120])
def test_what_was_returned_is_noted_for_the_watchdog_with_the_very_next_call(
    join: Callable[..., Watched], batch: int
) -> None:
    """Symptom: after a kill -9 the records of its last 10 ms were processed again. Cause: positions behind consume()
    were noted at most every 10 ms. Invariant: with the next call the watchdog knows of all that was returned."""
    member = join()
    until(member.settled, member)
    returned = len(member.records())
    while returned < 3 * EACH:
        returned += len(member.consumer.consume(batch, 0.2))
        member.consumer.consume(0, 0)

        assert sum(member.noted().values()) == returned


@pytest.mark.parametrize("way", ["close", "unsubscribe", "drain"])
def test_what_was_returned_is_noted_before_on_revoke_is_called(join: Callable[..., Watched], way: str) -> None:
    """Symptom: a process that was killed while it closed or drained did its last batch again, of any size. Cause: the
    revoke's commit counted the batch as processed, because the application had called again, and the watchdog's notes
    did not: only poll and consume kept them. Rule: whatever the application calls and waits in, both agree."""
    member = join()
    until(member.settled, member)
    heard: list[int] = []
    topic = member.consumer.assignment()[0].topic
    member.consumer.subscribe([topic], on_revoke=lambda *_: heard.append(sum(member.noted().values())))
    returned = len(member.records())
    while returned < 100:
        returned += len(member.consumer.consume(100, 0.2))

    {
        "close": member.consumer.close,
        "unsubscribe": member.consumer.unsubscribe,
        "drain": lambda: member.consumer.drain(timeout=PATIENCE_S),
    }[way]()

    assert heard == [returned]


def test_what_was_returned_before_a_seek_is_noted_too(join: Callable[..., Watched]) -> None:
    """Symptom: after a seek and a kill, a large batch was done again that an auto-commit would have counted. Cause: a
    seek forgets the position, and a commit uses the one from before until a new record comes; the watchdog's notes of
    large batches did not. Invariant: the watchdog commits what a commit would commit."""
    member = join()
    until(member.settled, member)
    returned = len(member.records())
    while returned < 3 * EACH:
        returned += len(member.consumer.consume(3 * EACH, 0.2))
    topic = member.consumer.assignment()[0].topic

    member.consumer.seek(ck.TopicPartition(topic, 1, 0))
    member.consumer.consume(0, 0)

    assert member.noted() == {0: EACH, 1: EACH, 2: EACH}


def test_what_is_read_before_the_group_knows_of_it_is_noted_all_the_same() -> None:
    """Symptom: on a busy machine the records of a member's first milliseconds were not in its watchdog's notes. Cause:
    records flow as soon as the listener has returned, and the note has places for what is owned, a moment later."""
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    watchdog = Watchdog(Security())
    try:
        watchdog.own([second])
        watchdog.position(first, 7, 2)
        watchdog.position(second, 3)
        watchdog.own([first, second])
        assert told(watchdog) == {("orders", 0): (7, 2), ("orders", 1): (3, -1)}

        watchdog.own([])
        watchdog.position(first, 9)
        watchdog.gave_up([first])  # lost before it was owned: somebody else goes on from there
        watchdog.own([first])
        assert told(watchdog) == {}
    finally:
        watchdog.dismiss()


def test_the_watchdog_knows_what_was_stored_and_nothing_beyond_it(join: Callable[..., Watched]) -> None:
    """Symptom: with enable.auto.offset.store=false a killed member's records were lost. Cause: its watchdog committed
    where the application had read to, not what it had stored. Invariant: it commits what a commit would commit."""
    member = join(**{"enable.auto.offset.store": False})
    until(lambda: len(member.records()) >= 10 and member.settled(), member)
    assert member.noted() == {}

    member.consumer.store_offsets(offsets=[ck.TopicPartition(member.consumer.assignment()[0].topic, 1, 7)])

    assert member.noted() == {1: 7}

    member.consumer.store_offsets(offsets=[ck.TopicPartition(member.consumer.assignment()[0].topic, 1)])

    assert member.noted() == {}, "taken back: nothing is stored"


def test_the_watchdog_does_not_commit_an_offset_without_the_metadata_it_was_stored_with(
    join: Callable[..., Watched],
) -> None:
    """Symptom: after a kill the group's offsets had lost the metadata that store_offsets() had been given, also where
    it had been committed already. Cause: the watchdog notes offsets alone, and its commit wiped the text. Rule: an
    offset with a text is the consumer's to commit, and is done again after a kill."""
    member = join(**{"enable.auto.offset.store": False})
    until(lambda: len(member.records()) >= 10 and member.settled(), member)
    topic = member.consumer.assignment()[0].topic
    member.consumer.store_offsets(offsets=[ck.TopicPartition(topic, 1, 7)])

    member.consumer.store_offsets(offsets=[ck.TopicPartition(topic, 1, 9, "what belongs to it")])

    assert member.noted() == {}


def test_the_watchdog_is_not_behind_what_was_committed_by_hand(join: Callable[..., Watched]) -> None:
    """Symptom: a record was done again although commit() had returned before the kill; and metadata of such a commit
    was wiped. Cause: with auto-commit on, the watchdog committed where the application stood at its last poll,
    behind what it had committed since. Rule: a commit by hand is noted, or if it has metadata, takes the note back."""
    member = join()
    until(lambda: len(member.records()) >= 10 and member.settled(), member)
    assert member.consumer.poll(PATIENCE_S) is not None
    member.consumer.commit(asynchronous=False)
    stands = {p.partition: p.offset for p in member.consumer.position(member.consumer.assignment()) if p.offset >= 0}
    assert {p: at for p, at in member.noted().items() if p in stands} == stands

    topic, number = member.consumer.assignment()[0].topic, min(stands)
    text = ck.TopicPartition(topic, number, stands[number], "what belongs to it")
    member.consumer.commit(offsets=[text], asynchronous=False)

    assert number not in member.noted()


@pytest.mark.slow
def test_a_batch_under_way_is_returned_before_its_partitions_are_revoked(join: Callable[..., Watched]) -> None:
    """Symptom: records were processed after their partition was revoked. Cause: consume() made the listener's calls
    between gathering records and returning them. Invariant: the application first does what it has."""
    first = join(**{"heartbeat.interval.ms": 1_000})  # time to gather a batch before it hears of the other
    until(lambda: len(first.owned()) == 3, first)
    second = join()
    done = threading.Event()

    def poll_second() -> None:
        while not done.is_set():
            second.step()

    thread = threading.Thread(target=poll_second)
    thread.start()
    try:
        gathered = 0
        while not gathered or not any(what == "revoked" for what, _, _ in first.story):
            told = len(first.story)
            batch = first.consumer.consume(100_000, 1.0)
            gathered += len(batch)
            revoked = {partition for what, partition, _ in first.story[told:] if what == "revoked"}
            assert not revoked & {message.partition() for message in batch}
    finally:
        done.set()
        thread.join()
