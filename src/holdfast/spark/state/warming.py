"""What a standby's executors do: read the runs that the partition's next owner would have to read, and keep them open.

A task reads its pieces, so that they are in the machine's page cache, and opens whole runs, so that they are verified
and mapped in the process that will work on the partition. It closes runs that are in no entry any more, because a map
holds the disk space of a removed file. It also loads the code that a batch needs: a worker may be new, because Spark
stops idle ones after a minute, and should not have to load code when a batch comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.store import LocalStore, Store, open_store
from holdfast.spark.state import task as _loads_what_a_batch_needs  # noqa: F401
from holdfast.spark.state.chain import Chain, RunRef
from holdfast.spark.state.following import PIECE_BYTES, Piece
from holdfast.spark.state.runs import Layout, View
from holdfast.spark.state.storing import close_others, is_open, open_run

LARGEST_OPENED = 256 << 20
"""Larger runs are read into the page cache but not opened: verifying them would occupy a core for too long."""

READ_BYTES = 1 << 20

ANSWER = "worker int, failed array<string>"
ANSWER_SCHEMA = pa.schema([pa.field("worker", pa.int32()), pa.field("failed", pa.list_(pa.string()))])


@dataclass(frozen=True, slots=True)
class Warm:
    """What a task needs; pickled to executors."""

    state: str
    layout: Layout
    pieces: Sequence[Piece]
    """What is new."""
    open: Mapping[TopicPartition, tuple[RunRef, ...]]
    """What was read before; a new worker opens it again."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The store's. They may hold secrets."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        failed = sorted(set(self.warm(open_store(self.state, self.options))))
        columns: list[Any] = [pa.array([os.getpid()], pa.int32()), pa.array([failed], pa.list_(pa.string()))]
        yield pa.RecordBatch.from_arrays(columns, schema=ANSWER_SCHEMA)

    def warm(self, store: Store) -> Iterator[str]:
        """Returns runs that could not be read: rightly removed meanwhile, or damaged, which their owner will report."""
        for piece in self.pieces:
            try:
                if isinstance(store, LocalStore):  # remote runs are copied when they are opened
                    _read(store, piece)
                if piece.last:
                    self._open(store, piece.partition, piece.run)
            except (OSError, HoldfastError):
                yield piece.run.name
        left = PIECE_BYTES
        for partition, runs in self.open.items():
            named = {run.name for run in runs} | {one.run.name for one in self.pieces if one.partition == partition}
            close_others(store, f"{Chain(store, partition).runs_folder}/", named)
            for run in runs:
                if not is_open(store, run) and run.bytes <= min(left, LARGEST_OPENED):
                    left -= run.bytes
                    try:
                        self._open(store, partition, run)
                    except (OSError, HoldfastError):
                        yield run.name

    def _open(self, store: Store, partition: TopicPartition, run: RunRef) -> None:
        if run.bytes <= LARGEST_OPENED:
            table = open_run(store, run, self.layout, Chain(store, partition, "a standby"))
            View(self.layout, [table]).find(table.slice(0, 1))


def _read(store: Store, piece: Piece) -> None:
    with store.open(piece.run.name) as file:
        file.seek(piece.start)
        left = piece.end - piece.start
        while left > 0 and (found := len(file.read(min(left, READ_BYTES)))):
            left -= found
