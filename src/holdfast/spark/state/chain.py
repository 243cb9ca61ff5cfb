"""The chain of one partition's state: entries, each complete in itself, that two writers can't both extend.

    entries/000000000017.json   [4100, 4180)  watermark, runs of state, files of output

Entry n+1 is created exclusively under its number and starts where entry n ends. So the offsets, the state and the
output of a batch count together or not at all. A new owner needs only the last entry: it lists every run.

Older entries are removed after a while. A writer that was stopped meanwhile could then create a removed number again.
So after creating an entry, a writer looks for higher numbers. If there are any, its entry counts only if the next entry
names it as its predecessor. If the next entry is gone too, the writer decides again from the chain's end, which is
right in both cases.

Pure, except for the `Store`: no clock, no Spark.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import checked_topic, numbered_name, numbers_of
from holdfast.spark.files.ledger import MAX_ATTEMPTS, FileRef
from holdfast.spark.files.store import Store
from holdfast.spark.state.runs import NOT_YET

VERSION = 1
ROOT = "_holdfast/state"
KNOWN = "_holdfast/known"
OUTBOX = "outbox"

_RUN = re.compile(r"[0-9a-f]{32}\.arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """One file of state."""

    name: str
    rows: int
    bytes: int
    crc: int
    """CRC-32C of the whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A partition after one batch."""

    number: int
    id: str
    after: str
    """The id of the entry before; empty for the first."""
    start: int
    end: int
    watermark: int = NOT_YET
    runs: tuple[RunRef, ...] = ()
    """The whole state, oldest first."""
    output: tuple[FileRef, ...] = ()
    """The output of this batch."""
    late: int = 0
    """How many rows have been dropped for being late, since the beginning."""
    writer: str = ""
    """Who wrote it, for people."""
    topic_id: str = ""
    """Of the topic whose offsets these are; empty if its brokers don't tell."""

    def next(self, end: int) -> Entry:
        """The entry of a batch that changes only the offset."""
        return replace(
            self, number=self.number + 1, id=uuid.uuid4().hex, after=self.id, start=self.end, end=end, output=()
        )

    @property
    def files(self) -> frozenset[str]:
        return frozenset(run.name for run in self.runs)


def beginning(start: int) -> Entry:
    """What stands before the first entry of a partition that begins at this offset."""
    return Entry(number=0, id="", after="", start=start, end=start)


class Chain:
    """One partition's chain in a store."""

    def __init__(self, store: Store, partition: TopicPartition, told: str = "a reader") -> None:
        """`told`: which batch needs the chain, for error messages."""
        self._store = store
        self._told = told
        self.partition = partition
        self.folder = f"{ROOT}/{checked_topic(partition.topic)}/{partition.partition}"
        self.entries_folder = f"{self.folder}/entries"
        self.runs_folder = f"{self.folder}/runs"
        self.known_name = f"{KNOWN}/{partition.topic}/{partition.partition}.json"

    def tip(self) -> Entry | None:
        """The last entry; None if there never was one."""
        while True:
            numbers = self.numbers()
            if not numbers:
                if self._store.exists(self.known_name):
                    raise self.unreadable(self.entries_folder, "it is empty, and there was state before")
                return None
            found = self.entry(numbers[-1])
            if found is not None:
                return found

    def since(self, offset: int) -> list[Entry]:
        """The entries that end after an offset, oldest first."""
        while True:
            found: list[Entry] = []
            numbers = self.numbers()
            for number in reversed(numbers):
                entry = self.entry(number)
                if entry is None or (found and found[0].after != entry.id):
                    break  # it was removed since, or a stopped writer created a removed number again
                if entry.end <= offset:
                    return found
                found.insert(0, entry)
            if self.numbers()[-1:] == numbers[-1:]:
                return found

    def append(self, entry: Entry) -> bool:
        """Add this entry to the chain. False if another writer was faster: look at the tip again."""
        if not self._store.create(self.entry_name(entry.number), encode(entry)):
            return False
        if not self._store.exists(self.known_name):
            self._store.create(self.known_name, json.dumps({"v": VERSION, "from": entry.start}).encode())
        later = [number for number in self.numbers() if number > entry.number]
        if not later:
            return True
        following = self.entry(entry.number + 1)
        return following is not None and following.after == entry.id

    def extend(self, choose: Callable[[Entry | None], Entry | None]) -> Entry | None:
        """Append what `choose` returns for the tip; it is called again if another writer was faster."""
        for _ in range(MAX_ATTEMPTS):
            wanted = choose(self.tip())
            if wanted is None or self.append(wanted):
                return wanted
        raise HoldfastError(
            "STATE_BUSY",
            f"{MAX_ATTEMPTS} times in a row another application extended the state of {self.partition}.",
            "See which applications use this state, and whether they are members of one group.",
        )

    def unreadable(self, name: str, why: str) -> HoldfastError:
        where = getattr(self._store, "root", None)
        path = name if where is None else f"{where}/{name}"
        return HoldfastError(
            "STATE_UNREADABLE",
            f"The state of {self.partition}, wanted by {self._told}, can't be read at {path}: {why}.",
            "Restore it from a backup. Or let this partition start empty, with what that means for its results: "
            f"`holdfast pipeline state {where or 'PATH'} --start-empty {self.partition}`.",
        )

    def numbers(self) -> list[int]:
        return numbers_of(self._store.names(self.entries_folder))

    def entry(self, number: int) -> Entry | None:
        name = self.entry_name(number)
        data = self._store.read(name)
        try:
            found = None if data is None else decode(data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self.unreadable(name, f"no entry of version {VERSION} ({error})") from error
        if found is not None and not self._holds(found, number):
            raise self.unreadable(name, "it is an entry of another partition, or of another number")
        return found

    def _holds(self, entry: Entry, number: int) -> bool:
        """False for an entry that was put here from elsewhere, as a restored backup may do."""
        return entry.number == number and all(name.startswith(f"{self.runs_folder}/") for name in entry.files)

    def entry_name(self, number: int) -> str:
        return f"{self.entries_folder}/{numbered_name(number)}"

    def new_run_name(self) -> str:
        return f"{self.runs_folder}/{uuid.uuid4().hex}.arrow"

    @staticmethod
    def is_run(name: str) -> bool:
        """Whether a file has the kind of name that `new_run_name` makes. All others are somebody else's."""
        return _RUN.fullmatch(name) is not None

    def new_output_name(self) -> str:
        return f"{OUTBOX}/{self.partition.topic}/{self.partition.partition}/{uuid.uuid4().hex}.parquet"


def encode(entry: Entry) -> bytes:
    return json.dumps({"v": VERSION, **asdict(entry)}, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Entry:
    found: dict[str, Any] = json.loads(data)
    if found.pop("v") != VERSION:
        raise ValueError("it is of another version")
    runs = tuple(RunRef(**run) for run in found.pop("runs"))
    output = tuple(FileRef(**file) for file in found.pop("output"))
    return Entry(**found, runs=runs, output=output)
