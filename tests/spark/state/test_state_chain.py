"""The chain of a partition's state, and a driver's batches over it, without Spark: races, crashes, zombies, upkeep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from places import Place, local_place
from typer.testing import CliRunner

from holdfast.cli import pipeline
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.ledger import Addition, FileRef, Ledger
from holdfast.spark.files.sink import refuse_fed
from holdfast.spark.files.store import LocalStore
from holdfast.spark.files.store_options import parse_store_options
from holdfast.spark.state import storing
from holdfast.spark.state.aggregates import parse_aggregates
from holdfast.spark.state.batch import KEPT_ENTRIES, Batch
from holdfast.spark.state.chain import Chain, Entry, beginning, decode, encode
from holdfast.spark.state.delivering import FED, belong_together, into_files
from holdfast.spark.state.opening import open_state
from holdfast.spark.state.storing import rows_of
from holdfast.spark.state.task import TaskPlan, Work
from holdfast.spark.state.windows import Totals

P = TopicPartition("orders", 3)
ORIGIN: list[tuple[str, pa.DataType]] = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
SCHEMA = pa.schema([*ORIGIN, ("k", pa.string())])
TOTALS = Totals(by=("k",), aggregates=parse_aggregates({"n": "count"}, SCHEMA))
LAYOUT = TOTALS.layout(SCHEMA)


@pytest.fixture(autouse=True)
def nothing_is_kept_open() -> None:
    storing.kept_open.clear()


class World:
    """A log of keys, a state, a sink, and batches that read the log."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.state, self.sink = (place / "state").store, (place / "sink").store
        self.log = [f"k{number % 7}" for number in range(600)]

    @property
    def folder(self) -> Path:
        """Of a state on the local disk."""
        assert isinstance(self.state, LocalStore)
        return self.state.root

    def job(self, work: Mapping[TopicPartition, Work]) -> Mapping[TopicPartition, Entry]:
        plan = TaskPlan(
            state=f"{self.place.path}/state",
            sink=f"{self.place.path}/sink",
            schema_id="s",
            operator=TOTALS,
            given=SCHEMA,
            ranges={P: (0, 600)},
            work=work,
            told="batch 7",
            writer="w",
            options=parse_store_options(self.place.options),
        )
        one = work[P]
        # A batch is read from where it was planned: rows that are in the state already come too.
        rows = [["orders", 3, offset, self.log[offset]] for offset in range(max(0, one.tip.end - 5), one.end)]
        columns = [
            pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ]
        (answer,) = plan([pa.RecordBatch.from_arrays(columns, schema=SCHEMA)])
        (text,) = answer.column("entry").to_pylist()
        assert text is not None
        return {P: decode(text.encode())}

    def batch(self, start: int, end: int, job: Any = None, *, deliver: bool = True) -> list[Entry]:
        one = Batch(self.state, {P: (start, end)}, "batch 7")
        entries = one.work(job or self.job)
        if deliver:
            into_files(self.sink, entries, "{}", "w")
            one.tidy()
        return entries[P]

    def counts(self) -> dict[str, int]:
        chain = Chain(self.state, P)
        tip = chain.tip()
        assert tip is not None
        return {row["k"]: row["n"] for row in rows_of(self.state, tip, LAYOUT, chain).to_pylist()}

    def wanted(self, end: int) -> dict[str, int]:
        return {key: self.log[:end].count(key) for key in self.log[:end]}

    def delivered(self) -> list[tuple[int, int]]:
        return [(file.first, file.rows) for file in Ledger(self.sink, P).load().files]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(local_place(tmp_path))


@pytest.fixture
def any_world(place: Place) -> World:
    """Also in an object store."""
    return World(place)


def test_state_stands_where_the_offset_stands(world: World) -> None:
    for start in range(0, 200, 10):
        world.batch(start, start + 10)
    assert world.counts() == world.wanted(200)
    assert world.delivered() == [(start + 9, 7) for start in range(0, 200, 10)]


def test_a_batch_that_died_behind_its_entry_is_not_counted_again_and_is_delivered(any_world: World) -> None:
    """kill -9 between the state's entry and the sink. The next owner begins where the group stands: before the
    entry."""
    any_world.batch(0, 50)
    any_world.batch(50, 80, deliver=False)
    assert [(entry.start, entry.end) for entry in any_world.batch(50, 100)] == [(50, 80), (80, 100)]
    assert any_world.counts() == any_world.wanted(100)
    assert any_world.delivered() == [(49, 7), (79, 7), (99, 7)]
    any_world.batch(50, 100)  # and once more, as after a crash before the group's commit
    assert any_world.delivered() == [(49, 7), (79, 7), (99, 7)]


def test_a_batch_that_died_before_its_entry_leaves_nothing_that_counts(any_world: World) -> None:
    any_world.batch(0, 50)
    tip = Chain(any_world.state, P).tip()
    assert tip is not None
    any_world.job({P: Work(tip, 90)})  # its files are there, and nobody names them
    any_world.batch(50, 70)
    assert any_world.counts() == any_world.wanted(70)
    assert any_world.delivered() == [(49, 7), (69, 7)]


def test_of_two_owners_each_record_is_counted_by_one(any_world: World) -> None:
    """A zombie and the new owner do the same range, with other cuts; whoever is second starts from what the first
    did."""
    any_world.batch(0, 50)

    def overtaken(work: Mapping[TopicPartition, Work]) -> Mapping[TopicPartition, Entry]:
        made = any_world.job(work)
        if not raced:
            raced.append(any_world.batch(50, 70))
        return made

    raced: list[Any] = []
    assert [(entry.start, entry.end) for entry in any_world.batch(50, 90, overtaken)] == [(50, 70), (70, 90)]
    assert any_world.counts() == any_world.wanted(90)
    assert any_world.delivered() == [(49, 7), (69, 7), (89, 7)]


def test_a_zombie_under_a_number_that_was_removed_is_told(world: World) -> None:
    """Entries are removed after a while. One that is created again under an old number is no part of the chain."""
    chain = Chain(world.state, P)
    world.batch(0, 10)
    old = chain.tip()
    assert old is not None
    for start in range(10, 10 * (3 * KEPT_ENTRIES), 10):
        world.batch(start, start + 10)
    assert len(chain.numbers()) < 2 * KEPT_ENTRIES
    assert not chain.append(old.next(99))
    assert world.counts() == world.wanted(10 * 3 * KEPT_ENTRIES)
    end = 10 * 3 * KEPT_ENTRIES
    assert [entry.end for entry in chain.since(end - 20)] == [end - 10, end]


def test_an_entry_that_was_followed_at_once_still_counts(world: World) -> None:
    """Between creating an entry and looking behind it, the next owner may have added one."""
    chain = Chain(world.state, P)
    first = beginning(0).next(10)

    class Quick(LocalStore):
        def create(self, name: str, data: bytes) -> bool:
            made = super().create(name, data)
            if name == chain.entry_name(1):
                assert super().create(chain.entry_name(2), encode(first.next(20)))
            return made

    assert Chain(Quick(world.folder), P).append(first)
    tip = chain.tip()
    assert tip is not None
    assert tip.end == 20


def test_what_only_old_entries_name_is_removed_with_them(world: World) -> None:
    chain = Chain(world.state, P)
    for start in range(0, 400, 5):
        world.batch(start, start + 5)
    named = {run.name for number in chain.numbers() for run in chain.entry(number).runs}  # type: ignore[union-attr]
    there = {f"{chain.runs_folder}/{name}" for name in world.state.names(chain.runs_folder)}
    assert there == named
    assert len(there) <= 2 * KEPT_ENTRIES
    assert world.counts() == world.wanted(400)


# -- what can't be right


def test_a_run_that_was_damaged_is_named_with_partition_path_and_batch(world: World) -> None:
    world.batch(0, 50)
    chain = Chain(world.state, P)
    tip = chain.tip()
    assert tip is not None
    path = world.folder / tip.runs[0].name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    storing.kept_open.clear()
    with pytest.raises(HoldfastError) as told:
        world.batch(50, 60)
    assert told.value.code == "STATE_UNREADABLE"
    for part in ("orders-3", str(path), "batch 7", "--start-empty orders-3"):
        assert part in str(told.value)


def test_a_chain_that_is_gone_is_not_begun_anew(world: World) -> None:
    world.batch(0, 50)
    chain = Chain(world.state, P)
    world.state.remove(chain.entry_name(1))
    with pytest.raises(HoldfastError, match="STATE_UNREADABLE: The state of orders-3, wanted by batch 7"):
        world.batch(50, 60)


def test_an_entry_that_is_not_one_is_told(world: World) -> None:
    chain = Chain(world.state, P)
    world.batch(0, 50)
    world.state.create(chain.entry_name(2), b"{}")
    with pytest.raises(HoldfastError, match="STATE_UNREADABLE"):
        world.batch(50, 60)


def test_a_group_that_was_moved_on_or_back_is_told(world: World) -> None:
    for start in range(0, 300, 5):
        world.batch(start, start + 5)
    with pytest.raises(
        HoldfastError, match="STATE_BEHIND: The state of orders-3 stands at 300, and batch 7 begins at 310"
    ):
        world.batch(310, 320)
    with pytest.raises(HoldfastError, match="STATE_AHEAD: batch 7 begins orders-3 at 20"):
        world.batch(20, 310)


def test_a_job_that_fails_is_told_unless_somebody_else_went_on(world: World) -> None:
    """A zombie's files may be gone by right: then it looks again. Else an error is an error."""
    world.batch(0, 50)

    def fails(work: Mapping[TopicPartition, Work]) -> Mapping[TopicPartition, Entry]:
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        world.batch(50, 60, fails)

    def overtaken(work: Mapping[TopicPartition, Work]) -> Mapping[TopicPartition, Entry]:
        world.batch(50, 60)
        raise ValueError("no such file")

    world.batch(50, 60, overtaken)
    assert world.counts() == world.wanted(60)


def test_a_range_without_rows_is_done_all_the_same(world: World) -> None:
    world.batch(0, 50)
    world.batch(50, 80, lambda _work: {})
    tip = Chain(world.state, P).tip()
    assert tip is not None
    assert (tip.start, tip.end, tip.output) == (50, 80, ())


def test_a_state_of_another_operator_is_not_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    open_state(store, operator="totals", columns="k string", first=True, told="batch 0")
    open_state(store, operator="totals", columns="k string", first=False, told="batch 9")
    for other in ({"operator": "windows"}, {"columns": "k int64"}):
        asked: dict[str, Any] = {"operator": "totals", "columns": "k string"} | other
        with pytest.raises(HoldfastError, match="STATE_DIFFERS"):
            open_state(store, **asked, first=False, told="batch 9")


def test_a_state_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(
        HoldfastError, match=r"STATE_MISSING: There is no state at .*, and batch 9 is not the query's first"
    ):
        open_state(LocalStore(tmp_path), operator="totals", columns="", first=False, told="batch 9")


def test_a_sink_that_somebody_else_writes_into_is_told(world: World) -> None:
    file = FileRef(name="data/orders/3/a.parquet", rows=1, bytes=1, first=10, last=40, schema="s")
    entry = replace(beginning(0).next(50), output=(replace(file, first=45, last=49),))
    into_files(world.sink, {P: []}, "{}", "w")
    Ledger(world.sink, P).append(lambda _end: Addition(0, 48, (file,)))
    with pytest.raises(HoldfastError, match="SINK_SHARED"):
        into_files(world.sink, {P: [entry]}, "{}", "w")


def test_a_sink_gets_results_from_one_state_only(tmp_path: Path) -> None:
    """Symptom: of two stateful queries that delivered into one path, one lost nearly everything, without a word. Cause:
    both deliver a batch under its last offset, and whoever came second was taken for a repetition. The same with an
    application whose path of the state was not mounted: it began with an empty state, beside the others. Rule: a sink
    keeps the name of its state, and another one is refused before its first batch."""
    place = local_place(tmp_path)
    sink, counts, sums = ((place / name).store for name in ("sink", "counts", "sums"))
    belong_together(sink, counts)
    again = (place / "counts").store, (place / "sink").store
    FED.clear()
    belong_together(again[1], again[0])  # another application of the same query
    with pytest.raises(HoldfastError, match=r"SINK_SHARED: The sink at .*sink gets its results from another state"):
        belong_together(sink, sums)
    with pytest.raises(HoldfastError, match="SINK_SHARED: A stateful query delivers"):
        refuse_fed(sink)
    refuse_fed((place / "plain").store)


def test_a_batch_that_is_in_the_state_already_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: a topic that was recreated, or a state that two groups used, counted nothing until offsets had passed
    the old ones, without a word. After a crash the same is as it should be. Rule: what is left out is told."""
    world.batch(0, 50)
    world.batch(50, 80)
    assert capsys.readouterr().err == ""
    world.batch(40, 90)
    told = "stateful: batch 7: the state of orders-3 stands at 80 by w: offsets from 40 to 80 are not counted again."
    assert capsys.readouterr().err.splitlines() == [told]


def test_a_state_that_begins_in_the_middle_of_a_topic_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: an application whose path of the state was not mounted took partitions over with an empty state, and
    wrote half windows, without a word. With `latest` or a new path the same is meant, so it is told and no error."""
    world.batch(20, 50)
    world.batch(50, 80)
    told = "stateful: batch 7: the state of orders-3 begins empty, at offset 20."
    assert capsys.readouterr().err.splitlines() == [told]


# -- upkeep, by hand


def command(world: World, *more: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(pipeline.app, ["state", str(world.folder), *more, "-o", "json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def opened(world: World) -> World:
    open_state(world.state, operator="totals", columns="k string", first=True, told="batch 0")
    return world


def test_what_is_held_is_shown_with_its_reason_and_size(world: World) -> None:
    opened(world).batch(0, 50)
    world.batch(50, 80)
    (shown,) = command(world)
    assert (shown["topic"], shown["partition"], shown["next_offset"], shown["state_rows"]) == ("orders", 3, 80, 7)
    assert (shown["entries"], shown["late_rows"], shown["last_writer"], shown["unnamed"]) == (2, 0, "w", 0)
    assert shown["state_bytes"] > 0
    assert shown["for_successors"] > 0  # the run before: somebody may be reading it


def test_files_of_tasks_that_died_are_cleaned_up_when_they_are_old(world: World) -> None:
    opened(world).batch(0, 50)
    tip = Chain(world.state, P).tip()
    assert tip is not None
    world.job({P: Work(tip, 90)})
    assert command(world)[0]["unnamed"] > 0
    assert command(world, "--clean") == [{"files": 0, "bytes": 0}]
    assert command(world, "--clean", "--older-than", "0s", "--dry-run")[0]["files"] == 1
    assert command(world, "--clean", "--older-than", "0s")[0]["files"] == 1
    assert command(world)[0]["unnamed"] == 0
    assert world.counts() == world.wanted(50)


def test_a_partition_that_can_not_be_read_can_start_empty(world: World) -> None:
    """The error names the command; after it the partition goes on from where the group stands, without a past."""
    opened(world).batch(0, 50)
    world.state.create(Chain(world.state, P).entry_name(2), b"{}")
    with pytest.raises(HoldfastError, match="--start-empty orders-3"):
        world.batch(50, 60)
    command(world, "--start-empty", "orders-3")
    world.batch(50, 60)
    assert world.counts() == {key: world.log[50:60].count(key) for key in world.log[50:60]}
    assert world.delivered() == [(49, 7), (59, 7)]


def test_records_that_are_gone_can_be_left_out_on_purpose(world: World) -> None:
    """Retention was faster than the query. What is known of the partition stays."""
    opened(world).batch(0, 50)
    with pytest.raises(HoldfastError, match=r"STATE_BEHIND: .*--skip-to orders-3=70"):
        world.batch(70, 80)
    assert command(world, "--skip-to", "orders-3=70") == [{"partition": "orders-3", "from": 50, "to": 70}]
    world.batch(70, 80)
    kept = world.log[:50] + world.log[70:80]
    assert world.counts() == {key: kept.count(key) for key in kept}
    done = CliRunner().invoke(pipeline.app, ["state", str(world.folder), "--skip-to", "orders-3=60"])
    assert isinstance(done.exception, HoldfastError)
    assert done.exception.code == "STATE_NO_GAP"


@pytest.mark.parametrize("name", ["orders-4", "orders", "-3"])
def test_a_partition_that_is_not_there_is_refused(world: World, name: str) -> None:
    opened(world).batch(0, 50)
    done = CliRunner().invoke(pipeline.app, ["state", str(world.folder), "--start-empty", name])
    assert isinstance(done.exception, HoldfastError)
    assert done.exception.code in ("STATE_NO_PARTITION", "INVALID_OPTION")


def test_rows_that_the_batch_does_not_read_are_not_dropped_in_silence(world: World) -> None:
    """Symptom: behind a `repartition` nothing came out, and offsets moved on. Cause: Spark wraps such a plan, the scan
    in it was not found, and the batch seemed to read nothing. Rule: a row of an unknown range is an error."""
    with pytest.raises(HoldfastError, match="STATE_ROWS_UNKNOWN: batch 7 has rows of orders-3 from 595 to 604"):
        world.log += ["k1"] * 10
        world.job({P: Work(beginning(600), 605)})
