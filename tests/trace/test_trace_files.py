"""A trace on disk stays within its bounds, survives a crash's torn line, and reads back in order."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import HoldfastError, TraceRecord, Value
from holdfast.trace import BadLine, TraceFile, encode, read_trace_file
from holdfast.trace.files import rotated


def record(number: int) -> TraceRecord:
    return TraceRecord(at=float(number), source="sim", step="counted", data={"n": number})


def numbers(path: Path, *, older: bool = False) -> list[Value]:
    bad: list[BadLine] = []
    found = [r.data["n"] for r in read_trace_file(path, on_bad=bad.append, older=older)]
    assert bad == []
    return found


def test_records_are_appended_across_openings(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    for number in range(3):
        with TraceFile(path) as trace:
            trace.write(record(number))
    assert numbers(path) == [0, 1, 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_rotates_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    size = len(encode(replace(record(0), wall=0.0))) + 1
    with TraceFile(path, max_bytes=3 * size, keep=2, wall_ms=lambda: 0.0) as trace:
        for number in range(10):
            trace.write(record(number))
    assert numbers(path) == [9]
    assert numbers(path, older=True) == [3, 4, 5, 6, 7, 8, 9]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.trace", "t.trace.1", "t.trace.2"]
    assert all(p.stat().st_size <= 3 * size for p in tmp_path.iterdir())


def test_keeping_none_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    with TraceFile(path, max_bytes=1, keep=0) as trace:
        for number in range(3):
            trace.write(record(number))
    assert numbers(path) == [2]
    assert not rotated(path, 1).exists()


def test_a_line_torn_by_a_crash_does_not_swallow_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    path.write_text(encode(record(0)) + "\n" + encode(record(1))[:20])
    with TraceFile(path) as trace:
        trace.write(record(2))
    bad: list[BadLine] = []
    assert [r.data["n"] for r in read_trace_file(path, on_bad=bad.append)] == [0, 2]
    assert [line.number for line in bad] == [2]


def test_a_missing_or_forbidden_place_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="NO_TRACE"):
        TraceFile(tmp_path / "no" / "t.trace")
    with pytest.raises(HoldfastError, match="NO_TRACE"):
        list(read_trace_file(tmp_path / "none", on_bad=print))
    with pytest.raises(HoldfastError, match="BAD_TRACE_LIMIT"):
        TraceFile(tmp_path / "t.trace", max_bytes=0)


def test_a_path_may_be_text(tmp_path: Path) -> None:
    """As docs/trace.md shows it, with the name that was given to `holdfast.trace.file`: it was an AttributeError."""
    path = str(tmp_path / "t.trace")
    with TraceFile(path, max_bytes=1) as trace:
        trace.write(record(0))
        trace.write(record(1))
    assert [r.data["n"] for r in read_trace_file(path, on_bad=print, older=True)] == [0, 1]
