"""The ledger of one partition: a chain of entries, each `from -> to, files`, that two writers can't both extend.

    entries/1  [ 0, 50)  a.parquet
    entries/2  [50, 80)  b.parquet, c.parquet
    snapshots/1  through entry 2, up to offset 80: d.parquet          made by compaction; readers take this instead

Entry n+1 is created exclusively under its number and starts where entry n ended. A writer that finds the number taken
reads the chain again and keeps only rows from its new end on, so a row gets in once, whatever the group and the
checkpoints say. That no row is missing rests on one promise of the callers: a batch is planned only when everything
before it is in the ledger. The source keeps it by committing an offset only when the sink is done with the batch.

A snapshot replaces all entries up to its `through`; those may be removed later. A writer that was stopped meanwhile
could then create a removed number again. So after creating an entry, a writer looks for a newer snapshot. If one covers
the entry's number, it is unknown whether the entry counts, and the writer decides again from the chain's end, which is
right in both cases.

Pure: all effects go through a `Store`; no clock, no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import data_folder_of, folder_of, numbered_name, numbers_of
from holdfast.spark.files.store import Store

VERSION = 1

MAX_ATTEMPTS = 1_000
"""Each lost race means that another writer got a batch in; so many in a row are a fault and not bad luck."""

READERS = 8
"""Entries read at once: enough to hide the latency of a network file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """One committed data file."""

    name: str
    rows: int
    bytes: int
    first: int
    """The lowest offset in it."""
    last: int
    schema: str
    """Which of the sink's schemas it was written with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one batch added: its files hold every row with an offset in [start, end) that the sink was given."""

    number: int
    start: int
    end: int
    files: tuple[FileRef, ...]
    writer: str = ""
    """Who wrote it, for people: the batch and the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All entries up to `through`, as one list of files."""

    number: int
    through: int
    start: int
    end: int
    files: tuple[FileRef, ...]


Listed = TypeVar("Listed", Entry, Snapshot)


@dataclass(frozen=True, slots=True)
class Tip:
    """Where a chain ends: the last entry's number, and the offset after its last row. (0, None) if it is empty."""

    number: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Content:
    """What readers read."""

    start: int | None
    end: int | None
    files: tuple[FileRef, ...]
    entries: int
    """How many entries no snapshot covers yet."""
    tip: int
    snapshot: int
    """The number of the snapshot, 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Addition:
    """What a writer wants to add, decided for a chain that ends at a given offset."""

    first: int
    end: int
    files: tuple[FileRef, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """How an append went."""

    entry: Entry | None
    """None if everything was in the ledger already."""
    doubtful: bool
    """A snapshot covers an entry of ours, which may or may not count: none of our files may be deleted."""


class Ledger:
    """One partition's chain in a store."""

    def __init__(self, store: Store, partition: TopicPartition) -> None:
        self._store = store
        self.partition = partition
        folder = folder_of(partition)
        self.entries_folder = f"{folder}/entries"
        self.snapshots_folder = f"{folder}/snapshots"

    # -- writing

    def append(self, choose: Callable[[int | None], Addition | None], *, writer: str = "") -> Appended:
        """Add what `choose` returns for the chain's end; it is called again whenever another writer was faster."""
        doubtful = False
        for _ in range(MAX_ATTEMPTS):
            tip = self.tip()
            wanted = choose(tip.end)
            if wanted is None:
                return Appended(None, doubtful)
            start = wanted.first if tip.end is None else tip.end
            if wanted.end <= start:
                raise HoldfastError(
                    "LEDGER_RANGE", f"An entry can't go from {start} to {wanted.end}.", "Report this: it is a fault."
                )
            entry = Entry(number=tip.number + 1, start=start, end=wanted.end, files=wanted.files, writer=writer)
            if self._store.create(self.entry_name(entry.number), encode(entry)):
                if self._reach() < entry.number:
                    return Appended(entry, doubtful)
                doubtful = True
        raise HoldfastError(
            "LEDGER_BUSY",
            f"{MAX_ATTEMPTS} times in a row another writer extended the ledger of {self.partition}.",
            "See how many applications write into this sink.",
        )

    def add_snapshot(self, snapshot: Snapshot) -> bool:
        """False if another process made a snapshot with this number."""
        return self._store.create(self.snapshot_name(snapshot.number), encode(snapshot))

    # -- reading

    def tip(self) -> Tip:
        """The end of the chain, found by binary search."""
        while True:
            snapshot = self.newest_snapshot()
            low = 0 if snapshot is None else snapshot.through
            number = self._last_entry(low)
            if number == low:
                return Tip(low, None if snapshot is None else snapshot.end)
            entry = self.entry(number)
            if entry is not None:  # else it was removed meanwhile, and a newer snapshot covers it
                return Tip(number, entry.end)

    def load(self) -> Content:
        """All committed files, in the order they were added."""
        while True:
            snapshot = self.newest_snapshot()
            low = 0 if snapshot is None else snapshot.through
            number = self._last_entry(low)
            entries = list(self._read_entries(low, number))
            if None in entries or self._reach() != low:
                continue  # compaction came in between
            files = list(() if snapshot is None else snapshot.files)
            start = None if snapshot is None else snapshot.start
            end = None if snapshot is None else snapshot.end
            for entry in entries:
                assert entry is not None
                start, end = entry.start if start is None else start, entry.end
                files.extend(entry.files)
            at = 0 if snapshot is None else snapshot.number
            return Content(start, end, tuple(files), len(entries), number, at)

    def newest_snapshot(self) -> Snapshot | None:
        while True:
            numbers = self.snapshot_numbers()
            if not numbers:
                return None
            snapshot = self.snapshot(numbers[-1])
            if snapshot is not None:
                return snapshot

    def entry(self, number: int) -> Entry | None:
        name = self.entry_name(number)
        data = self._store.read(name)
        return None if data is None else self._of_this_chain(decode_entry(data, name), number, name)

    def snapshot(self, number: int) -> Snapshot | None:
        name = self.snapshot_name(number)
        data = self._store.read(name)
        return None if data is None else self._of_this_chain(decode_snapshot(data, name), number, name)

    def _of_this_chain(self, found: Listed, number: int, name: str) -> Listed:
        """Refuse a file that was put here from elsewhere, as a restored backup may do."""
        folder = data_folder_of(self.partition)
        others = sorted(file.name for file in found.files if not file.name.startswith(f"{folder}/"))
        if found.number != number or others:
            what = f"names {others[0]}" if others else f"says that it is number {found.number}"
            raise HoldfastError(
                "LEDGER_UNREADABLE",
                f"{name} belongs elsewhere: it {what}.",
                "Restore the right one from a backup; the ledger never writes over a file.",
            )
        return found

    def entry_numbers(self) -> list[int]:
        return numbers_of(self._store.names(self.entries_folder))

    def snapshot_numbers(self) -> list[int]:
        return numbers_of(self._store.names(self.snapshots_folder))

    def entry_name(self, number: int) -> str:
        return f"{self.entries_folder}/{numbered_name(number)}"

    def snapshot_name(self, number: int) -> str:
        return f"{self.snapshots_folder}/{numbered_name(number)}"

    def _reach(self) -> int:
        """The last entry that a snapshot covers; 0 if there is none."""
        snapshot = self.newest_snapshot()
        return 0 if snapshot is None else snapshot.through

    def _last_entry(self, low: int) -> int:
        """The last entry's number. Entries after `low` have no gaps, so double the step until one is missing, then
        halve it."""
        step = 1
        while self._store.exists(self.entry_name(low + step)):
            step *= 2
        there, missing = low + step // 2, low + step
        while missing - there > 1:
            middle = (there + missing) // 2
            if self._store.exists(self.entry_name(middle)):
                there = middle
            else:
                missing = middle
        return there

    def _read_entries(self, low: int, last: int) -> Iterator[Entry | None]:
        numbers = range(low + 1, last + 1)
        if len(numbers) <= READERS:
            yield from map(self.entry, numbers)
            return
        with ThreadPoolExecutor(READERS) as pool:
            yield from pool.map(self.entry, numbers)


def encode(what: Entry | Snapshot) -> bytes:
    return json.dumps({"v": VERSION, **asdict(what)}, sort_keys=True, separators=(",", ":")).encode()


def decode_entry(data: bytes, name: str) -> Entry:
    with _reading(name):
        found = _checked(data)
        return Entry(
            number=found["number"],
            start=found["start"],
            end=found["end"],
            files=_files(found["files"]),
            writer=found.get("writer", ""),
        )


def decode_snapshot(data: bytes, name: str) -> Snapshot:
    with _reading(name):
        found = _checked(data)
        return Snapshot(
            number=found["number"],
            through=found["through"],
            start=found["start"],
            end=found["end"],
            files=_files(found["files"]),
        )


def _files(found: list[Mapping[str, Any]]) -> tuple[FileRef, ...]:
    return tuple(FileRef(**{key: file[key] for key in FileRef.__dataclass_fields__}) for file in found)


def _checked(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    if found["v"] != VERSION:
        raise ValueError(f"version {found['v']} is not {VERSION}")
    return found


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Any error inside becomes one that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            "LEDGER_UNREADABLE",
            f"{name} is not a ledger file of version {VERSION} ({error}).",
            "Restore it from a backup; the ledger never writes over a file.",
        ) from error
