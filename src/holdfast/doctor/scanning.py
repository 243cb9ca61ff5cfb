"""Events from a piece of a file. Only lines that may be useful are looked at one by one.

Nearly all lines of a broker's log are about other things. So a piece is searched, as bytes, for the few words that
every useful line has, and only the lines around a hit are decoded and parsed. The others are counted by their line
feeds. Tests read the same samples line by line and compare.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.doctor import broker_lines, client_lines, trace_lines
from holdfast.doctor.events import FIELDS, TRACE, Event, plausible
from holdfast.doctor.times import NO_TIME, dated, unwrapped, written_ms
from holdfast.model import TRACE_VERSION

MARKS = (b"[GroupCoordinator", b"[GroupMetadataManager", b"clientId=", b"[thrd:", b'"step":"', b"CONSUMER-ID",
         b'\\"step\\":\\"')  # fmt: skip
"""Every line that can be understood has one of these. The last is a trace line inside docker's JSON."""

MAX_LINE_BYTES = 1_048_576
"""A longer line is damage or a dump: a plan of 10,000 partitions takes a tenth of this."""

SHAPES_KEPT, SHAPE_CHARS = 50, 160

_TEXTS = tuple(name for name in FIELDS if name not in ("at_ms", "generation", "number", "line"))
_VERSION = re.compile(r'"v":(\d{1,9})')
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(slots=True)
class Scanned:
    """What a piece of a file held."""

    events: list[Event] = field(default_factory=list)
    lines: int = 0
    known: int = 0
    """Lines that were understood, whether or not they say anything about a group's history."""
    strange: Counter[str] = field(default_factory=Counter)
    """Lines about groups that were not understood, by their shape: numbers and ids are replaced."""
    newer: int = 0
    """Trace lines of a newer version than ours."""
    too_long: int = 0

    def add(self, other: Scanned) -> None:
        self.events += other.events
        self.lines += other.lines
        self.known += other.known
        self.newer += other.newer
        self.too_long += other.too_long
        self.strange.update(other.strange)

    def puzzled(self, text: str) -> None:
        shape = _VARYING.sub("#", text[:SHAPE_CHARS])
        if shape in self.strange or len(self.strange) < SHAPES_KEPT:
            self.strange[shape] += 1
        else:
            self.strange["(others)"] += 1


def scan(data: bytes, *, file: str = "", first_line: int = 1, last_ms: float = NO_TIME) -> Scanned:
    """The events of a piece that begins at the start of a line. `last_ms` is when its file was written last."""
    found = Scanned()
    starts = _candidates(data)
    counted_to, number = 0, first_line
    header: tuple[str, ...] | None = None
    at = 0
    while at < len(starts):
        start, end = starts[at]
        at += 1
        number += data.count(b"\n", counted_to, start)
        counted_to = start
        if end - start > MAX_LINE_BYTES:
            found.too_long += 1
            continue
        text = data[start:end].decode("utf-8", "replace").rstrip("\r")
        header = trace_lines.header_of(text)
        if header is not None:
            found.known += 1
            for row_number, row in _rows(data, end, number):
                event = trace_lines.parse_described(row, header)
                if event is None or not plausible(event):
                    break
                event.file, event.line = file, row_number
                found.events.append(event)
                found.known += 1
            continue
        _one(text, found, file, number, last_ms)
    found.lines = data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)
    last = data.rfind(b"\n") + 1
    if len(data) - last > MAX_LINE_BYTES and (not starts or starts[-1][0] < last):
        found.too_long += 1  # the reader hands over the beginning of a line that is far too long
    return found


def _candidates(data: bytes) -> list[tuple[int, int]]:
    """Where each line with a mark begins and ends, in order."""
    found: dict[int, int] = {}
    for mark in MARKS:
        at = data.find(mark)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            found[start] = end
            at = data.find(mark, end)
    return sorted(found.items())


def _rows(data: bytes, end: int, number: int) -> Iterator[tuple[int, str]]:
    """The lines after a table's header, up to an empty one."""
    while end < len(data) - 1:
        following = data.find(b"\n", end + 1)
        following = len(data) if following < 0 else following
        text = data[end + 1 : following].decode("utf-8", "replace").strip()
        if not text:
            return
        number += 1
        yield number, text
        end = following


def _one(text: str, found: Scanned, file: str, number: int, last_ms: float) -> None:
    read = _understood(text)
    if isinstance(read, Event):
        if last_ms == last_ms and read.source != TRACE:  # a trace always has its date
            read.at_ms = dated(read.at_ms, last_ms)
        read.file, read.line = file, number
        found.events.append(read)
    if read is False:
        found.puzzled(text)
    else:
        found.known += 1
        if '"step":"' in text and (version := _VERSION.search(text)) and int(version[1]) > TRACE_VERSION:
            found.newer += 1


def _understood(text: str) -> Event | bool:
    """As `parse_line`, for lines that may be damaged in any way: none of them may end the job."""
    try:
        read = parse_line(text)
    except (ValueError, OverflowError):  # a number of thousands of digits
        return False
    if not isinstance(read, Event):
        return read
    if "\\u" in text:  # JSON can escape half a character, which no encoding can write
        for name in _TEXTS:
            setattr(read, name, getattr(read, name).encode("utf-8", "replace").decode())
    return read if plausible(read) else False


def parse_line(text: str) -> Event | bool:
    """The line's event; True if the line is known and holds none; False if it is not understood."""
    text, shipped = unwrapped(text)
    if text.startswith("{"):
        return trace_lines.parse_trace(text)
    at_ms = written_ms(text, shipped)
    if "[thrd:" in text:
        return client_lines.parse_librdkafka(text, at_ms)
    if "clientId=" in text and "groupId=" in text and "MemberMetadata(" not in text:
        return client_lines.parse_java(text, at_ms)
    if "[GroupCoordinator" in text or "[GroupMetadataManager" in text:
        return broker_lines.parse(text, at_ms)
    return True  # a line of another client, or of an application that happens to use one of the words
