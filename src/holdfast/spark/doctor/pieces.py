"""What there is to read: the files under the paths, cut into pieces for tasks.

Plain files are cut at any byte: the reader of a piece starts after its first line feed and ends after the first line
feed beyond its end. Compressed files can't be cut. Many small files share a task.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.model import HoldfastError

PIECE_BYTES = 32 * 1024 * 1024
TASK_FILES = 2_000

COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".lz4")


@dataclass(frozen=True, slots=True)
class Found:
    path: str
    size: int
    written_ms: float
    identity: str = ""
    """Device and inode, if there are any; a renamed file keeps them."""
    start: int = 0
    """The bytes before it were read already."""
    whole: bool | None = None
    """Whether it must be read in one piece; None: decide by its name."""


def identity_of(told: os.stat_result) -> str:
    return f"{told.st_dev:x}-{told.st_ino:x}"


@dataclass(slots=True)
class Pieces:
    table: pa.Table
    tasks: int
    files: int
    size: int


def found_under(paths: Sequence[str]) -> Iterator[Found]:
    """Every file, and every file below a folder, once: links may lead to one file by many ways, or in a circle. Hidden
    ones are left out, as in Spark."""
    seen: set[str] = set()
    for path in paths:
        if "://" in path and not path.startswith("file://"):
            yield from _in_store(path)
        else:
            yield from _on_disk(path.removeprefix("file://"), seen)


def _on_disk(path: str, seen: set[str], *, named: bool = True) -> Iterator[Found]:
    """`seen` are the identities of files and folders that were found already. `named`: the user gave this path, so it
    must exist. Files found below a folder may vanish at any time."""
    start = Path(path).absolute()
    if not start.exists():
        if not named:
            return
        raise HoldfastError(
            "DOCTOR_NO_SUCH_PATH", f"{path} does not exist.", "Name files or folders with logs, traces or both."
        )
    if start.is_file():
        told = start.stat()
        if _first_time(told, seen):
            yield Found(str(start), told.st_size, told.st_mtime * 1000.0, identity_of(told))
        return
    try:
        if not _first_time(start.stat(), seen):
            return
        with os.scandir(start) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not named:
            return
        raise HoldfastError(
            "DOCTOR_UNREACHABLE_PATH", f"{start} can't be listed ({error.strerror}).", "Check its permissions."
        ) from error
    for entry in inside:
        if entry.name.startswith((".", "_")):
            continue
        try:
            told = entry.stat()
        except FileNotFoundError:  # rotated away since the listing, or a broken link
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:  # links that lead to each other, and to nothing
                raise
            continue
        if entry.is_dir():
            yield from _on_disk(entry.path, seen, named=False)
        elif entry.is_file() and _first_time(told, seen):
            yield Found(entry.path, told.st_size, told.st_mtime * 1000.0, identity_of(told))


def _first_time(told: os.stat_result, seen: set[str]) -> bool:
    identity = identity_of(told)
    new = identity not in seen
    seen.add(identity)
    return new


def _in_store(uri: str) -> Iterator[Found]:
    from pyarrow import fs

    try:
        store, inside = fs.FileSystem.from_uri(uri)
        info = store.get_file_info(inside)
        if info.type == fs.FileType.NotFound:
            raise HoldfastError("DOCTOR_NO_SUCH_PATH", f"{uri} does not exist.", "Check the address.")
        found = [info] if info.is_file else store.get_file_info(fs.FileSelector(inside, recursive=True))
    except (OSError, pa.ArrowInvalid, NotImplementedError) as error:
        raise HoldfastError(
            "DOCTOR_UNREACHABLE_PATH",
            f"{uri} can't be listed ({error}).",
            "s3://, gs://, hdfs:// and abfss:// are reached through Arrow, with the credentials of the environment.",
        ) from error
    scheme = uri.partition("://")[0]
    for each in found:
        if each.is_file and not each.base_name.startswith((".", "_")):
            yield Found(f"{scheme}://{each.path}", each.size or 0, (each.mtime_ns or 0) / 1e6)


_COLUMNS: list[pa.Field[Any]] = [
    pa.field("task", pa.int32()),
    pa.field("path", pa.string()),
    pa.field("piece", pa.int32()),
    pa.field("start", pa.int64()),
    pa.field("end", pa.int64()),
    pa.field("written_ms", pa.float64()),
    pa.field("identity", pa.string()),
]
SCHEMA = pa.schema(_COLUMNS)


def pieces_of(found: Iterator[Found], *, piece_bytes: int = PIECE_BYTES) -> Pieces:
    """Cut the files into pieces and number the tasks that read them."""
    columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
    task, task_bytes, task_files, files, total = 0, 0, 0, 0, 0
    for one in found:
        files += 1
        total += one.size - one.start
        if not one.size:
            continue
        whole = one.path.endswith(COMPRESSED) if one.whole is None else one.whole
        step = one.size if whole else piece_bytes
        for piece, start in enumerate(range(one.start, one.size, step)):
            end = min(one.size, start + step)
            if task_bytes and (task_bytes + end - start > piece_bytes or task_files >= TASK_FILES):
                task, task_bytes, task_files = task + 1, 0, 0
            row = (task, one.path, piece, start, -1 if whole else end, one.written_ms, one.identity)
            for name, value in zip(SCHEMA.names, row, strict=True):
                columns[name].append(value)
            task_bytes += end - start
            task_files += 1
    if not files:
        raise HoldfastError(
            "DOCTOR_NOTHING_TO_READ", "there is no file under the paths.", "Name files or folders with logs or traces."
        )
    table = pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
    return Pieces(table, task + 1, files, total)
