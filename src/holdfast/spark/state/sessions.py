"""Sessions: rows of a key that follow each other within a gap. Pure.

A row that is older than the watermark is late and dropped. So other rows never touch a session that the watermark has
passed, and the order of rows within the allowed delay does not matter: the sessions are those that one batch over all
these rows would find. As in Spark, a row exactly one gap after the last still belongs to the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark.state.aggregates import Aggregates
from holdfast.spark.state.keys import codes_of, flat, picked
from holdfast.spark.state.operators import Step, table_of
from holdfast.spark.state.runs import Layout, View, expiry
from holdfast.spark.state.times import Times, timed
from holdfast.spark.state.windows import START, window_of, windows_from

END = "__end"
GROUP = "__session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    time: str
    gap_us: int
    delay_us: int
    by: tuple[str, ...]
    aggregates: Aggregates

    keeps_offsets = False
    supersedes = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by, self.time, *self.aggregates.columns())

    @property
    def signature(self) -> str:
        return f"sessions {self.time} {self.gap_us} by {self.by} {self.aggregates}"

    def layout(self, given: pa.Schema) -> Layout:
        fields: list[Any] = [given.field(name) for name in self.by]
        fields += [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        return Layout(pa.schema([*fields, *self.aggregates.fields(given)]), self.by, (*self.by, START))

    def output(self, given: pa.Schema) -> pa.Schema:
        fields = [given.field(name) for name in self.by]
        return pa.schema(
            [pa.field("session_window", window_of(self.time, given)), *fields, *self.aggregates.result_fields(given)]
        )

    def step(self, view: View, rows: pa.Table, watermark: int) -> Step:
        found = timed(rows, self.time, self.delay_us, watermark)
        counted = np.flatnonzero(found.at >= found.met)
        if len(counted):
            self._take(view, found.rows.take(picked(counted)), found.at[counted])
        closed = view.expiring(watermark, found.watermark)
        if closed.num_rows:
            view.push(view.layout.seal(closed, expiry(closed), gone=True))
        late = found.rows.num_rows - len(counted) + found.without
        return Step(self._shown(closed, rows.schema), found.watermark, late)

    def _take(self, view: View, rows: pa.Table, at: Times) -> None:
        """Merge these rows, each a session of its own, with the open sessions of their keys."""
        schema = view.layout.schema
        columns = {name: flat(rows[name]) for name in self.by}
        columns |= {START: pa.array(at), END: pa.array(at + self.gap_us)} | self.aggregates.lift(rows)
        new = table_of(columns, schema)
        before = view.find(new).select(schema.names)
        together = pa.concat_tables([before, new]).combine_chunks()
        is_new = np.arange(together.num_rows) >= before.num_rows
        group = self._grouped(together)
        changed = np.zeros(group.max() + 1, bool)
        changed[group[is_new]] = True
        touched = changed[group]
        merged = self._merged(together.filter(picked(touched)), group[touched])
        moved = before.filter(picked(touched[: before.num_rows]))
        # A session whose start has moved, or that was merged with an earlier one, has another identity now.
        view.push(view.layout.seal(moved, _numbers(moved, END) + 1, gone=True))
        view.push(view.layout.seal(merged, _numbers(merged, END) + 1))

    def _grouped(self, sessions: pa.Table) -> npt.NDArray[np.int64]:
        """The number of the merged session to which each belongs."""
        codes = codes_of([sessions[name] for name in self.by], sessions.num_rows)
        starts, ends = _numbers(sessions, START), _numbers(sessions, END)
        order = np.lexsort((starts, codes))
        codes, starts, ends = codes[order], starts[order], ends[order]
        # The largest end so far within each key. By rank, since key and rank fit into 64 bits, but key and time don't.
        by_end = np.argsort(ends, kind="stable")
        rank = np.empty(len(ends), np.int64)
        rank[by_end] = np.arange(len(ends))
        reached = np.maximum.accumulate(codes * len(ends) + rank) - codes * len(ends)
        so_far = ends[by_end][reached]
        begins = np.ones(len(ends), bool)
        begins[1:] = (codes[1:] != codes[:-1]) | (starts[1:] > so_far[:-1])
        group = np.empty(len(ends), np.int64)
        group[order] = np.cumsum(begins) - 1
        return group

    def _merged(self, sessions: pa.Table, group: npt.NDArray[np.int64]) -> pa.Table:
        numbered = sessions.append_column(GROUP, pa.array(group))
        added = self.aggregates.add_up(
            numbered.select([GROUP, *(f.name for f in sessions.schema if f.name not in (*self.by, START, END))]),
            [GROUP],
        )
        spans: Any = numbered.group_by([GROUP], use_threads=False).aggregate(
            [(START, "min"), (END, "max"), *((name, "first") for name in self.by)]
        )
        columns = {START: spans[f"{START}_min"], END: spans[f"{END}_max"]}
        columns |= {name: spans[f"{name}_first"] for name in self.by}
        columns |= {name: added[name] for name in added.column_names if name != GROUP}
        return table_of(columns, sessions.schema)

    def _shown(self, rows: pa.Table, given: pa.Schema) -> pa.Table:
        window = windows_from(window_of(self.time, given), _numbers(rows, START), _numbers(rows, END))
        columns = {"session_window": window} | {name: rows[name] for name in self.by}
        return table_of(columns | self.aggregates.results(rows), self.output(given))


def _numbers(rows: pa.Table, name: str) -> Times:
    return np.asarray(flat(rows[name]).to_numpy(), np.int64)
