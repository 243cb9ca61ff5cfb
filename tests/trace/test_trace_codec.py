"""Trace records survive their way through JSON lines, and a damaged line costs nothing but itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from trace_examples import SYNCED, records

from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace import BadLine, decode, encode, read_trace
from holdfast.trace.codec import MAX_LINE_CHARS


@given(records)
def test_a_record_reads_back_as_it_was_written(record: TraceRecord) -> None:
    line = encode(record)
    assert "\n" not in line
    assert decode(line) == record


def test_equal_records_are_equal_bytes_whatever_the_order_of_their_data() -> None:
    one = TraceRecord(at=1.0, source="sim", step="s", data={"a": 1, "b": {"y": 2, "x": 3}})
    two = TraceRecord(at=1.0, source="sim", step="s", data={"b": {"x": 3, "y": 2}, "a": 1})
    assert encode(one) == encode(two)


def test_every_line_names_its_version() -> None:
    assert json.loads(encode(SYNCED))["v"] == 1


def test_a_newer_version_is_read_and_its_unknown_fields_ignored() -> None:
    fields = json.loads(encode(SYNCED)) | {"v": 7, "colour": "green"}
    assert decode(json.dumps(fields)) == SYNCED


def test_a_bad_line_is_reported_with_its_number_and_loses_nothing_else() -> None:
    good = encode(SYNCED)
    bad: list[BadLine] = []
    lines = [good, "", "{cut sho", "[]", '{"at": 1}', '{"at": "x", "source": "a", "step": "b"}', good]
    assert list(read_trace(lines, on_bad=bad.append)) == [SYNCED, SYNCED]
    assert [line.number for line in bad] == [3, 4, 5, 6]
    assert "not JSON" in str(bad[0])
    assert "without 'source'" in str(bad[2])
    assert "'at' is str" in str(bad[3])


@pytest.mark.parametrize("line", ["null", "3", "[" * 100_000, '{"at": true, "source": "a", "step": "b"}'])
def test_hostile_lines_raise_our_error_and_nothing_else(line: str) -> None:
    with pytest.raises(HoldfastError, match=r"BAD_TRACE_LINE: line 9"):
        decode(line, 9)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN"])
@pytest.mark.parametrize("field", ["at", "wall"])
def test_a_number_that_is_no_time_is_a_bad_line(field: str, number: str) -> None:
    """An integer too large for a float raised OverflowError instead, out of every reader of the file: the page stood
    still from then on, and said that it was live."""
    good = encode(SYNCED)
    damaged = json.dumps(json.loads(good) | {field: 0}).replace(f'"{field}": 0', f'"{field}": {number}')
    bad: list[BadLine] = []
    assert list(read_trace([good, damaged, good], on_bad=bad.append)) == [SYNCED, SYNCED]
    assert [line.number for line in bad] == [2] and f"{field!r} is no time" in str(bad[0])


def test_a_line_of_absurd_length_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(HoldfastError, match="more than"):
        decode(" " * (MAX_LINE_CHARS + 1) + encode(SYNCED))


def test_what_json_can_not_say_is_refused_when_written() -> None:
    with pytest.raises(HoldfastError, match="UNWRITABLE_TRACE"):
        encode(TraceRecord(at=1.0, source="sim", step="s", data={"x": float("nan")}))
