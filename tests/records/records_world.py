"""What the tests of `holdfast.records` share: records drawn by hypothesis, and Arrow rows as plain records again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa
from hypothesis import strategies as st

from holdfast.records.arrow import ArrowDecoder
from holdfast.records.batch import Header, Record
from holdfast.records.compression import Codec

CODECS = list(Codec)
NOW = 1_760_000_000_000
MICROS_MAX = 2**63 - 1

_bytes = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 9000])
_headers = st.lists(st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
_timestamps = st.integers(-1, 2**43) | st.integers(NOW - 5000, NOW + 5000)


@st.composite
def record_lists(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 12, gaps: bool = True) -> list[Record]:
    """Records whose offsets rise, with gaps as compaction leaves them, and timestamps in any order."""
    size = draw(st.integers(min_size, max_size))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 70, 10_000] if gaps else [1]), min_size=size, max_size=size))
    offsets = accumulate(steps, initial=draw(st.integers(0, 2**40)))
    return [
        Record(offset, draw(_timestamps), draw(_bytes), draw(_bytes), draw(_headers))
        for offset, _ in zip(offsets, steps, strict=False)
    ]


def plain(number: int, *, offset: int = 0, size: int = 20) -> list[Record]:
    """`number` ordinary records from `offset` on."""
    return [
        Record(offset + index, NOW + index, b"k%d" % index, (b"v%d-" % index).ljust(size, b"."))
        for index in range(number)
    ]


def rows(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    """Arrow rows as records. Every batch is checked from end to end by Arrow itself first."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, micros in zip(batch.drop_columns(["timestamp"]).to_pylist(), timestamps, strict=True):
            assert micros is not None
            headers = tuple(Header(h["key"], h["value"]) for h in row.get("headers") or ())
            millis = micros // 1000 if abs(micros) < MICROS_MAX else micros
            found.append(Record(row["offset"], millis, row["key"], row["value"], headers))
    return found


def decode(
    records: bytes,
    *,
    lo: int = 0,
    hi: int = 2**63 - 1,
    aborted: Sequence[tuple[int, int]] | None = None,
    max_rows: int | None = None,
) -> list[Record]:
    """Everything that the fast path makes of one Fetch answer, headers included."""
    decoder = ArrowDecoder(include_headers=True)
    decoder.feed(records, topic="t", partition=0, lo=lo, hi=hi, aborted=aborted)
    taken = []
    while (batch := decoder.take(max_rows=max_rows)) is not None:
        taken.append(batch)
    return rows(taken)
