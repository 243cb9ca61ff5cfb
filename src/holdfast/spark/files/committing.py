"""What the driver does when all tasks have written: it adds their files to the ledger, or removes them.

For each partition it looks where the ledger ends. Files after that offset are added as they are. Files before it are
dropped: another writer was faster. A file on both sides is written again without the rows that are already in.
Partitions are independent of each other, so they are committed in parallel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import new_name_beside
from holdfast.spark.files.ledger import Addition, FileRef, Ledger
from holdfast.spark.files.parquet import compression_of, from_offset, offsets_of, parquet_writer
from holdfast.spark.files.store import Store
from holdfast.spark.files.writing import Written

COMMITTERS = 8
"""Partitions committed at once: a commit waits for the disk, not for the processor."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a batch added. `dropped_rows` were already in: left out by the tasks, or dropped by the driver."""

    rows: int = 0
    files: int = 0
    dropped_rows: int = 0


Cut = Callable[[Store, TopicPartition, FileRef, int], FileRef]
"""Writes the rows of a file from an offset on as a new file."""


def commit_files(store: Store, written: Iterable[Written], *, columns: Columns, writer: str = "") -> Committed:
    """Add a batch's files to the ledger. May be repeated, also with the rows cut into other files: rows go in once."""

    def cut(where: Store, partition: TopicPartition, file: FileRef, end: int) -> FileRef:
        return cut_parquet(where, partition, file, end, columns)

    by_partition: dict[TopicPartition, list[FileRef]] = {}
    left_out = 0
    for one in written:
        left_out += one.dropped
        if one.file is not None:
            by_partition.setdefault(one.partition, []).append(one.file)
    if not by_partition:
        return Committed(dropped_rows=left_out)

    def commit(item: tuple[TopicPartition, list[FileRef]]) -> Committed:
        return commit_partition(store, item[0], item[1], cut=cut, writer=writer)

    items = sorted(by_partition.items())
    with ThreadPoolExecutor(min(COMMITTERS, len(items))) as pool:
        done = list(pool.map(commit, items))
    return Committed(
        rows=sum(one.rows for one in done),
        files=sum(one.files for one in done),
        dropped_rows=left_out + sum(one.dropped_rows for one in done),
    )


def commit_partition(
    store: Store, partition: TopicPartition, files: Sequence[FileRef], *, cut: Cut, writer: str = ""
) -> Committed:
    """Add one partition's files. Files that don't get in are removed, unless it is in doubt whether they did."""
    ours = {file.name for file in files}

    def choose(end: int | None) -> Addition | None:
        kept = [file for file in sorted(files, key=lambda f: (f.first, f.name)) if end is None or file.last >= end]
        whole = [file if end is None or file.first >= end else cut(store, partition, file, end) for file in kept]
        if not whole:
            return None
        ours.update(file.name for file in whole)
        for file in whole:
            if not store.touch(file.name):
                raise _missing(file.name)
        return Addition(min(f.first for f in whole), max(f.last for f in whole) + 1, tuple(whole))

    done = Ledger(store, partition).append(choose, writer=writer)
    added = () if done.entry is None else done.entry.files
    if not done.doubtful:
        for name in sorted(ours - {file.name for file in added}):
            with contextlib.suppress(OSError):
                store.remove(name)
    rows = sum(file.rows for file in added)
    return Committed(rows=rows, files=len(added), dropped_rows=sum(file.rows for file in files) - rows)


def cut_parquet(store: Store, partition: TopicPartition, file: FileRef, end: int, columns: Columns) -> FileRef:
    """The rows of a Parquet file from offset `end` on, as a new file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = new_name_beside(file.name)
    rows, first, last = 0, -1, -1
    with store.open(file.name) as source, store.writing(name) as target:
        old = pq.ParquetFile(source)
        with parquet_writer(target, old.schema_arrow, compression_of(old)) as new:
            for batch in old.iter_batches():
                kept = from_offset(batch, columns.offset, end)
                if kept.num_rows:
                    new.write_table(pa.Table.from_batches([kept]))
                    low, high = offsets_of(kept, columns.offset)
                    rows, first, last = rows + kept.num_rows, low if first < 0 else min(first, low), max(last, high)
        size = target.tell()
    return FileRef(name=name, rows=rows, bytes=size, first=first, last=last, schema=file.schema)


def _missing(name: str) -> HoldfastError:
    return HoldfastError(
        "DATA_FILE_MISSING",
        f"{name} was written by this batch and is gone.",
        "Run `holdfast pipeline clean` with an --older-than longer than the longest batch. The batch is done again.",
    )
