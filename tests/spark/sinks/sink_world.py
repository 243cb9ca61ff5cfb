"""A sink in memory whose actors take turns at every step, so that a test chooses the interleaving and the crashes."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.committing import commit_partition
from holdfast.spark.files.layout import data_folder_of
from holdfast.spark.files.ledger import Content, FileRef, Ledger
from holdfast.spark.files.store import Store
from holdfast.spark.files.upkeep import clean, compact
from patience import PATIENCE_S

ORDERS = TopicPartition("orders", 0)


class Crashed(BaseException):
    """kill -9: nothing catches it, nothing is tidied up."""


@dataclass
class Disk:
    """What all actors see."""

    files: dict[str, bytes] = field(default_factory=dict)
    in_flight: dict[str, float] = field(default_factory=dict)
    """Until when each data file was some action's own. The grace period keeps `clean` off those that were so lately."""
    ever: dict[str, list[int]] = field(default_factory=dict)
    """Offsets in every data file there ever was."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def data_files(self) -> set[str]:
        return {name for name in self.files if name.startswith("data/")}

    def opened(self, turn: Turn | Alone) -> TurnStore:
        """What one actor sees of it."""
        return TurnStore(self, turn)


class Turn:
    """One actor on a thread of its own, let forward one store operation at a time."""

    def __init__(self, name: str, action: Callable[[Store], None], disk: Disk) -> None:
        self.name = name
        self.done = False
        self.waiting_for = ("", "")
        """Which operation it does with its next step, and on which file."""
        self.error: BaseException | None = None
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._crash: str | None = None
        self._store = disk.opened(self)
        self._thread = threading.Thread(target=self._run, args=(action,), name=name, daemon=True)
        self._thread.start()
        self._await()

    def step(self, crash: str | None = None) -> None:
        """Let it do one operation; crash it before or after that one if asked."""
        self._crash = crash
        self._go.release()
        self._await()

    def run(self) -> None:
        while not self.done:
            self.step()
        if self.error is not None and not isinstance(self.error, Crashed):
            raise self.error

    def _await(self) -> None:
        assert self._arrived.acquire(timeout=PATIENCE_S), f"{self.name} hangs"
        if self.done:
            self._thread.join(PATIENCE_S)

    def _run(self, action: Callable[[Store], None]) -> None:
        try:
            action(self._store)
        except BaseException as error:
            self.error = error
        self._store.forget()
        self.done = True
        self._arrived.release()

    @contextlib.contextmanager
    def operation(self, kind: str, name: str) -> Iterator[None]:
        self.waiting_for = (kind, name)
        self._arrived.release()
        self._go.acquire()
        if self._crash == "before":
            raise Crashed
        yield
        if self._crash == "after":
            raise Crashed


class TurnStore:
    """The disk as one actor sees it: every call waits for its turn. Each call is atomic, as `Store` promises."""

    def __init__(self, disk: Disk, turn: Turn | Alone) -> None:
        self.disk = disk
        self.turn = turn
        self._mine: set[str] = set()
        self._began = next(disk.numbers)

    def forget(self) -> None:
        now = next(self.disk.numbers)
        self.disk.in_flight.update(dict.fromkeys(self._mine, now))

    def prove(self) -> None:
        """`create` is one operation of one actor."""

    def create(self, name: str, data: bytes) -> bool:
        with self.turn.operation("create", name):
            if name in self.disk.files:
                return False
            self.disk.files[name] = data
            return True

    def read(self, name: str) -> bytes | None:
        with self.turn.operation("read", name):
            return self.disk.files.get(name)

    def exists(self, name: str) -> bool:
        with self.turn.operation("exists", name):
            return name in self.disk.files

    def names(self, folder: str) -> list[str]:
        with self.turn.operation("names", folder):
            under = [name[len(folder) + 1 :] for name in self.disk.files if name.startswith(f"{folder}/")]
            return sorted({name.split("/")[0] for name in under})

    def leftovers(self, folder: str) -> list[str]:
        return []

    def modified(self, name: str) -> float | None:
        with self.turn.operation("modified", name):
            if not self.has(name):
                return None
            # A writer renews its files' times before it commits them: whatever went on since we began is recent.
            return 2.0 if self.disk.in_flight.get(name, 0) > self._began else 0.0

    def touch(self, name: str) -> bool:
        with self.turn.operation("touch", name):
            if not self.has(name):
                return False
            self._mine.add(name)
            self.disk.in_flight[name] = float("inf")
            return True

    def size(self, name: str) -> int | None:
        with self.turn.operation("size", name):
            return len(self.disk.files[name]) if name in self.disk.files else None

    def remove(self, name: str) -> None:
        with self.turn.operation("remove", name):
            self.take_away(name)

    def remove_untouched(self, name: str, before: float) -> bool:
        with self.turn.operation("remove_untouched", name):
            removed = self.disk.in_flight.get(name, 0) <= self._began and self.has(name)
            if removed:
                self.take_away(name)
            return removed

    def has(self, name: str) -> bool:
        return name in self.disk.files

    def take_away(self, name: str) -> None:
        self.disk.files.pop(name, None)

    def put_back(self, folder: str, ours: Callable[[str], bool]) -> None:
        pass  # each call is atomic here: no crash leaves half a removal

    def open(self, name: str) -> IO[bytes]:
        return io.BytesIO(self.disk.files[name])

    def writing(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        raise AssertionError("the model writes whole files")

    def put_rows(self, offsets: list[int], *, lasts: bool = True) -> FileRef:
        """A data file, as a task writes it. One that is not to last is old as soon as it is there, until a touch."""
        name = f"{data_folder_of(ORDERS)}/{next(self.disk.numbers):032x}.parquet"
        if lasts:
            self._mine.add(name)
            self.disk.in_flight[name] = float("inf")
        self.disk.ever[name] = offsets
        assert self.create(name, json.dumps(offsets).encode())
        return FileRef(name=name, rows=len(offsets), bytes=10, first=min(offsets), last=max(offsets), schema="s")


@dataclass
class Topic:
    """A partition's records, some of which the job keeps; where the group stands; what each writer has planned."""

    rows: list[int]
    end: int
    committed: int = 0
    planned: dict[str, tuple[int, int]] = field(default_factory=dict)


def batch(topic: Topic, who: str, cut: int, files: int, *, replay: bool) -> Callable[[Store], None]:
    """One micro-batch of one application: plan, write, commit to the sink, and only then to the group."""

    def action(store: Store) -> None:
        assert isinstance(store, TurnStore)
        start, end = topic.committed, min(topic.end, topic.committed + cut)
        if replay and who in topic.planned:
            start, end = topic.planned[who]
        topic.planned[who] = (start, end)
        rows = [row for row in topic.rows if start <= row < end]
        parts = [part for part in (rows[number::files] for number in range(files)) if part]
        written = [store.put_rows(part) for part in parts]
        if written:
            commit_partition(store, ORDERS, written, cut=cut_rows)
        topic.committed = end

    return action


def cut_rows(store: Store, partition: TopicPartition, file: FileRef, end: int) -> FileRef:
    assert isinstance(store, TurnStore)
    return store.put_rows([row for row in store.disk.ever[file.name] if row >= end])


def merge_rows(store: Store, partition: TopicPartition, files: object) -> FileRef:
    assert isinstance(store, TurnStore)
    rows = [row for file in files for row in store.disk.ever[file.name]]  # type: ignore[attr-defined]
    return store.put_rows(rows, lasts=False)


def compaction(store: Store) -> None:
    """It may take longer than the grace period: then it must find that out, and not count on what is gone."""
    try:
        compact(store, target_bytes=100, merge=merge_rows)
    except HoldfastError as error:
        if error.code != "COMPACTION_OVERTAKEN":
            raise


def cleaning(store: Store) -> None:
    """With no grace at all for entries and snapshots, which the ledger must survive."""
    clean(store, now=1.0, grace_s=0.0)


class Alone:
    """For an actor that has the world to itself: every operation is its turn."""

    def operation(self, kind: str, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def content(disk: Disk) -> Content:
    return Ledger(disk.opened(Alone()), ORDERS).load()


def offsets_in(disk: Disk, taken: Content) -> list[int]:
    return [row for file in taken.files for row in disk.ever[file.name]]
