"""Drops rows whose key was seen before, within the watermark's delay or for ever. Pure.

A key is remembered until the watermark has passed its row's time by the delay. A row older than the watermark is late
and dropped, because its key may have been forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark.state.keys import codes_of, picked
from holdfast.spark.state.operators import Step
from holdfast.spark.state.runs import NEVER, NOT_YET, Layout, View, expiry
from holdfast.spark.state.times import Times, timed

MANY_ROUNDS = 32
"""A round passes one row of each key. After so many rounds in one step, the rest is done row by row."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    by: tuple[str, ...]
    time: str | None = None
    """None: keys are remembered for ever."""
    delay_us: int = 0

    keeps_offsets = True
    supersedes = None
    columns = None

    @property
    def signature(self) -> str:
        return f"distinct by {self.by} {self.time}"

    def layout(self, given: pa.Schema) -> Layout:
        return Layout(pa.schema([given.field(name) for name in self.by]), self.by, self.by)

    def output(self, given: pa.Schema) -> pa.Schema:
        return given

    def step(self, view: View, rows: pa.Table, watermark: int) -> Step:
        if self.time is None:
            none = np.zeros(rows.num_rows, np.int64)
            return Step(rows.take(picked(self._take(view, rows, none, none + NEVER, none + NOT_YET))), watermark)
        found = timed(rows, self.time, self.delay_us, watermark)
        counted = np.flatnonzero(found.at >= found.met)
        on_time = found.rows.take(picked(counted))
        at, met = found.at[counted], found.met[counted]
        let_through = on_time.take(picked(self._take(view, on_time, at, at + self.delay_us, met)))
        forgotten = view.expiring(watermark, found.watermark)
        if forgotten.num_rows:
            view.push(view.layout.seal(forgotten, expiry(forgotten), gone=True))
        late = found.rows.num_rows - len(counted) + found.without
        return Step(let_through, found.watermark, late)

    def _take(self, view: View, rows: pa.Table, at: Times, until: Times, met: Times) -> Rows:
        """Which rows pass, in order; their keys are remembered `until` then."""
        if not rows.num_rows:
            return np.zeros(0, np.int64)
        keys = rows.select(list(self.by))
        known = view.find(keys)
        names = list(self.by)
        both = pa.concat_tables([known.select(names), keys.cast(known.select(names).schema)])
        codes = codes_of([both[name] for name in names], both.num_rows)
        held = np.full(int(codes.max()) + 1, NOT_YET, np.int64)
        held[codes[: known.num_rows]] = expiry(known)
        chosen = first_of_each(codes[known.num_rows :], until, met, held)
        last = _last_of_each(codes[known.num_rows :][chosen])
        view.push(view.layout.seal(keys.take(picked(chosen[last])), until[chosen[last]]))
        return chosen


def first_of_each(codes: Rows, until: Times, met: Times, held: Times) -> Rows:
    """The rows whose key is not remembered when they come. A row that passes holds its key `until` then.

    A round finds the first such row of each key. Rows of that key before it are duplicates, those after it wait for the
    next round. `held` says until when keys are already held; it is changed.
    """
    chosen: list[Rows] = []
    left = np.arange(len(codes), dtype=np.int64)
    for _ in range(MANY_ROUNDS):
        left = left[held[codes[left]] <= met[left]]  # the watermark only grows, so an expired key stays expired
        if not len(left):
            break
        _, first = np.unique(codes[left], return_index=True)
        winners = left[first]
        chosen.append(winners)
        held[codes[winners]] = until[winners]
        left = np.delete(left, first)
    else:
        chosen.append(_one_by_one(left, codes, until, met, held))
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def _one_by_one(left: Rows, codes: Rows, until: Times, met: Times, held: Times) -> Rows:
    taken = []
    for row in left.tolist():
        if held[codes[row]] <= met[row]:
            held[codes[row]] = until[row]
            taken.append(row)
    return np.array(taken, np.int64)


def _last_of_each(codes: Rows) -> Rows:
    _, first = np.unique(codes[::-1], return_index=True)
    return len(codes) - 1 - first
