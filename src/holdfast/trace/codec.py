"""Trace records as JSON lines: one object a line, the version first in every one.

Rules. Equal records are equal bytes: keys are sorted, fields at their default are left out. A reader takes any version:
a field is never renamed or given a second meaning, so what it does not know it ignores. A line that can't be read is
reported with its number and skipped; the lines around it are not lost.

This module must not know files or how a record looks to people.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model import TRACE_VERSION, HoldfastError, TraceRecord

MAX_LINE_CHARS = 1_048_576
"""A record of a group with 10,000 partitions has about 100,000 characters; ten times that is damage, not a record."""

MAX_QUOTE_CHARS = 80
"""How much of a bad line an error repeats."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a trace that is not a record."""

    number: int
    """Counted from 1, as editors do."""
    what: str
    text: str
    """Its beginning."""

    def __str__(self) -> str:
        return f"line {self.number}: {self.what}: {self.text!r}"

    def error(self) -> HoldfastError:
        return HoldfastError(
            "BAD_TRACE_LINE",
            f"{self} is not a trace record.",
            "The other lines were read. A line cut short is what a crash leaves at the end of a file.",
        )


def encode(record: TraceRecord) -> str:
    """One line, without its line feed."""
    fields: dict[str, object] = {"v": TRACE_VERSION, "at": record.at, "source": record.source, "step": record.step}
    for name in ("group", "member"):
        if value := getattr(record, name):
            fields[name] = value
    for name in ("generation", "cause", "culprit", "wall"):
        if (value := getattr(record, name)) is not None:
            fields[name] = value
    if record.data:
        fields["data"] = record.data
    try:
        return _ENCODER.encode(fields)
    except ValueError as error:
        raise HoldfastError(
            "UNWRITABLE_TRACE",
            f"the record of step {record.step!r} holds a value that JSON can't express ({error}).",
            "Put only finite numbers, text, lists and maps into its `data`.",
        ) from error


def decode(line: str, number: int = 1) -> TraceRecord:
    """The record of one line. Raises BAD_TRACE_LINE, with the line's number, if it is not a record."""
    result = _read_line(line, number)
    if isinstance(result, BadLine):
        raise result.error()
    return result


def read_trace(lines: Iterable[str], *, on_bad: Callable[[BadLine], None]) -> Iterator[TraceRecord]:
    """The records of many lines. Empty lines are skipped; bad ones go to `on_bad`, and reading goes on."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        result = _read_line(line, number)
        if isinstance(result, BadLine):
            on_bad(result)
        else:
            yield result


def _read_line(line: str, number: int) -> TraceRecord | BadLine:
    def bad(what: str) -> BadLine:
        return BadLine(number, what, line[:MAX_QUOTE_CHARS].rstrip("\n"))

    if len(line) > MAX_LINE_CHARS:
        return bad(f"{len(line)} characters, more than {MAX_LINE_CHARS}")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        return bad(f"not JSON ({error})")
    if not isinstance(fields, dict):
        return bad("not a JSON object")
    wrong = _first_wrong_field(fields)
    if wrong is not None:
        return bad(wrong)
    return TraceRecord(
        at=float(fields["at"]),
        source=fields["source"],
        step=fields["step"],
        group=fields.get("group", ""),
        member=fields.get("member", ""),
        generation=fields.get("generation"),
        cause=fields.get("cause"),
        culprit=fields.get("culprit"),
        data=fields.get("data", {}),
        wall=fields.get("wall"),
    )


_NEEDED: Mapping[str, tuple[type, ...]] = {"at": (int, float), "source": (str,), "step": (str,)}
_OPTIONAL: Mapping[str, tuple[type, ...]] = {
    "group": (str,),
    "member": (str,),
    "generation": (int, type(None)),
    "cause": (str, type(None)),
    "culprit": (str, type(None)),
    "data": (dict,),
    "wall": (int, float, type(None)),
}


def _first_wrong_field(fields: dict[str, Any]) -> str | None:
    for name, types in _NEEDED.items():
        if name not in fields:
            return f"without {name!r}"
        if type(fields[name]) not in types:
            return f"{name!r} is {type(fields[name]).__name__}"
    for name, types in _OPTIONAL.items():
        if name in fields and type(fields[name]) not in types:
            return f"{name!r} is {type(fields[name]).__name__}"
    for name in ("at", "wall"):
        if not _is_a_time(fields.get(name)):
            return f"{name!r} is no time"
    return None


def _is_a_time(value: float | None) -> bool:
    """JSON's numbers have no bounds: a damaged one is infinite, or an integer that no float can hold."""
    try:
        return value is None or math.isfinite(value)
    except OverflowError:
        return False
