"""Other people's encoders and decoders agree with ours: Kafka's own Java classes, aiokafka and kio."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioHeader
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64
from records_world import CODECS, NOW, decode, plain, record_lists

from holdfast.records.batch import Header, Record, batch_records, is_abort_marker, iter_headers, iter_records
from holdfast.records.compression import Codec
from holdfast.records.encode import Producer, encode_batch, encode_marker
from holdfast.testing.java import compile_java, java_command, kafka_classpath

PRODUCER = Producer(producer_id=77, epoch=4, base_sequence=9)


# --- aiokafka: a decoder of its own for all codecs ---


@settings(deadline=None)
@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_aiokafka_reads_what_we_encode(records: list[Record], codec: Codec) -> None:
    batch = DefaultRecordBatch(encode_batch(records, codec=codec, producer=PRODUCER, transactional=True))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.is_transactional, batch.is_control_batch) == (77, True, False)
    assert batch.next_offset == records[-1].offset + 1
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(Header(*h) for h in r.headers)) for r in batch]
    assert found == records


@pytest.mark.slow
@settings(deadline=None)
@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_we_read_what_aiokafka_encodes(records: list[Record], codec: Codec) -> None:
    # Its builder starts every batch at offset 0, and takes a first timestamp of -1 for none.
    first = records[0].offset
    records = [record._replace(offset=record.offset - first, timestamp=abs(record.timestamp)) for record in records]
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 24)
    for r in records:
        assert builder.append(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) is not None
    encoded = bytes(builder.build())
    assert list(iter_records(encoded)) == records
    assert decode(encoded) == records


# --- kio: uncompressed batches, byte for byte ---


def test_kio_writes_the_same_bytes() -> None:
    records = [*plain(300), Record(300, NOW - 9, None, None, (Header("ü", None), Header("b", b"c")))]
    new = NewRecordBatch(
        producer_id=i64(77),
        producer_epoch=i16(4),
        base_sequence=i32(9),
        attributes=i16(0),
        records=tuple(map(_to_kio, records)),
    )
    written = io.BytesIO()
    write_new_batch(written, new)
    assert encode_batch(records, producer=PRODUCER, leader_epoch=0) == written.getvalue()


def test_kio_reads_what_we_encode() -> None:
    # kio 0.6.5 drops milliseconds when it reads, so these records have whole seconds.
    records = [record._replace(timestamp=NOW + 1000 * index) for index, record in enumerate(plain(50, offset=1234))]
    batch, size = read_batch(encoded := encode_batch(records), 0)
    assert size == len(encoded)
    assert list(batch.records) == [_to_kio(record) for record in records]


def _to_kio(record: Record) -> KioRecord:
    return KioRecord(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp)),
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(KioHeader(key=h.key.encode(), value=h.value) for h in record.headers),
    )


# --- Java: Kafka's own classes ---


def run_oracle(*arguments: str) -> list[str]:
    classes = compile_java([Path(__file__).with_name("RecordOracle.java")])
    command = java_command("RecordOracle", arguments, classpath=kafka_classpath(classes))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def from_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("java-batches")
    run_oracle("write", str(folder))
    return folder


def java_records(base: int, count: int, stamp: int | None = None) -> list[Record]:
    """The records that RecordOracle.java makes."""
    return [
        Record(
            base + i + i // 10,
            NOW - (i % 4) * 100 if stamp is None else stamp,
            None if i % 5 == 0 else b"key%d" % i,
            None if i % 7 == 0 else b"v" * i,
            tuple(Header(f"schlüssel{h}", None if h == 1 else bytes([i % 256])) for h in range(i % 3)),
        )
        for i in range(count)
    ]


@pytest.mark.java
@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_java_encodes(from_java: Path, codec: Codec) -> None:
    for stamp_type, stamp in ((0, None), (1, NOW + 5)):
        encoded = (from_java / f"{codec.name.lower()}-{stamp_type}").read_bytes()
        (header,) = iter_headers(encoded)
        assert (header.codec, header.timestamp_type) == (codec, stamp_type)
        assert list(iter_records(encoded)) == java_records(1000, 300, stamp)
        assert decode(encoded) == java_records(1000, 300, stamp)


@pytest.mark.java
def test_we_tell_java_s_markers_apart(from_java: Path) -> None:
    transaction, abort, commit = ((from_java / name).read_bytes() for name in ("transaction", "abort", "commit"))
    (header,) = iter_headers(transaction)
    assert (header.transactional, header.producer_id, header.producer_epoch, header.base_sequence) == (True, 77, 4, 9)
    for marker, aborts in ((abort, True), (commit, False)):
        (header,) = iter_headers(marker)
        assert (header.control, header.producer_id, is_abort_marker(marker, header)) == (True, 77, aborts)
    assert decode(transaction + abort, aborted=[(77, 50)]) == []
    assert decode(transaction + commit, aborted=[]) == java_records(50, 20)


@pytest.mark.java
def test_java_writes_the_same_bytes_where_nothing_is_compressed(from_java: Path) -> None:
    theirs = (from_java / "none-0").read_bytes()
    assert encode_batch(java_records(1000, 300), base_offset=1000) == theirs
    theirs = (from_java / "abort").read_bytes()
    producer = Producer(producer_id=77, epoch=4)
    ours = encode_marker(offset=70, timestamp=NOW, producer=producer, commit=False, coordinator_epoch=8, leader_epoch=3)
    assert ours == theirs


@pytest.mark.java
def test_java_reads_what_we_encode(tmp_path: Path) -> None:
    batches = [
        encode_batch(java_records(1000, 300), codec=codec, last_offset=5000, producer=PRODUCER, leader_epoch=2)
        for codec in CODECS
    ]
    batches.append(encode_batch(java_records(1000, 300), codec=Codec.LZ4, log_append_time=NOW + 5))
    batches.append(encode_batch(java_records(1000, 300), delete_horizon=NOW + 1_000_000))
    batches.append(encode_batch([], base_offset=7, last_offset=12))
    batches.append(encode_marker(offset=70, timestamp=NOW, producer=PRODUCER, commit=True))
    files = []
    for index, batch in enumerate(batches):
        files.append(tmp_path / f"{index:02}")
        files[-1].write_bytes(batch)
    expected = [line for batch in batches for line in _as_java_lists(batch)]
    assert run_oracle("read", *map(str, files)) == expected


def _as_java_lists(batch: bytes) -> Sequence[str]:
    (h,) = iter_headers(batch)
    flags = f"{str(h.transactional).lower()} {str(h.control).lower()}"
    numbers = f"{h.producer_id} {h.producer_epoch} {h.base_sequence} {h.leader_epoch} {h.max_timestamp}"
    horizon = "-" if h.delete_horizon is None else str(h.delete_horizon)
    lines = [f"batch {h.base_offset} {h.last_offset} {h.codec} {h.timestamp_type} {flags} {numbers} {horizon}"]
    for record in batch_records(batch, h):
        headers = "".join(f" {_hex(key.encode())}={_hex(value)}" for key, value in record.headers)
        lines.append(f"record {record.offset} {record.timestamp} {_hex(record.key)} {_hex(record.value)}{headers}")
        if h.control:
            lines.append("marker COMMIT")
    return lines


def _hex(data: bytes | None) -> str:
    return "-" if data is None else f"x{data.hex()}"
