"""Memory under Arrow batches: used again once a batch is gone, never while somebody still looks at it."""

from __future__ import annotations

import gc

import pyarrow as pa
from records_world import plain, rows

from holdfast.records.arrow import ArrowDecoder, empty_batch
from holdfast.records.columns import SCHEMA_WITH_HEADERS
from holdfast.records.encode import encode_batch
from holdfast.records.slabs import ALIGNMENT_BYTES, Slabs

LARGE = 1_000_000


def test_a_block_is_used_again_when_its_buffer_is_gone() -> None:
    slabs = Slabs()
    buffer = slabs.take(LARGE)
    address = buffer.address
    del buffer
    assert slabs.take(LARGE).address == address


def test_a_block_is_not_used_again_while_a_slice_of_it_lives() -> None:
    slabs = Slabs()
    kept = [slabs.take(LARGE).slice(100, 10) for _ in range(10)]
    assert len({buffer.address for buffer in kept}) == 10


def test_blocks_come_aligned_and_large_enough() -> None:
    slabs = Slabs()
    for size in (1, 300_000, 300_001, LARGE, 3 * LARGE):
        buffer = slabs.take(size)
        assert buffer.size >= size
        assert buffer.address % ALIGNMENT_BYTES == 0


def test_a_small_buffer_does_not_hold_a_large_block() -> None:
    slabs = Slabs()
    slabs.take(10 * LARGE)
    gc.collect()
    small = slabs.take(LARGE)
    assert small.size < 2 * LARGE


def test_only_the_last_few_blocks_are_kept() -> None:
    slabs = Slabs()
    held = [slabs.take(LARGE) for _ in range(20)]
    assert 4 * LARGE <= slabs.kept_bytes < 5 * LARGE * 5 // 4
    assert len(held) == 20


def test_batches_that_are_kept_stay_what_they_were() -> None:
    """Symptom to prevent: a batch that changes under its reader when the next one is decoded into the same memory."""
    decoder = ArrowDecoder(max_rows=3000)
    records = plain(30_000, size=100)
    kept: list[pa.RecordBatch] = []
    for at in range(0, len(records), 5000):
        decoder.feed(encode_batch(records[at : at + 5000]), topic="t", partition=0, lo=at)
        for index, batch in enumerate(decoder.drain()):
            if index % 2 == 0:
                kept.append(batch)
            del batch
    column = kept[0].column("value")
    expected = [value for batch in kept for value in batch.column("offset").to_pylist()]
    found = rows(kept)
    assert [record.offset for record in found] == expected
    assert found == [records[offset] for offset in expected]
    del kept
    decoder.feed(encode_batch(plain(5000, size=100)), topic="u", partition=0, lo=0)
    list(decoder.drain())
    assert column[0].as_py() == records[0].value


def test_an_empty_batch_has_the_schema_and_no_rows() -> None:
    batch = empty_batch(include_headers=True)
    assert batch.num_rows == 0
    assert batch.schema.equals(SCHEMA_WITH_HEADERS)
