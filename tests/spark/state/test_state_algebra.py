"""Operators with state beside an oracle, over random rows and random cuts into steps and batches.

The rule that all of this rests on: results depend on the rows of a partition in their order, and on nothing else. How
they were cut into batches, how state was laid down in runs and merged, and that keys share a hash must not show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_oracle import DistinctOracle, Row, SessionOracle, WindowOracle

from holdfast.model import HoldfastError
from holdfast.spark.state import keys, runs
from holdfast.spark.state.aggregates import parse_aggregates
from holdfast.spark.state.distinct import Distinct
from holdfast.spark.state.operators import Operator, last_rows
from holdfast.spark.state.runs import NOT_YET, View, first_to_merge, newest
from holdfast.spark.state.sessions import END, Sessions
from holdfast.spark.state.times import duration_us, shown
from holdfast.spark.state.windows import START, Totals, Windows

COLUMNS: list[tuple[str, pa.DataType]] = [("k", pa.string()), ("t", pa.timestamp("us", tz="UTC")), ("x", pa.int64())]
SCHEMA = pa.schema([*COLUMNS, ("offset", pa.int64())])
AGGREGATES = parse_aggregates({"n": "count", "s": ("sum", "x")}, SCHEMA)

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "", None]),
        st.one_of(st.none(), st.integers(0, 60)),
        st.one_of(st.none(), st.integers(-5, 5)),
    ),
    max_size=60,
)
CUTS = st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=30)
"""How many rows each step takes, and whether a batch ends behind it."""


@pytest.fixture(autouse=True, params=["hashes", "collisions"])
def crowded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Once as it is, and once with all keys on two hashes, small runs or large."""
    if request.param == "collisions":
        monkeypatch.setattr(runs, "hash_of", lambda table, names: keys.hash_of(table, names) % np.uint64(2))
        monkeypatch.setattr(runs, "SMALL_ROWS", 0)
    yield


def table(rows: Sequence[Row], first: int = 0) -> pa.Table:
    columns = [[row[number] for row in rows] for number in range(3)] + [list(range(first, first + len(rows)))]
    times = pa.array(columns[1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    arrays: list[pa.Array[Any]] = [
        pa.array(columns[0], pa.string()),
        times,
        *(pa.array(column, pa.int64()) for column in columns[2:]),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class Played:
    """All rows through an operator, cut as told; a batch's changes become a run, and runs are merged as on disk."""

    def __init__(self, operator: Operator, rows: Sequence[Row], cuts: Sequence[tuple[int, bool]]) -> None:
        self.layout = operator.layout(SCHEMA)
        self.outputs: list[pa.Table] = []
        self.late, watermark, at = 0, NOT_YET, 0
        stored: list[pa.Table] = []
        view, steps = View(self.layout), []
        for number in range(10_000):
            size, ends = cuts[number % len(cuts)]
            done = operator.step(view, table(rows[at : at + size], at), watermark)
            steps.append(done.output)
            watermark, at, self.late = done.watermark, at + size, self.late + done.late
            if ends or at >= len(rows):
                together = pa.concat_tables(steps)
                names = operator.supersedes
                self.outputs.append(together if names is None else last_rows(together, names))
                stored = laid_down(stored, view)
                view, steps = View(self.layout, stored), []
            if at >= len(rows):
                break
        self.state = newest(stored[::-1], self.layout.identity, drop_gone=True) if stored else self.layout.empty()

    def out(self) -> list[dict[str, Any]]:
        return [row for output in self.outputs for row in output.to_pylist()]


def laid_down(stored: list[pa.Table], view: View) -> list[pa.Table]:
    made = [*stored, view.changes()]
    first = first_to_merge([run.num_rows for run in made])
    return [*made[:first], newest(made[first:][::-1], view.layout.identity, drop_gone=first == 0)]


def micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, cuts=CUTS, size=st.integers(1, 20), slide=st.integers(1, 20), delay=st.integers(0, 30))
def test_windows_come_out_once_and_whole(
    rows: list[Row], cuts: list[tuple[int, bool]], size: int, slide: int, delay: int
) -> None:
    slide = min(slide, size)
    wanted = WindowOracle(size, slide, delay).run(rows)
    common: dict[str, Any] = {"time": "t", "size_us": size, "slide_us": slide, "delay_us": delay, "by": ("k",)}
    found = Played(Windows(**common, aggregates=AGGREGATES, append=True), rows, cuts)
    shown = [(row["k"], micros(row["window"]["start"]), row["n"], row["s"] or 0) for row in found.out()]
    assert sorted(shown, key=str) == sorted([(*name, *sums) for name, sums in wanted.closed.items()], key=str)
    state = {(row["k"], row[START]): [row["n"], row["s"] or 0] for row in found.state.to_pylist()}
    assert state == wanted.open
    assert found.late == wanted.late

    updates = Played(Windows(**common, aggregates=AGGREGATES, append=False), rows, cuts)
    last = {(row["k"], micros(row["window"]["start"])): [row["n"], row["s"] or 0] for row in updates.out()}
    assert last == wanted.open | wanted.closed


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, cuts=CUTS, gap=st.integers(1, 12), delay=st.integers(0, 30))
def test_sessions_are_those_of_a_batch(rows: list[Row], cuts: list[tuple[int, bool]], gap: int, delay: int) -> None:
    wanted = SessionOracle(gap, delay).run(rows)
    found = Played(Sessions(time="t", gap_us=gap, delay_us=delay, by=("k",), aggregates=AGGREGATES), rows, cuts)
    shown = [
        (
            row["k"],
            micros(row["session_window"]["start"]),
            micros(row["session_window"]["end"]),
            row["n"],
            row["s"] or 0,
        )
        for row in found.out()
    ]
    assert sorted(shown, key=str) == sorted(wanted.closed, key=str)
    state = [(row["k"], row[START], row[END], row["n"], row["s"] or 0) for row in found.state.to_pylist()]
    assert sorted(state, key=str) == sorted(wanted.open, key=str)
    assert found.late == wanted.late


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, cuts=CUTS, delay=st.integers(1, 30))
def test_repetitions_are_dropped_within_the_delay(rows: list[Row], cuts: list[tuple[int, bool]], delay: int) -> None:
    wanted = DistinctOracle(delay).run(rows)
    found = Played(Distinct(by=("k",), time="t", delay_us=delay), rows, cuts)
    assert [row["offset"] for row in found.out()] == wanted.passed
    assert found.late == wanted.late


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, cuts=CUTS)
def test_totals_and_distinct_for_ever(rows: list[Row], cuts: list[tuple[int, bool]]) -> None:
    sums: dict[Any, list[int]] = {}
    firsts: dict[Any, int] = {}
    for number, (key, _, x) in enumerate(rows):
        found = sums.setdefault(key, [0, 0])
        found[0], found[1] = found[0] + 1, found[1] + (x or 0)
        firsts.setdefault(key, number)
    totals = Played(Totals(by=("k",), aggregates=AGGREGATES), rows, cuts)
    assert {row["k"]: [row["n"], row["s"] or 0] for row in totals.out()} == sums
    assert {row["k"]: [row["n"], row["s"] or 0] for row in totals.state.to_pylist()} == sums
    distinct = Played(Distinct(by=("k",)), rows, cuts)
    assert [row["offset"] for row in distinct.out()] == sorted(firsts.values())


def test_totals_of_everything_have_one_row() -> None:
    found = Played(Totals(by=(), aggregates=AGGREGATES), [("a", 1, 2), ("b", 2, 3), ("c", 3, None)], [(1, True)])
    assert [(row["n"], row["s"]) for row in found.out()] == [(1, 2), (2, 5), (3, 5)]


def test_a_key_that_comes_back_very_often_in_one_step() -> None:
    """Each row lets the next one through: far more rounds than are done at once."""
    rows: list[Row] = [*(("a", 2 * number, 1) for number in range(500)), *[("b", 1_000, 1)] * 3]
    found = Played(Distinct(by=("k",), time="t", delay_us=1), rows, [(1_000, True)])
    assert [row["offset"] for row in found.out()] == DistinctOracle(1).run(rows).passed


FIRST, LAST = -(2**63) + 1, 2**63 - 1
"""What the source gives for a timestamp that does not fit."""


@pytest.mark.parametrize("broken", [FIRST, LAST])
@pytest.mark.parametrize("kind", ["windows", "sessions", "distinct"])
def test_a_time_that_can_not_be_one_does_not_make_everything_after_it_late(kind: str, broken: int) -> None:
    """Symptom: after one record whose timestamp was beyond all times (a producer's nanoseconds, a wrong cast), no later
    record of its partition counted. A far past did the same as a far future. Cause: the time less the delay went round
    to the other end of 64 bits, or was the largest time seen. Rule: a row without a time that can be one counts for
    nothing, and is told with the late ones."""
    every: dict[str, Any] = {"time": "t", "delay_us": 5, "by": ("k",)}
    made: dict[str, Operator] = {
        "windows": Windows(**every, size_us=10, slide_us=10, aggregates=AGGREGATES, append=True),
        "sessions": Sessions(**every, gap_us=10, aggregates=AGGREGATES),
        "distinct": Distinct(**every),
    }
    operator = made[kind]
    good: list[Row] = [("a", 100, 1), ("b", 120, 1), ("c", 400, 1)]
    rows: list[Row] = [("z", broken, 1), good[0], ("z", broken, 1), *good[1:]]
    found, wanted = Played(operator, rows, [(2, True)]), Played(operator, good, [(2, True)])
    assert [{**row, "offset": 0} for row in found.out()] == [{**row, "offset": 0} for row in wanted.out()]
    assert wanted.out()
    assert (found.late, wanted.late) == (2, 0)


@pytest.mark.parametrize("zone", ["UTC", None])
def test_a_window_has_a_zone_if_its_times_have_one(zone: str | None) -> None:
    """Symptom: windows over a timestamp_ntz came out in UTC, hours off in other time zones. Spark's own have no zone
    there."""
    kind = pa.timestamp("us", tz=zone)
    rows = pa.table({"k": ["a", "b"], "t": pa.array([100, 400], pa.int64()).cast(kind), "x": [1, 1], "offset": [0, 1]})
    every: dict[str, Any] = {"time": "t", "delay_us": 5, "by": ("k",), "aggregates": AGGREGATES}
    for operator in (Windows(**every, size_us=10, slide_us=10, append=True), Sessions(**every, gap_us=10)):
        done = operator.step(View(operator.layout(rows.schema)), rows, NOT_YET).output
        assert done.schema == operator.output(rows.schema)
        (window,) = done.column(0).to_pylist()
        assert window == {"start": pa.scalar(100, kind).as_py(), "end": pa.scalar(110, kind).as_py()}


def test_a_watermark_of_any_year_is_shown() -> None:
    assert shown(0) == "1970-01-01T00:00:00+00:00"
    assert shown(2**60) == "38504-08-17T21:30:06.846976+00:00"


def test_averages_smallest_and_largest() -> None:
    asked = {"mean": ("avg", "x"), "low": ("min", "x"), "high": ("max", "x"), "some": ("count", "x")}
    operator = Totals(by=("k",), aggregates=parse_aggregates(asked, SCHEMA))
    rows: list[Row] = [("a", 1, 2), ("a", 1, 5), ("b", 1, None), ("a", 1, None)]
    last = {row["k"]: row for row in Played(operator, rows, [(1, True)]).out()}
    assert last["a"] == {"k": "a", "mean": 3.5, "low": 2, "high": 5, "some": 2}
    assert last["b"] == {"k": "b", "mean": None, "low": None, "high": None, "some": 0}


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    """Arrow's own sum goes round to a negative number without a word."""
    with pytest.raises(HoldfastError, match="STATE_SUM_TOO_LARGE"):
        Played(Totals(by=("k",), aggregates=AGGREGATES), [("a", 1, 2**62), ("a", 1, 2**62)], [(1, True)])


def totals_of(kind: str, values: list[Any], of: pa.DataType) -> Any:
    """One key, each value in a step of its own."""
    rows = pa.table({"k": ["a"] * len(values), "x": pa.array(values, of)})
    operator = Totals(by=("k",), aggregates=parse_aggregates({"found": (kind, "x")}, rows.schema))
    view = View(operator.layout(rows.schema))
    steps = [operator.step(view, rows.slice(number, 1), NOT_YET).output for number in range(len(values))]
    return steps[-1]["found"].to_pylist()[0]


def test_a_sum_of_decimals_that_does_not_fit_is_an_error_too() -> None:
    """Symptom: two large decimals added up to a negative number. Arrow's sums go round for them as well."""
    large, kind = Decimal("9" + "0" * 37), pa.decimal128(38, 0)
    with pytest.raises(HoldfastError, match="STATE_SUM_TOO_LARGE: A sum of 'found' does not fit into 38 digits"):
        totals_of("sum", [large, large], kind)
    assert totals_of("sum", [large, Decimal("-9" + "0" * 37), Decimal(7)], kind) == 7
    assert totals_of("sum", [Decimal("1.10"), Decimal("2.20")], pa.decimal128(10, 2)) == Decimal("3.30")


def test_numbers_that_are_hard_come_out_as_from_sparks_own_batch() -> None:
    """Symptom: an average over a column of ids ended the query at the first one beyond 2**53, and after each start. And
    of NaN and a number the number was the largest; Spark's own batch says NaN."""
    assert totals_of("avg", [2**53 + 1, 2**53 + 3], pa.int64()) == float(2**53 + 2)
    nan = float("nan")
    for kind in (pa.float32(), pa.float64()):
        assert math.isnan(totals_of("max", [1.0, nan, 2.0, None], kind))
        assert totals_of("max", [1.0, None, 2.0], kind) == 2.0
        assert totals_of("min", [nan, 1.0, nan], kind) == 1.0
        assert math.isnan(totals_of("min", [nan, nan], kind))


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("avg", pa.string()),
        ("avg", pa.timestamp("us")),
        ("min", pa.struct([("a", pa.int8())])),
        ("max", pa.list_(pa.int8())),
    ],
)
def test_what_no_aggregate_takes_is_refused_before_the_query_starts(kind: str, of: pa.DataType) -> None:
    with pytest.raises(HoldfastError, match="STATE_AGGREGATE_UNKNOWN"):
        parse_aggregates({"found": (kind, "x")}, pa.schema([("x", of)]))


def test_two_aggregates_do_not_keep_the_same_column() -> None:
    with pytest.raises(HoldfastError, match="STATE_NAME_TAKEN"):
        parse_aggregates({"mean": ("avg", "x"), "mean__sum": ("sum", "x")}, SCHEMA)


def documented() -> Any:
    """The operator of the page, as it stands there."""
    page = Path(__file__).parents[3] / "docs" / "stateful.md"
    (code,) = re.findall(r"<!-- example -->\n```python\n(import numpy.*?)```", page.read_text("utf-8"), re.DOTALL)
    there: dict[str, Any] = {"__name__": "documented"}
    exec(code, there)
    return there["Changes"]()


@settings(max_examples=40, deadline=None)
@given(said=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=40), cuts=CUTS)
def test_the_documented_operator_depends_on_no_cuts(said: list[tuple[str, int]], cuts: list[tuple[int, bool]]) -> None:
    operator = documented()
    columns: list[tuple[str, pa.DataType]] = [("device", pa.string()), ("said", pa.int64())]
    schema = pa.schema(columns)
    last: dict[str, int] = {}
    wanted = []
    for device, word in said:
        if last.get(device) != word:
            wanted.append({"device": device, "said": word})
        last[device] = word
    stored: list[pa.Table] = []
    found: list[dict[str, Any]] = []
    at = number = 0
    while at < len(said):
        size, _ = cuts[number % len(cuts)]
        part = [list(column) for column in zip(*said[at : at + size], strict=True)]
        view = View(operator.layout(schema), stored)
        rows = pa.Table.from_arrays([pa.array(part[0]), pa.array(part[1])], schema=schema)
        found += operator.step(view, rows, NOT_YET).output.to_pylist()
        stored = laid_down(stored, view)
        at, number = at + size, number + 1
    assert found == wanted


# -- keys and runs


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", "a", "b", "ab", "ba", None, "x" * 300_000, "a\x00", "\x00a"]),
        pa.array([0, 1, -1, 2**62, None], pa.int64()),
        pa.array([b"", b"a", None], pa.binary()),
        pa.array([True, False, None]),
        pa.array([0, 1, None], pa.date32()),
    ],
)
def test_hashes_depend_on_the_value_and_not_on_where_it_lies(values: Any) -> None:
    def hashes(column: Any) -> list[int]:
        found: list[int] = keys.hash_of(pa.table({"k": column}), ["k"]).tolist()
        return found

    alone = hashes(values)
    assert len(set(alone)) == len(values)
    behind = pa.concat_arrays([values[:1]] * 7 + [values])
    assert hashes(behind)[7:] == alone == hashes(behind.slice(7))
    assert hashes(pa.chunked_array([values[:2], values[2:]])) == alone


def test_hashes_never_change() -> None:
    """They are in files."""
    found = keys.hash_of(pa.table({"a": ["customer-1", None], "b": pa.array([7, 8], pa.int32())}), ["a", "b"])
    assert found.tolist() == [15684652827152757613, 16674589916300111544]


def test_there_are_few_runs_whatever_is_written() -> None:
    sizes: list[int] = []
    for rows in [100_000] + [1_000, 5_000, 20] * 100:
        sizes.append(rows)
        first = first_to_merge(sizes)
        sizes[first:] = [sum(sizes[first:])]
        assert len(sizes) <= 12
    assert sum(sizes) == 100_000 + 6_020 * 100


@pytest.mark.parametrize(("text", "wanted"), [("10 minutes", 600_000_000), ("1 hour 30 minutes", 5_400_000_000)])
def test_durations_are_written_as_in_spark(text: str, wanted: int) -> None:
    assert duration_us(text, "size") == wanted


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "0 seconds", "3 fortnights", "1 minute 2", "9999999 weeks"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match="INVALID_DURATION: size is"):
        duration_us(text, "size")
