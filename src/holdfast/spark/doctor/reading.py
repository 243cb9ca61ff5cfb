"""What an executor does with its pieces: bytes to events, as Arrow record batches.

Each piece also gives one row of kind `READ` with what was read of it: lines, lines understood, the shapes of those that
were not, and what was wrong with the file. A truncated archive is read up to the cut; a binary file is not read; both
are reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import IOBase
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from holdfast.doctor.events import FIELDS, Event, as_row
from holdfast.doctor.scanning import Scanned, scan

READ = "#read"
"""The kind of the row that says how much was read of a piece. It has the columns of an event, see READ_COLUMNS."""

READ_COLUMNS = {"lines": "number", "known": "generation", "newer": "line", "size": "at_ms"}
"""Of a READ row: what it counts (`job.Read` says what that is), and the event's column in which it is."""

TOO_LONG = "has lines that are longer than 1 MiB and were passed over: {}"
CHUNK_BYTES = 8 * 1024 * 1024
BLOCK_BYTES = 256 * 1024
HEAD_BYTES = 8_192
BATCH_EVENTS = 20_000
SHAPES_SENT = 20
"""Shapes of lines that were not understood, of one piece: the most frequent."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

_TYPES: dict[str, tuple[pa.DataType, str]] = {
    "at_ms": (pa.float64(), "DOUBLE"),
    "number": (pa.float64(), "DOUBLE"),
    "generation": (pa.int32(), "INT"),
    "line": (pa.int64(), "BIGINT"),
    "piece": (pa.int32(), "INT"),
}
_COLUMNS = [(name, *_TYPES.get(name, (pa.string(), "STRING"))) for name in (*FIELDS, "piece")]
EVENTS = pa.schema([pa.field(name, kind) for name, kind, _ in _COLUMNS])
DDL = ", ".join(f"`{name}` {word}" for name, _, word in _COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    path: str
    piece: int
    start: int
    end: int
    """-1: the whole file."""
    written_ms: float
    identity: str = ""


def read_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`."""
    waiting: list[tuple[Event, int]] = []
    for batch in batches:
        for row in batch.to_pylist():
            row.pop("task")
            piece = Piece(**row)
            for event in events_of(piece):
                waiting.append((event, piece.piece))
                if len(waiting) >= BATCH_EVENTS:
                    yield as_batch(waiting)
                    waiting = []
    if waiting:
        yield as_batch(waiting)


def as_batch(events: list[tuple[Event, int]]) -> pa.RecordBatch:
    columns = list(zip(*((*as_row(event), piece) for event, piece in events), strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EVENTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def events_of(piece: Piece) -> Iterator[Event]:
    """The events of a piece, then its READ row. Lines are numbered from the piece's start."""
    read, problem, size = Scanned(), "", 0
    try:
        for data in chunks(piece):
            size += len(data)
            one = scan(data, file=piece.path, first_line=read.lines + 1, last_ms=piece.written_ms)
            yield from one.events
            one.events = []
            read.add(one)
    except Unreadable as error:
        problem = str(error)
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
    yield read_row(read, file=piece.path, problem=problem, size=size)


def read_row(read: Scanned, *, file: str, problem: str = "", size: int = 0) -> Event:
    """What was read, in the columns of an event: the counts by READ_COLUMNS; `said` is what is wrong with the file,
    `partitions` the shapes of lines that were not understood."""
    if read.too_long:
        problem = problem or TOO_LONG.format(read.too_long)
    return Event(
        at_ms=float(size), kind=READ, source="", file=file, number=float(read.lines), generation=read.known,
        line=read.newer, said=problem, partitions=json.dumps(dict(read.strange.most_common(SHAPES_SENT))),
    )  # fmt: skip


class Unreadable(Exception):
    """Its text says what is wrong with a file."""


def chunks(piece: Piece) -> Iterator[bytes]:
    """The piece's bytes in chunks of whole lines. A very long line is cut."""
    with opened_piece(piece) as file:
        head = file.read(HEAD_BYTES) if piece.start == 0 else b""
        if head.startswith(GZIP):
            yield from _lines(_gunzipped(file, head))
        elif head.startswith(ZSTD):
            yield from _lines(_unzstd(file, head))
        elif b"\0" in head:
            raise Unreadable("is binary, and no log: left alone")
        else:
            yield from _lines(_plain(file, piece))


def _plain(file: BinaryIO, piece: Piece) -> Iterator[bytes]:
    """The lines that begin in the piece. A line that is cut by its start belongs to the piece before."""
    end, last = piece.end if piece.end >= 0 else 1 << 62, b"\n"
    at = _first_line(file, piece.start, end)
    file.seek(at)
    while at < end:
        data = file.read(min(CHUNK_BYTES, end - at))
        if not data:
            return
        at += len(data)
        last = data[-1:]
        yield data
    while last != b"\n":
        data = file.read(BLOCK_BYTES)
        feed = data.find(b"\n") + 1
        if feed or not data:
            yield data[:feed]
            return
        yield data


def _first_line(file: BinaryIO, start: int, end: int) -> int:
    """Where the first line begins that is not before `start`; `end` if none begins before that. One line may be longer
    than many pieces, and none of them may look for its end beyond its own."""
    at = start - 1
    file.seek(max(0, at))
    while 0 <= at < end:
        data = file.read(min(BLOCK_BYTES, end - at))
        feed = data.find(b"\n")
        if feed >= 0:
            return at + feed + 1
        if not data:
            return end
        at += len(data)
    return 0 if at < 0 else end


def _gunzipped(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    """A file may hold several gzip members; together they are one text. What is before a cut is not lost. A chunk is
    bounded after decompression: of a log that says the same again and again, a thousandth is left in the archive."""
    data, inflate = head, zlib.decompressobj(31)
    while True:
        try:
            yield inflate.decompress(data, CHUNK_BYTES)
        except zlib.error as error:
            raise Unreadable(f"is damaged: what is before the damage was read ({error})") from error
        if not inflate.eof:
            data = inflate.unconsumed_tail or file.read(CHUNK_BYTES // 4)
            if data:
                continue
            yield inflate.flush()  # the last chunk may have been full
        if not inflate.eof:
            raise Unreadable("is cut short: what is before the cut was read")
        data, inflate = inflate.unused_data or file.read(CHUNK_BYTES), zlib.decompressobj(31)
        if not data:
            return


def _unzstd(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    file.seek(0)
    with pa.CompressedInputStream(pa.PythonFile(cast(IOBase, file), "r"), "zstd") as stream:
        while True:
            try:
                data = stream.read(CHUNK_BYTES)
            except OSError as error:
                raise Unreadable(f"is damaged or cut short: what is before that was read ({error})") from error
            if not data:
                return
            yield data


def _lines(data: Iterator[bytes]) -> Iterator[bytes]:
    """Cut the data after a line feed. Of what is too long for a line only the beginning is passed on, so that it is one
    line to whoever counts them."""
    rest, passed = b"", False  # passed: the beginning of the line that is being read was passed on
    try:
        for one in data:
            start = one.find(b"\n") + 1 if passed else 0
            if passed and not start:
                continue
            passed = False
            end = one.rfind(b"\n") + 1
            if end > start:
                yield rest + one[start:end]
                rest = one[end:]
            else:
                rest += one[start:]
                if len(rest) > 2 * CHUNK_BYTES:
                    yield rest
                    rest, passed = b"", True
    except Unreadable:
        if rest:
            yield rest
        raise
    if rest:
        yield rest


def opened_piece(piece: Piece) -> BinaryIO:
    """Open the file with the piece's inode, because a rotation may have put another file under its name, or none yet.
    The device is not compared: two hosts number the same device differently."""
    inode = piece.identity.rpartition("-")[2]
    if not inode or "://" in piece.path:
        return _opened(piece.path)
    with contextlib.suppress(FileNotFoundError):
        file = _opened(piece.path)
        if _inode(file.fileno()) == inode:
            return file
        file.close()
    for path in _renamed(piece.path, inode):
        file = _opened(path)
        if _inode(file.fileno()) == inode:
            return file
        file.close()
    raise Unreadable("was rotated away before it was read: what was new in it is lost")


def _renamed(path: str, inode: str) -> Iterator[str]:
    """Files with this inode in the path's folder. Others are not opened: they may be somebody else's."""
    with os.scandir(Path(path).parent) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if f"{entry.stat().st_ino:x}" == inode and entry.is_file():
                    yield entry.path


def _inode(number: int) -> str:
    return f"{os.fstat(number).st_ino:x}"


def _opened(path: str) -> BinaryIO:
    if "://" not in path:
        return Path(path).open("rb")
    from pyarrow import fs

    scheme, _, inside = path.partition("://")
    store, _ = fs.FileSystem.from_uri(f"{scheme}://{inside.partition('/')[0]}")
    return store.open_input_file(inside)  # type: ignore[return-value]  # Arrow's own files behave as Python's
