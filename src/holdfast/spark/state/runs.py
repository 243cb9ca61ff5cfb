"""The state of one partition as sorted runs, like a log-structured merge tree. Pure.

A run is an Arrow table sorted by the hash of its keys. A row in a newer run replaces older versions; it may also be a
tombstone (`gone`). So a batch writes only what it changed, finds a key by binary search, and never reads the whole
state. A run is merged with the one before unless that is much larger, so there are always few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark.state.keys import codes_of, flat, hash_of, picked

HASH, EXPIRES, GONE = "__hash", "__expires", "__gone"
OURS = (HASH, EXPIRES, GONE)

NEVER = 2**62
"""An expiry that never comes. Times are microseconds since 1970."""
NOT_YET = -(2**62)
"""The watermark before anything was seen."""

SMALL_ROWS = 4_096
"""Runs up to this size are always merged with small runs before them: a file costs more than its rows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the state's rows."""

    schema: pa.Schema
    """Without our own three columns."""
    keys: tuple[str, ...]
    """Rows are looked up by these columns; a key may have several rows."""
    identity: tuple[str, ...]
    """These columns identify a row: the keys, and what distinguishes several rows of a key."""

    @property
    def stored(self) -> pa.Schema:
        ours = [pa.field(HASH, pa.uint64()), pa.field(EXPIRES, pa.int64()), pa.field(GONE, pa.bool_())]
        return pa.schema([*ours, *self.schema])

    def empty(self) -> pa.Table:
        return self.stored.empty_table()

    def seal(self, rows: pa.Table, expires: npt.NDArray[np.int64], *, gone: bool = False) -> pa.Table:
        """Make a run of these rows."""
        hashes = hash_of(rows, self.keys)
        order = np.argsort(hashes, kind="stable")
        columns: list[Any] = [pa.array(hashes[order]), pa.array(expires[order].astype(np.int64))]
        columns.append(pa.array(np.full(rows.num_rows, gone)))
        columns += [flat(rows[field.name]).take(picked(order)).cast(field.type) for field in self.schema]
        return pa.Table.from_arrays(columns, schema=self.stored)


def newest(tables: Sequence[pa.Table], identity: Sequence[str], *, drop_gone: bool) -> pa.Table:
    """The newest version of each row, sorted by hash. `tables` are ordered newest first."""
    together = pa.concat_tables(tables).combine_chunks()
    hashes = _numbers(together, HASH)
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order[1:]] == hashes[order[:-1]]
    several = np.zeros(len(order), bool)
    several[1:] |= equal
    several[:-1] |= equal
    kept = ~several
    if several.any():
        places = np.flatnonzero(several)
        rows = pa.array(order[places])
        codes = codes_of([flat(together[name]).take(rows) for name in identity], len(places))
        _, first = np.unique(codes, return_index=True)
        kept[places[first]] = True
    found = together.take(picked(order[kept])).combine_chunks()
    return live(found) if drop_gone else found


def live(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    gone: Any = table[GONE]
    return table.filter(pc.invert(gone)) if pc.any(gone).as_py() else table


def expiry(table: pa.Table) -> npt.NDArray[np.int64]:
    return _numbers(table, EXPIRES)


def first_to_merge(sizes: Sequence[int]) -> int:
    """The first of the runs (oldest first) that are to be merged into one; `len(sizes) - 1` merges nothing."""
    first, rows = len(sizes) - 1, sizes[-1] if sizes else 0
    while first > 0 and (sizes[first - 1] <= 2 * rows or max(sizes[first - 1], rows) <= SMALL_ROWS):
        first -= 1
        rows += sizes[first]
    return first


class View:
    """The current state, including this batch's changes. Runs are given oldest first."""

    def __init__(self, layout: Layout, runs: Sequence[pa.Table] = ()) -> None:
        self.layout = layout
        self._runs = list(runs)
        self._changed: list[pa.Table] = []

    def push(self, changes: pa.Table) -> None:
        """Add a run that takes precedence over all others."""
        if not changes.num_rows:
            return
        self._changed.append(changes)
        first = first_to_merge([run.num_rows for run in self._changed])
        if first < len(self._changed) - 1:
            merged = newest(self._changed[first:][::-1], self.layout.identity, drop_gone=False)
            self._changed[first:] = [merged]

    def changes(self) -> pa.Table:
        """Everything that was pushed, as one run."""
        if not self._changed:
            return self.layout.empty()
        return newest(self._changed[::-1], self.layout.identity, drop_gone=not self._runs)

    def find(self, wanted: pa.Table) -> pa.Table:
        """The live rows of these keys, sorted by hash."""
        hashes = _sorted_once(hash_of(wanted, self.layout.keys))
        found = [piece for run in self._newest_first() if (piece := _with_hashes(run, hashes)).num_rows]
        if not found:
            return self.layout.empty()
        rows = newest(found, self.layout.identity, drop_gone=True)
        return rows.filter(picked(_is_in(rows, wanted, self.layout.keys)))

    def expiring(self, after: int, up_to: int) -> pa.Table:
        """The live rows that expire in (after, up_to]. What expired earlier has already been handled."""
        if up_to <= after:
            return self.layout.empty()
        found = []
        for run in self._newest_first():
            at = _numbers(run, EXPIRES)
            due = np.flatnonzero((at > after) & (at <= up_to))
            if len(due):
                found.append(run.take(picked(due)))
        if not found:
            return self.layout.empty()
        candidates = pa.concat_tables(found).select(list(self.layout.keys) or [HASH])
        rows = self.find(candidates)  # some of them have newer versions
        return rows.filter(picked(_numbers(rows, EXPIRES) <= up_to))

    def _newest_first(self) -> list[pa.Table]:
        return [*self._changed[::-1], *self._runs[::-1]]


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column: Any = table[name]
    if column.num_chunks == 1:
        found: npt.NDArray[Any] = column.chunk(0).to_numpy(zero_copy_only=True)
        return found
    whole: npt.NDArray[Any] = column.to_numpy()
    return whole


def _with_hashes(run: pa.Table, hashes: npt.NDArray[np.uint64]) -> pa.Table:
    """The rows of a run with one of these hashes. Both are sorted."""
    there = _numbers(run, HASH)
    low = np.searchsorted(there, hashes, side="left")
    counts = np.searchsorted(there, hashes, side="right") - low
    low, counts = low[counts > 0], counts[counts > 0]
    # 0, 1, 2 … within each stretch of equal hashes, added to its beginning
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return run.take(picked(np.repeat(low, counts) + inside))


def _is_in(rows: pa.Table, wanted: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which rows have one of the wanted keys. Two keys may share a hash, so compare the keys."""
    both = [_together(rows[key], wanted[key]) for key in keys]
    codes = codes_of(both, rows.num_rows + wanted.num_rows)
    marked = np.zeros(int(codes.max(initial=0)) + 1, bool)
    marked[codes[rows.num_rows :]] = True
    found: npt.NDArray[np.bool_] = marked[codes[: rows.num_rows]]
    return found


def _sorted_once(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Sorted, without duplicates. numpy's own `unique` uses a hash table, which is much slower for large arrays."""
    in_order = np.sort(hashes)
    first = np.ones(len(in_order), bool)
    first[1:] = in_order[1:] != in_order[:-1]
    return in_order[first]


def _together(one: Any, other: Any) -> Any:
    return pa.chunked_array([*one.chunks, *other.cast(one.type).chunks], type=one.type)
