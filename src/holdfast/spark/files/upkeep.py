"""Compaction and cleaning of a sink while it is written and read: merge small files, remove leftovers.

Compaction writes merged files, then one snapshot per partition that lists them, created exclusively: readers see the
old list or the new one. It deletes nothing. Cleaning deletes, and a file stays as long as anything refers to it. First
it removes entries that a snapshot has covered for longer than the grace period, and snapshots superseded for that long.
Then it removes data files to which no entry and no snapshot refers, and which were not touched within the grace period.
So a reader with an old list, and a writer with a running batch, have the grace period to finish.

Compaction may take longer than the grace period. Until its snapshot exists, nothing refers to the merged files, so it
touches all of them whenever another one is written, the last time right before the snapshot; if one is gone, it stops.
Removing and touching exclude each other (`Store.remove_untouched`).

What has a name that the sink does not give (`layout`) is somebody else's, and stays where it is.

Time is an argument. This module knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import (
    DATA,
    LEDGER,
    SCHEMAS,
    data_folder_of,
    is_data_file,
    new_name_beside,
    parent_of,
)
from holdfast.spark.files.ledger import Content, FileRef, Ledger, Snapshot
from holdfast.spark.files.parquet import ROW_GROUP_ROWS, compression_of, parquet_writer
from holdfast.spark.files.sink import partitions_of, partitions_under
from holdfast.spark.files.store import Store

TARGET_BYTES = 128 * 1024 * 1024
"""Files of less than half this size are merged, up to this size. Readers gain nothing from larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What compaction did to one partition."""

    partition: TopicPartition
    files_before: int
    files_after: int
    entries: int
    """How many entries the new snapshot covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What cleaning removed, or would remove."""

    entries: int = 0
    snapshots: int = 0
    data_files: int = 0
    bytes: int = 0
    unfinished: int = 0


def compact(
    store: Store,
    *,
    target_bytes: int = TARGET_BYTES,
    merge: Callable[[Store, TopicPartition, Sequence[FileRef]], FileRef] | None = None,
) -> list[Compacted]:
    """Merge small files of every partition and shorten its ledger. Partitions with nothing to do are left out."""
    done = [_compact_partition(store, p, target_bytes, merge or merge_parquet) for p in partitions_of(store)]
    return [one for one in done if one is not None]


def _compact_partition(
    store: Store,
    partition: TopicPartition,
    target_bytes: int,
    merge: Callable[[Store, TopicPartition, Sequence[FileRef]], FileRef],
) -> Compacted | None:
    ledger = Ledger(store, partition)
    content = ledger.load()
    groups = mergeable(content.files, target_bytes)
    if content.end is None or (not content.entries and all(len(group) == 1 for group in groups)):
        return None
    try:
        files, new = _merged(store, partition, groups, merge)
    except FileNotFoundError:  # a file that was to be merged is gone
        if ledger.load().snapshot == content.snapshot:
            raise
        return None  # another process has compacted and cleaned
    if not ledger.add_snapshot(_snapshot(content, files)):
        for file in new:  # another process was faster; nothing refers to our files
            store.remove(file.name)
        return None
    return Compacted(
        partition=partition, files_before=len(content.files), files_after=len(files), entries=content.entries
    )


def _merged(
    store: Store,
    partition: TopicPartition,
    groups: Sequence[Sequence[FileRef]],
    merge: Callable[[Store, TopicPartition, Sequence[FileRef]], FileRef],
) -> tuple[list[FileRef], list[FileRef]]:
    """One file for each group, and those among them that are new."""
    files: list[FileRef] = []
    new: list[FileRef] = []
    for group in groups:
        if len(group) > 1:
            new.append(merge(store, partition, group))
            _touch(store, new)
        files.append(group[0] if len(group) == 1 else new[-1])
    return files, new


def _touch(store: Store, files: Sequence[FileRef]) -> None:
    """Keep `clean` from removing files that are in no snapshot yet. A file it has removed must not get into one."""
    for file in files:
        if not store.touch(file.name):
            raise HoldfastError(
                "COMPACTION_OVERTAKEN",
                f"{file.name} was written by this compaction and is gone.",
                "Nothing is lost: the files it was to replace still count. Run `holdfast pipeline clean` with an "
                "--older-than of hours, then compact again.",
            )


def _snapshot(content: Content, files: Sequence[FileRef]) -> Snapshot:
    assert content.start is not None
    assert content.end is not None
    return Snapshot(
        number=content.snapshot + 1, through=content.tip, start=content.start, end=content.end, files=tuple(files)
    )


def mergeable(files: Sequence[FileRef], target_bytes: int) -> list[list[FileRef]]:
    """The files, in order, in groups that become one file each: small neighbours in a folder, with one schema."""
    groups: list[list[FileRef]] = []
    last: dict[str, tuple[list[FileRef], int]] = {}
    """By folder: the group that may still grow, and by how many bytes."""
    for file in files:
        small = file.bytes < target_bytes // 2
        group, room = last.get(parent_of(file.name), ([], 0))
        if small and group and group[-1].schema == file.schema and file.bytes <= room:
            group.append(file)
            room -= file.bytes
        else:
            group, room = [file], target_bytes - file.bytes if small else 0
            groups.append(group)
        last[parent_of(file.name)] = group, room
    return groups


def merge_parquet(store: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
    """Write files of one schema as one file, with the rows in the same order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = new_name_beside(files[0].name)
    with store.open(files[0].name) as first:
        opened = pq.ParquetFile(first)
        schema = opened.schema_arrow
        compression = compression_of(opened)
    with store.writing(name) as target:
        with parquet_writer(target, schema, compression) as writer:
            waiting: list[pa.RecordBatch] = []
            for file in files:
                with store.open(file.name) as source:
                    for batch in pq.ParquetFile(source).iter_batches():
                        waiting.append(batch.cast(schema))
                        if sum(part.num_rows for part in waiting) >= ROW_GROUP_ROWS:
                            writer.write_table(pa.Table.from_batches(waiting))
                            waiting = []
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting))
        size = target.tell()
    return FileRef(
        name=name,
        rows=sum(file.rows for file in files),
        bytes=size,
        first=min(file.first for file in files),
        last=max(file.last for file in files),
        schema=files[0].schema,
    )


def clean(store: Store, *, now: float, grace_s: float, dry_run: bool = False) -> Cleaned:
    """Remove what nobody can need any more; see the module's docstring. With `dry_run` only count."""
    before = now - grace_s
    totals = {"entries": 0, "snapshots": 0, "data_files": 0, "bytes": 0, "unfinished": 0}

    def remove(kind: str, name: str) -> None:
        if not dry_run:
            store.remove(name)
        totals[kind] += 1

    def remove_data(name: str) -> None:
        size = store.size(name) or 0
        if dry_run or store.remove_untouched(name, before):
            totals["data_files"] += 1
            totals["bytes"] += size

    def remove_unfinished(*folders: str) -> None:
        for name in (name for folder in folders for name in store.leftovers(folder)):
            if _older(store, name, before):
                remove("unfinished", name)

    for partition in partitions_under(store, LEDGER, DATA):  # some may have data but no entry yet
        ledger = Ledger(store, partition)
        expired = _expired(store, ledger, before)
        for kind, name in expired:
            remove(kind, name)
        folders = _data_folders(store, data_folder_of(partition))
        for folder in folders:
            store.put_back(folder, is_data_file)
        referenced = _referenced(store, ledger, without={name for _, name in expired})
        for name in (f"{folder}/{file}" for folder in folders for file in store.names(folder) if is_data_file(file)):
            if name not in referenced and _older(store, name, before):
                remove_data(name)
        remove_unfinished(*folders, ledger.entries_folder, ledger.snapshots_folder)
    remove_unfinished(SCHEMAS, "_holdfast")
    return Cleaned(**totals)


def _data_folders(store: Store, folder: str) -> list[str]:
    """A folder of data files and all folders by value inside it. Only those have an equals sign in their names."""
    inside = [f"{folder}/{name}" for name in store.names(folder) if "=" in name]
    return [folder, *(deeper for one in inside for deeper in _data_folders(store, one))]


def _expired(store: Store, ledger: Ledger, before: float) -> list[tuple[str, str]]:
    """Entries and snapshots that a newer snapshot, made before `before`, covers; oldest first."""
    numbers = ledger.snapshot_numbers()
    through = 0
    superseded: list[tuple[str, str]] = []
    for number in numbers:
        if _older(store, ledger.snapshot_name(number), before) and (snapshot := ledger.snapshot(number)) is not None:
            through = snapshot.through
            superseded = [("snapshots", ledger.snapshot_name(older)) for older in numbers if older < number]
    entries = [("entries", ledger.entry_name(number)) for number in ledger.entry_numbers() if number <= through]
    return entries + superseded


def _referenced(store: Store, ledger: Ledger, *, without: set[str]) -> set[str]:
    """Every data file that is in some entry or snapshot."""
    found: set[str] = set()
    for number in ledger.entry_numbers():
        if ledger.entry_name(number) not in without:
            entry = ledger.entry(number)
            found.update(() if entry is None else (file.name for file in entry.files))
    for number in ledger.snapshot_numbers():
        if ledger.snapshot_name(number) not in without:
            snapshot = ledger.snapshot(number)
            found.update(() if snapshot is None else (file.name for file in snapshot.files))
    return found


def _older(store: Store, name: str, before: float) -> bool:
    modified = store.modified(name)
    return modified is not None and modified < before
