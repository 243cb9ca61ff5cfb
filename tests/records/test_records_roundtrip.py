"""What was encoded comes back, by the plain iterator and by the Arrow path, whatever is in it and however it is cut."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_world import CODECS, NOW, decode, plain, record_lists, rows

from holdfast.model import TopicPartition
from holdfast.records.arrow import ArrowDecoder
from holdfast.records.batch import Header, Record, iter_headers, iter_records
from holdfast.records.columns import SCHEMA, SCHEMA_WITH_HEADERS
from holdfast.records.compression import Codec
from holdfast.records.encode import Producer, encode_batch


@settings(deadline=None)
@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_records_come_back_from_the_iterator(records: list[Record], codec: Codec) -> None:
    assert list(iter_records(encode_batch(records, codec=codec))) == records


@pytest.mark.slow
@settings(deadline=None)
@given(records=record_lists(max_size=30), codec=st.sampled_from(CODECS), max_rows=st.integers(1, 40))
def test_records_come_back_from_arrow_in_batches_of_any_size(
    records: list[Record], codec: Codec, max_rows: int
) -> None:
    assert decode(encode_batch(records, codec=codec), max_rows=max_rows) == records


@pytest.mark.slow
@settings(deadline=None)
@given(records=record_lists(min_size=2, max_size=30, gaps=True), codec=st.sampled_from(CODECS), data=st.data())
def test_only_offsets_of_the_asked_range_come(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    offsets = st.integers(records[0].offset - 1, records[-1].offset + 2)
    lo, hi = data.draw(offsets), data.draw(offsets)
    wanted = [record for record in records if lo <= record.offset < hi]
    encoded = encode_batch(records, codec=codec)
    assert list(iter_records(encoded, lo=lo, hi=hi)) == wanted
    assert decode(encoded, lo=max(lo, 0), hi=hi, max_rows=data.draw(st.integers(1, 40))) == wanted


@settings(max_examples=30, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(1, 400), st.sampled_from(CODECS)), min_size=1, max_size=100),
    max_rows=st.integers(1, 5000),
    max_bytes=st.integers(1, 200_000),
)
def test_many_small_batches_of_all_codecs_come_in_order(
    batches: list[tuple[int, Codec]], max_rows: int, max_bytes: int
) -> None:
    answer = b""
    expected: list[Record] = []
    for size, codec in batches:
        records = plain(size, offset=len(expected))
        expected += records
        answer += encode_batch(records, codec=codec)
    decoder = ArrowDecoder(max_rows=max_rows, max_bytes=max_bytes)
    assert decoder.feed(answer, topic="t", partition=0, lo=0) == len(expected)
    taken = list(decoder.drain())
    assert rows(taken) == expected
    assert all(0 < batch.num_rows <= max_rows for batch in taken)
    assert all(batch.num_rows == 1 or _payload(batch) <= max_bytes for batch in taken)
    assert decoder.buffered_bytes == 0


def _payload(batch: pa.RecordBatch) -> int:
    return sum(len(value) for name in ("key", "value") for value in batch.column(name).to_pylist() if value)


def test_a_record_larger_than_every_limit_still_comes_alone() -> None:
    large = [Record(0, NOW, None, b"x" * 3_000_000), *plain(3, offset=1)]
    decoder = ArrowDecoder(max_bytes=1000)
    decoder.feed(encode_batch(large, codec=Codec.NONE), topic="t", partition=0, lo=0)
    assert [batch.num_rows for batch in decoder.drain()] == [1, 3]


def test_rows_of_several_topics_and_partitions_share_a_batch() -> None:
    decoder = ArrowDecoder()
    for topic, partition, number in (("orders", 0, 3), ("orders", 7, 2), ("pay", 1, 4), ("übung", 2, 1)):
        decoder.feed(encode_batch(plain(number)), topic=topic, partition=partition, lo=0)
    batch = decoder.take()
    assert batch is not None
    assert batch.column("topic").to_pylist() == ["orders"] * 5 + ["pay"] * 4 + ["übung"]
    assert batch.column("partition").to_pylist() == [0] * 3 + [7] * 2 + [1] * 4 + [2]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]
    assert decoder.take() is None


def test_a_smaller_batch_of_the_same_topic_reuses_the_names_of_a_larger_one() -> None:
    decoder = ArrowDecoder()
    seen = []
    for number in (5, 2, 9, 1):
        decoder.feed(encode_batch(plain(number)), topic="orders", partition=0, lo=0)
        batch = decoder.take()
        assert batch is not None
        batch.validate(full=True)
        seen.append(batch.column("topic").to_pylist())
        decoder.discard("orders", 0)
    assert seen == [["orders"] * number for number in (5, 2, 9, 1)]


def test_the_schema_is_the_one_that_pyspark_compares_with() -> None:
    """PySpark refuses a RecordBatch whose schema differs from its own by as much as a list element's name."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(SCHEMA)
    fields.append(StructField("headers", ArrayType(header)))
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(SCHEMA_WITH_HEADERS)


def test_a_record_without_headers_has_null_there_as_in_sparks_own_source() -> None:
    records = [Record(0, NOW, None, None), Record(1, NOW, None, None, (Header("a", None),))]
    decoder = ArrowDecoder(include_headers=True)
    decoder.feed(encode_batch(records), topic="t", partition=0, lo=0)
    batch = decoder.take()
    assert batch is not None
    assert batch.column("headers").to_pylist() == [None, [{"key": "a", "value": None}]]


def test_without_headers_asked_for_there_is_no_such_column() -> None:
    decoder = ArrowDecoder()
    decoder.feed(encode_batch([Record(0, NOW, b"k", b"v", (Header("a", b"b"),))]), topic="t", partition=0, lo=0)
    batch = decoder.take()
    assert batch is not None
    assert batch.schema.equals(SCHEMA)
    assert decoder.schema.equals(SCHEMA)


def test_header_keys_that_are_no_text_are_replaced_as_java_does() -> None:
    """Kafka never checks them, and Arrow's readers fail on them."""
    raw = encode_batch([Record(0, NOW, None, b"v", (Header("ä?", b"1"), Header("ok", b"2")))])
    from holdfast.records.encode import with_crc

    broken = with_crc(raw.replace("ä?".encode(), b"\xff?!"))
    (found,) = decode(broken)
    assert found.headers == (Header("�?!", b"1"), Header("ok", b"2"))
    assert list(iter_records(broken)) == [found]


@pytest.mark.parametrize("appended", [None, NOW + 77])
def test_the_broker_s_time_stamps_the_whole_batch(appended: int | None) -> None:
    records = plain(3)
    encoded = encode_batch(records, log_append_time=appended)
    decoder = ArrowDecoder()
    decoder.feed(encoded, topic="t", partition=0, lo=0)
    batch = decoder.take()
    assert batch is not None
    expected = [record.timestamp if appended is None else appended for record in records]
    assert [record.timestamp for record in rows([batch])] == expected
    assert [record.timestamp for record in iter_records(encoded)] == expected
    assert batch.column("timestampType").to_pylist() == [0 if appended is None else 1] * 3


@pytest.mark.parametrize(("millis", "micros"), [(2**62, 2**63 - 1), (-(2**62), -(2**63 - 1)), (-1, -1000)])
def test_timestamps_that_microseconds_can_t_hold_become_the_limit(millis: int, micros: int) -> None:
    """A producer that stamps in nanoseconds must not stop its readers."""
    decoder = ArrowDecoder()
    decoder.feed(encode_batch([Record(0, millis, None, b"v")]), topic="t", partition=0, lo=0)
    batch = decoder.take()
    assert batch is not None
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [micros]


def test_a_batch_with_a_delete_horizon_keeps_its_timestamps() -> None:
    """Compaction puts the horizon where the base timestamp was and counts the deltas from there (KIP-534)."""
    encoded = encode_batch(plain(3), delete_horizon=NOW + 86_400_000)
    assert next(iter_headers(encoded)).delete_horizon == NOW + 86_400_000
    assert decode(encoded) == list(iter_records(encoded)) == plain(3)


def test_headers_of_a_batch_tell_what_was_encoded() -> None:
    producer = Producer(producer_id=7, epoch=3, base_sequence=11)
    encoded = encode_batch(
        plain(4, offset=100), codec=Codec.ZSTD, producer=producer, transactional=True, leader_epoch=5
    )
    (header,) = iter_headers(encoded)
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (100, 103, 104, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (7, 3, 11, 5)
    assert (header.codec, header.transactional, header.control, header.delete_horizon) == (4, True, False, None)
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (NOW, NOW + 3, 0)


def test_positions_follow_the_rows_handed_out() -> None:
    decoder = ArrowDecoder()
    where = TopicPartition("t", 0)
    records = [Record(offset, NOW, None, b"v") for offset in (5, 6, 9, 20)]
    end = decoder.feed(encode_batch(records, last_offset=24), topic="t", partition=0, lo=5)
    assert end == 25
    assert decoder.positions == {where: 5}
    seen = []
    while decoder.take(max_rows=1) is not None:
        seen.append(decoder.positions[where])
    assert seen == [6, 7, 10, 25]
