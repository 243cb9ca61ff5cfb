"""Runs of state as files: written, checked, and read without a copy. They are immutable, so they may be kept open."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from holdfast.model import HoldfastError
from holdfast.spark.files.store import LocalStore, Store
from holdfast.spark.state.chain import Chain, Entry, RunRef
from holdfast.spark.state.runs import Layout, View, first_to_merge, newest

KEPT_OPEN = 256
"""Runs that a worker keeps open between batches. They are memory maps, so unused ones cost no memory. Those from an
object store are copied to the local disk first; that space is freed when the worker ends."""

COPY_BYTES = 1024 * 1024

kept_open: OrderedDict[tuple[str, str], pa.Table] = OrderedDict()


def open_run(store: Store, run: RunRef, layout: Layout, chain: Chain) -> pa.Table:
    """A run as a table. Its checksum is verified when this process first opens it."""
    where = (_root(store), run.name)
    if where in kept_open:
        kept_open.move_to_end(where)
        return kept_open[where]
    try:
        found = _checked(_bytes_of(store, run.name), run, layout)
    except HoldfastError:  # the store did not answer; the state may be fine
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise chain.unreadable(run.name, f"{type(error).__name__}: {error}".rstrip(".")) from error
    kept_open[where] = found
    while len(kept_open) > KEPT_OPEN:
        kept_open.popitem(last=False)
    return found


def is_open(store: Store, run: RunRef) -> bool:
    """Whether this process has it open, and so has verified it."""
    return (_root(store), run.name) in kept_open


def close_others(store: Store, prefix: str, kept: Collection[str]) -> None:
    """Close the open runs with this prefix that are not in `kept`: a map holds the disk space of a removed file."""
    for root, name in list(kept_open):
        if root == _root(store) and name.startswith(prefix) and name not in kept:
            del kept_open[root, name]


def _root(store: Store) -> str:
    return str(getattr(store, "root", id(store)))


def _bytes_of(store: Store, name: str) -> Any:
    if isinstance(store, LocalStore):
        return pa.memory_map(str(store.root / name)).read_buffer()
    with store.open(name) as file, tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy, COPY_BYTES)
        copy.flush()
        # The file has no name, and lives as long as its map.
        return pa.memory_map(f"/proc/self/fd/{copy.fileno()}").read_buffer()


def _checked(data: Any, run: RunRef, layout: Layout) -> pa.Table:
    from crc32c import crc32c

    if data.size != run.bytes or crc32c(data) != run.crc:
        raise ValueError(f"its {data.size} bytes are not the {run.bytes} that were written")
    table = pa.ipc.open_file(data).read_all()
    if table.schema != layout.stored:
        raise ValueError(f"it has the columns {', '.join(table.schema.names)}")
    return table


def write_run(store: Store, name: str, table: pa.Table) -> RunRef:
    """Write a run durably. It counts once an entry lists it."""
    from crc32c import crc32c

    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data = sink.getbuffer()
    with store.writing(name) as file:
        file.write(data)
    return RunRef(name=name, rows=table.num_rows, bytes=len(data), crc=crc32c(data))


def view_of(store: Store, entry: Entry, layout: Layout, chain: Chain) -> View:
    return View(layout, [open_run(store, run, layout, chain) for run in entry.runs])


def lay_down(store: Store, chain: Chain, entry: Entry, view: View) -> tuple[RunRef, ...]:
    """Write a batch's changes as a new run, merged with older runs that are not much larger; returns all runs."""
    changes = view.changes()
    if not changes.num_rows:
        return entry.runs
    first = first_to_merge([*(run.rows for run in entry.runs), changes.num_rows])
    kept = entry.runs[:first]
    if first < len(entry.runs):
        older = [open_run(store, run, view.layout, chain) for run in reversed(entry.runs[first:])]
        changes = newest([changes, *older], view.layout.identity, drop_gone=not kept)
    return (*kept, write_run(store, chain.new_run_name(), changes)) if changes.num_rows else kept


def rows_of(store: Store, entry: Entry, layout: Layout, chain: Chain) -> pa.Table:
    """All live rows of a partition's state."""
    tables = [open_run(store, run, layout, chain) for run in reversed(entry.runs)]
    return newest(tables, layout.identity, drop_gone=True) if tables else layout.empty()
