"""consume_arrow(): the same records, positions and membership as poll(), in Arrow's form."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest
from polling import COUNTER, until

import holdfast
from holdfast.model import ErrorCode
from holdfast.net import fetching
from holdfast.net.flows import Flow
from holdfast.records.columns import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchedPartition
from inside import reading_of
from patience import PATIENCE_S

Make = Callable[..., holdfast.Consumer]
Row = tuple[int, int]


@pytest.fixture
def consumer_of(broker: Broker) -> Iterator[Make]:
    made: list[holdfast.Consumer] = []

    def consumer(**settings: Any) -> holdfast.Consumer:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{next(COUNTER)}",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
        }
        config.update({key.replace("_", "."): value for key, value in settings.items()})
        made.append(holdfast.Consumer(config))
        return made[-1]

    yield consumer
    broker.faults.clear()
    for one in made:
        one.close()


def rows(batch: pa.RecordBatch) -> list[Row]:
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("partition", "offset")]
    return list(zip(*columns, strict=True))


def taken(consumer: holdfast.Consumer, count: int, most: int = 100) -> list[Row]:
    """So many rows, however many batches it takes."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows came"
        batch = consumer.consume_arrow(most, 0.2)
        assert batch.num_rows <= most
        found += rows(batch)
    return found


def everything(partitions: int = 3, each: int = 5) -> list[Row]:
    return [(p, n) for p in range(partitions) for n in range(each)]


def produce(broker: Broker, topic: str, partition: int, count: int, **settings: Any) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, f"{partition}:{number}".encode().ljust(40), key=b"k", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def test_a_batch_has_the_columns_of_sparks_kafka_source_and_every_record_once(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.subscribe([topic])
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < 15:
        batches.append(consumer.consume_arrow(100, 5.0))
        assert batches[-1].schema == SCHEMA
    found = pa.Table.from_batches(batches).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows(found.combine_chunks().to_batches()[0]) == everything()
    assert found["value"].to_pylist() == [f"{p}:{n}".encode() for p, n in everything()]
    assert set(found["key"].to_pylist()) == {b"k"}
    assert set(found["topic"].to_pylist()) == {topic}
    assert set(found["timestampType"].to_pylist()) == {0}
    times: list[Any] = found["timestamp"].to_pylist()[:5]
    assert [at.timestamp() for at in times] == [1.0, 1.001, 1.002, 1.003, 1.004]


def test_when_nothing_comes_in_time_the_batch_is_empty_and_has_its_schema(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.subscribe([topic])
    assert sorted(taken(consumer, 15)) == everything()
    batch = consumer.consume_arrow(10, 0.1)
    assert batch.num_rows == 0
    assert batch.schema == SCHEMA


def test_headers_come_when_they_are_asked_for(broker: Broker, consumer_of: Make) -> None:
    topic = f"headers-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"with", headers=[("a", b"1"), ("b", None)])
    producer.produce(topic, b"without")
    producer.flush(PATIENCE_S)
    consumer = consumer_of()
    consumer.subscribe([topic])
    batch = consumer.consume_arrow(10, PATIENCE_S, include_headers=True)
    assert batch.schema == SCHEMA_WITH_HEADERS
    assert batch.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    consumer.seek(ck.TopicPartition(topic, 0, 0))
    assert consumer.consume_arrow(10, PATIENCE_S).schema == SCHEMA


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(broker: Broker, consumer_of: Make, codec: str) -> None:
    topic = f"{codec}-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    produce(broker, topic, 0, 200, **{"compression.type": codec})
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert taken(consumer, 200, most=37) == [(0, n) for n in range(200)]


@pytest.mark.parametrize("bad", [0, 10_000_001])
def test_a_senseless_number_of_records_is_refused(consumer_of: Make, bad: int) -> None:
    with pytest.raises(ValueError, match="max_records"):
        consumer_of().consume_arrow(bad, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_program_may_mix_all_three_ways_of_reading(broker: Broker, consumer_of: Make, seed: int) -> None:
    topic = f"mixed-{next(COUNTER)}"
    broker.topics.create(topic, partitions=3)
    for partition in range(3):
        produce(broker, topic, partition, 300, **{"compression.type": "lz4"})
    consumer = consumer_of()
    consumer.subscribe([topic])
    chance = random.Random(seed)
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 900:
        assert time.monotonic() < deadline, len(found)
        match chance.randrange(3):
            case 0:
                found += rows(consumer.consume_arrow(chance.randint(1, 50), 1.0))
            case 1:
                found += [(m.partition() or 0, m.offset() or 0) for m in consumer.consume(chance.randint(1, 50), 0.5)]
            case _:
                message = consumer.poll(1.0)
                found += [] if message is None else [(message.partition() or 0, message.offset() or 0)]
        reached = {p.partition: p.offset for p in consumer.position([ck.TopicPartition(topic, p) for p in range(3)])}
        for partition, offset in reached.items():
            assert offset == max((n + 1 for p, n in found if p == partition), default=ck.OFFSET_INVALID)
    assert sorted(found) == everything(each=300), "nothing was lost and nothing came twice"
    assert all(found.index((p, n)) < found.index((p, n + 1)) for p in range(3) for n in range(0, 299, 13))


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_partition_that_was_taken_away_while_its_beginning_was_looked_up_does_not_go_back_there(
    broker: Broker, consumer_of: Make, topic: str, by_hand: bool
) -> None:
    """Symptom: partitions began anew half a second after they came back at their end. Cause: librdkafka repeats a
    look-up of the beginning whose answer came too late, and believes it over what it was told since. It is told
    offsets now, never "the beginning"."""
    broker.faults.delay(Api.LIST_OFFSETS, ms=300)
    consumer = consumer_of()
    if by_hand:
        consumer.assign([ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in range(3)])
    else:
        consumer.subscribe([topic])
        while not consumer.assignment():
            assert consumer.consume(0, 0) == []
    assert sorted(taken(consumer, 15)) == everything()
    assert [(m.partition(), m.offset()) for m in consumer.consume(1, 1.0)] == []


def test_the_end_at_which_poll_began_is_the_end_at_which_arrow_goes_on(
    broker: Broker, consumer_of: Make, topic: str
) -> None:
    """With auto.offset.reset=latest nobody tells us where librdkafka began; what came since must not be skipped."""
    consumer = consumer_of(auto_offset_reset="latest")
    heard: list[ck.Message] = []
    consumer.subscribe([topic])
    until(consumer, lambda: len(consumer.assignment()) == 3)
    deadline = time.monotonic() + PATIENCE_S
    probe = 0
    while not heard:  # until librdkafka has looked up the end of partition 0
        assert time.monotonic() < deadline
        produce(broker, topic, 0, 1)
        probe += 1
        heard += consumer.consume(1, 0.2)
    first = heard[0].offset() or 0
    produce(broker, topic, 0, 3)
    expected = [(0, n) for n in range(first + 1, 5 + probe + 3)]
    assert [row for row in taken(consumer, len(expected)) if row[0] == 0] == expected


def test_positions_are_shared_with_commit_and_committed(consumer_of: Make, topic: str) -> None:
    group = f"shared-{topic}"
    consumer = consumer_of(group_id=group, enable_auto_commit=False)
    consumer.subscribe([topic])
    taken(consumer, 15)
    done = consumer.commit(asynchronous=False)
    assert done is not None
    assert {p.partition: p.offset for p in done} == {0: 5, 1: 5, 2: 5}
    other = consumer_of(group_id=group)
    asked = [ck.TopicPartition(topic, p) for p in range(3)]
    assert {p.offset for p in other.committed(asked, PATIENCE_S)} == {5}


def test_auto_commit_commits_what_was_returned_and_no_more(consumer_of: Make, topic: str) -> None:
    group = f"auto-{topic}"
    consumer = consumer_of(group_id=group)
    consumer.subscribe([topic])
    found = taken(consumer, 4, most=4)
    consumer.close()
    asked = [ck.TopicPartition(topic, p) for p in range(3)]
    committed = {p.partition: p.offset for p in consumer_of(group_id=group).committed(asked, PATIENCE_S)}
    ends = {p: max((n + 1 for q, n in found if q == p), default=ck.OFFSET_INVALID) for p in range(3)}
    assert committed == ends


def test_a_paused_partition_is_silent_and_comes_back_where_it_stood(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
    first = taken(consumer, 2, most=2)
    everywhere = [ck.TopicPartition(topic, p) for p in range(3)]
    consumer.pause(everywhere)
    assert consumer.consume_arrow(10, 0.2).num_rows == 0
    consumer.resume(everywhere)
    assert sorted(first + taken(consumer, 13)) == everything()


def test_what_is_paused_stays_paused_when_the_reader_changes(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
    consumer.pause([ck.TopicPartition(topic, 1)])
    assert {p for p, _ in taken(consumer, 10)} == {0, 2}
    assert consumer.poll(0.3) is None
    consumer.resume([ck.TopicPartition(topic, 1)])
    assert taken(consumer, 5) == [(1, n) for n in range(5)]


def test_a_pause_outlives_the_assignment_and_the_reader(consumer_of: Make, topic: str) -> None:
    """As librdkafka has it: a pause ends with resume(), whoever of the two readers hears of which."""
    consumer = consumer_of()
    where = [ck.TopicPartition(topic, 1, 0)]
    consumer.assign(where)
    taken(consumer, 5)
    consumer.pause(where)
    for _ in range(2):
        consumer.unassign()
        consumer.assign(where)
        assert consumer.consume_arrow(10, 0.2).num_rows == 0
        assert consumer.poll(0.2) is None
    consumer.resume(where)
    assert taken(consumer, 5) == [(1, n) for n in range(5)]


def test_seek_goes_where_it_says(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
    taken(consumer, 15)
    consumer.seek(ck.TopicPartition(topic, 1, 3))
    assert taken(consumer, 2) == [(1, 3), (1, 4)]
    consumer.seek(ck.TopicPartition(topic, 2, ck.OFFSET_BEGINNING))
    assert taken(consumer, 5) == [(2, n) for n in range(5)]
    with pytest.raises(ck.KafkaException) as caught:
        consumer.seek(ck.TopicPartition("nobody's", 0, 0))
    assert caught.value.args[0].code() == ck.KafkaError._UNKNOWN_PARTITION  # as librdkafka's seek


def test_a_seek_counts_although_the_other_reader_made_it(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    until(consumer, lambda: consumer.position([ck.TopicPartition(topic, 0)])[0].offset == 5)
    consumer.seek(ck.TopicPartition(topic, 0, 2))
    assert taken(consumer, 3) == [(0, 2), (0, 3), (0, 4)]
    consumer.seek(ck.TopicPartition(topic, 0, 1))
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.offset() == 1


def test_the_same_partition_is_not_taken_twice(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.incremental_assign([ck.TopicPartition(topic, 0, 0)])
    taken(consumer, 5)
    with pytest.raises(ck.KafkaException) as caught:
        consumer.incremental_assign([ck.TopicPartition(topic, 0, 0)])
    assert caught.value.args[0].code() == ck.KafkaError._CONFLICT
    consumer.incremental_assign([ck.TopicPartition(topic, 1, 3)])
    assert taken(consumer, 2) == [(1, 3), (1, 4)]
    assert [p.partition for p in consumer.assignment()] == [0, 1]
    consumer.incremental_unassign([ck.TopicPartition(topic, 0)])
    assert [p.partition for p in consumer.assignment()] == [1]


def test_watermarks_and_lag_are_known_from_what_was_fetched(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    taken(consumer, 2, most=2)
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), cached=True) == (0, 5)
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 1), cached=True) == (-1001, -1001)
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 1), 10) == (0, 5)
    assert consumer.metrics()["records-lag-max"] == 3


def test_a_record_larger_than_what_is_fetched_at_a_time_still_comes(broker: Broker, consumer_of: Make) -> None:
    topic = f"large-{next(COUNTER)}"
    broker.topics.create(topic, partitions=2)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(2):
        producer.produce(topic, b"x" * 300_000, partition=partition)
        producer.produce(topic, b"y", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    consumer = consumer_of(**{"max.partition.fetch.bytes": 1_024, "queued.max.messages.kbytes": 1})
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(2)])
    assert sorted(taken(consumer, 4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_offset_out_of_range_is_reset_as_configured(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    taken(consumer, 5)
    consumer.seek(ck.TopicPartition(topic, 0, 77))
    assert taken(consumer, 5) == [(0, n) for n in range(5)]
    assert [p.offset for p in consumer.position([ck.TopicPartition(topic, 0)])] == [5]


def test_without_a_reset_an_offset_out_of_range_is_an_error_until_somebody_seeks(consumer_of: Make, topic: str) -> None:
    consumer = consumer_of(auto_offset_reset="error")
    consumer.assign([ck.TopicPartition(topic, 0, 77)])
    with pytest.raises(ck.KafkaException) as caught:
        taken(consumer, 1)
    assert caught.value.args[0].code() == ck.KafkaError._AUTO_OFFSET_RESET
    consumer.seek(ck.TopicPartition(topic, 0, 4))
    assert taken(consumer, 1) == [(0, 4)]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH]
)
def test_what_passes_by_itself_is_told_to_nobody(
    broker: Broker, consumer_of: Make, topic: str, code: ErrorCode
) -> None:
    consumer = consumer_of()
    fault = broker.faults.error(Api.FETCH, code, times=3)
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
    assert sorted(taken(consumer, 15)) == everything()
    assert fault.hits == 3


def test_a_connection_that_breaks_is_opened_anew(broker: Broker, consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    fault = broker.faults.disconnect(Api.FETCH, times=2)
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
    assert sorted(taken(consumer, 15)) == everything()
    assert fault.hits == 2


@pytest.mark.slow
def test_what_does_not_pass_is_told_once_and_the_others_go_on(broker: Broker, consumer_of: Make, topic: str) -> None:
    consumer = consumer_of()
    fault = broker.faults.error(Api.FETCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    with pytest.raises(ck.KafkaException) as caught:
        taken(consumer, 1)
    assert caught.value.args[0].code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert consumer.consume_arrow(10, 0.2).num_rows == 0, "the same error is not told again"
    fault.clear()
    assert taken(consumer, 5) == [(0, n) for n in range(5)]


@pytest.mark.slow
def test_a_damaged_batch_raises_in_its_place_and_is_not_skipped(
    consumer_of: Make, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, damage = fetching.arrived, [True]

    def damaged(*arguments: Any) -> Any:
        answer, found = real(*arguments)
        if damage[0] and found is not None:
            broken = bytearray(found.records)
            broken[-1] ^= 1
            return answer, replace(found, records=memoryview(broken))
        return answer, found

    monkeypatch.setattr(fetching, "arrived", damaged)
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    for _ in range(2):
        with pytest.raises(ck.KafkaException) as caught:
            taken(consumer, 1)
        assert caught.value.args[0].code() == ck.KafkaError._BAD_MSG
        assert f"{topic}-0" in caught.value.args[0].str()
    damage[0] = False
    assert taken(consumer, 5) == [(0, n) for n in range(5)]


@pytest.mark.slow
def test_a_defect_in_the_background_is_heard_of_and_tried_again(
    consumer_of: Make, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that dies in the background must not leave a reader waiting for ever, nor spin."""
    real, fails = fetching.arrived, [True]

    def dying(flow: Flow, one: FetchedPartition, offset: int) -> Any:
        if fails[0]:
            raise ZeroDivisionError("a bug")
        return real(flow, one, offset)

    monkeypatch.setattr(fetching, "arrived", dying)
    consumer = consumer_of()
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    with pytest.raises(ck.KafkaException, match="ZeroDivisionError: a bug"):
        taken(consumer, 1)
    fails[0] = False
    while True:  # what was under way meanwhile may still tell
        try:
            assert taken(consumer, 5) == [(0, n) for n in range(5)]
        except ck.KafkaException:
            continue
        break


def test_check_crcs_can_be_switched_off(consumer_of: Make, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fetching.arrived

    def wrong_checksum(flow: Flow, one: FetchedPartition, offset: int) -> Any:
        found = real(flow, one, offset)
        if isinstance(found, fetching.Fetched):
            changed = bytearray(found.records)
            changed[17] ^= 1
            return fetching.Fetched(memoryview(changed), found.start, found.next_offset, found.rows, found.aborted)
        return found

    monkeypatch.setattr(fetching, "arrived", wrong_checksum)
    consumer = consumer_of(check_crcs=False)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert taken(consumer, 5) == [(0, n) for n in range(5)]


def test_what_was_fetched_of_a_revoked_partition_is_never_returned(broker: Broker, consumer_of: Make) -> None:
    """edge B53 librdkafka 3340: records that were fetched before a partition was given up came out of a later poll."""
    topic, group = f"revoked-{next(COUNTER)}", f"g-{next(COUNTER)}"
    broker.topics.create(topic, partitions=3)
    for partition in range(3):
        produce(broker, topic, partition, 100)
    gone: set[int] = set()
    first = consumer_of(group_id=group)
    first.subscribe([topic], on_revoke=lambda _consumer, partitions: gone.update(p.partition for p in partitions))
    found = taken(first, 1, most=1)  # the others are fetched and lie ready
    second = consumer_of(group_id=group)
    second.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 300:
        assert time.monotonic() < deadline, (len(found), gone)
        batch = rows(first.consume_arrow(1 if not gone else 100, 0.0))
        assert not {p for p, _ in batch} & gone, "rows of a partition that was given up"
        found += batch + rows(second.consume_arrow(100, 0.05))
    assert gone
    assert sorted(found) == everything(each=100), "nothing was lost and nothing came twice"


def test_no_more_is_fetched_ahead_than_the_queue_may_hold(broker: Broker, consumer_of: Make) -> None:
    topic = f"bounded-{next(COUNTER)}"
    broker.topics.create(topic, partitions=4)
    for partition in range(4):
        produce(broker, topic, partition, 4_000, **{"batch.size": 16_384})
    settings = {"queued.max.messages.kbytes": 256, "max.partition.fetch.bytes": 65_536}
    consumer = consumer_of(**settings)
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(4)])
    most = 0
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 16_000:
        assert time.monotonic() < deadline, len(found)
        found += rows(consumer.consume_arrow(500, 0.2))
        most = max(most, sum(flow.queued_bytes for flow in reading_of(consumer).flows()))
    assert sorted(found) == everything(4, 4_000)
    assert 65_536 <= most <= 256 * 1024
