"""What a doctor that follows keeps: a batch at a time gives what a single run gives, whatever comes twice or late.
Without Spark: the steps of `follow.Follower`, called as Spark calls them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.doctor.events import FIELDS, Event, as_row
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan
from holdfast.doctor.tables import COLUMNS, Row, examined
from holdfast.model import HoldfastError
from holdfast.spark.doctor.columns import arrow_schema_of
from holdfast.spark.doctor.kept import BUCKETS, NAMELESS, Kept, bucket_of
from holdfast.spark.doctor.notebook import Notebook, State
from holdfast.spark.doctor.reading import EVENTS

SAMPLES = Path(__file__).parents[2] / "doctor" / "samples" / "kafka-4.1"
GROUPS = ("hang", "crash", "collide", "eager", "roll", "healthy")
DAY_MS = 86_400_000.0


def sampled() -> list[Event]:
    found: list[Event] = []
    for group in GROUPS:
        for path in sorted((SAMPLES / group).iterdir()):
            found += scan(path.read_bytes(), file=path.name, last_ms=1.8e12).events
    return found


class Doctor:
    """Batches into a folder, without Spark."""

    def __init__(self, folder: Path, *, keep_ms: float = 7 * DAY_MS) -> None:
        self.kept = Kept(folder=str(folder), keep_ms=keep_ms, now_ms=0.0)
        self.changes: list[str] = []

    def store(self, events: Iterable[Event], number: int, *, only: int | None = None) -> dict[int, set[str]]:
        """Events into their buckets; the groups that are other than before. `only`: a crash came behind this one."""
        buckets: dict[int, list[Event]] = {}
        for event in events:
            buckets.setdefault(bucket_of(event.group) if event.group else NAMELESS, []).append(event)
        touched: dict[int, set[str]] = {}
        for place, (bucket, rows) in enumerate(sorted(buckets.items())):
            if only is not None and place >= only:
                break
            columns = list(zip(*map(as_row, rows), strict=True))
            arrays = {
                name: pa.array(column, EVENTS.field(name).type) for name, column in zip(FIELDS, columns, strict=True)
            }
            count = len(rows)
            arrays |= {"piece": pa.array([0] * count), "content": pa.array([""] * count)}
            arrays |= {"origin": pa.array(["me"] * count), "position": pa.array([number] * count)}
            self._note(touched, self.kept.store(pa.table({**arrays, "bucket": pa.array([bucket] * count)})))
        return touched

    def batch(self, events: Iterable[Event], number: int) -> None:
        touched = self.store(events, number)
        self._note(touched, self.kept.name(pa.table({"bucket": [NAMELESS]})))
        self.examine(touched)

    def examine(self, touched: dict[int, set[str]] | None = None) -> None:
        asked = {bucket: [None] for bucket in range(BUCKETS)} if touched is None else touched
        for bucket, groups in sorted(asked.items()):
            rows = pa.table({"bucket": pa.array([bucket] * len(groups)), "group": pa.array(list(groups), pa.string())})
            self.changes += [json.loads(row["change"])["change"] for row in self.kept.examine(rows).to_pylist()]

    def _note(self, touched: dict[int, set[str]], told: pa.Table) -> None:
        for row in told.to_pylist():
            touched.setdefault(row["bucket"], set()).add(row["group"])

    def tables(self) -> dict[str, list[str]]:
        return {name: _sorted(self.kept.read(name)) for name in COLUMNS}

    def events(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in Path(self.kept.folder, "events").glob("*.parquet"))


def at_once(events: list[Event]) -> dict[str, list[str]]:
    """A single run over all of it."""
    found: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for group, of in by_group([replace(one) for one in events]).items():
        for name, row in examined(group, of) if group else ():
            found[name].append(json.loads(json.dumps(row)))
    told = {name: pa.Table.from_pylist(rows, schema=arrow_schema_of(name)) for name, rows in found.items()}
    return {name: _sorted(table.to_pylist(maps_as_pydicts="strict")) for name, table in told.items()}


def _sorted(rows: Iterable[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return sampled()


@pytest.fixture(scope="module")
def whole(events: list[Event]) -> dict[str, list[str]]:
    return at_once(events)


@pytest.mark.parametrize("seed", [1, 2])
def test_three_steps_in_any_order_are_a_single_run(
    tmp_path: Path, events: list[Event], whole: dict[str, list[str]], seed: int
) -> None:
    """Lines come late and out of order, and what names a nameless line may come after it, or make it ambiguous."""
    assert any(not event.group for event in events)
    mixed = [replace(event) for event in events]
    random.Random(seed).shuffle(mixed)
    doctor, third = Doctor(tmp_path), len(mixed) // 3
    for number, part in enumerate((mixed[:third], mixed[third : 2 * third], mixed[2 * third :])):
        doctor.batch(part, number)
    assert doctor.tables() == whole
    assert doctor.events() == len(events)


def test_clocks_two_seconds_off_give_what_a_single_run_gives(tmp_path: Path, events: list[Event]) -> None:
    off = [replace(one, at_ms=one.at_ms + (2_000.0 if "java" in one.file else 0.0)) for one in events]
    doctor = Doctor(tmp_path)
    doctor.batch([one for one in off if one.file != "broker.log"], 0)
    doctor.batch([one for one in off if one.file == "broker.log"], 1)
    assert doctor.tables() == at_once(off)


@pytest.mark.parametrize("written", [1, 3, 100])
def test_a_batch_that_comes_again_after_a_crash_doubles_nothing(
    tmp_path: Path, events: list[Event], whole: dict[str, list[str]], written: int
) -> None:
    """The crash came when some buckets were written, or all and no table: Spark gives the batch again. A bucket says
    itself how far it is."""
    half = len(events) // 2
    doctor = Doctor(tmp_path)
    doctor.batch(events[:half], 0)
    doctor.store(events[half:], 1, only=written)
    again = Doctor(tmp_path)
    again.batch(events[half:], 1)
    again.batch(events[half:], 1)
    assert again.events() == len(events)
    assert again.tables() == whole


def test_what_a_crash_left_unexamined_is_examined_at_the_next_start(
    tmp_path: Path, events: list[Event], whole: dict[str, list[str]]
) -> None:
    doctor = Doctor(tmp_path)
    doctor.store(events, 0)
    doctor.kept.name(pa.table({"bucket": [NAMELESS]}))
    again = Doctor(tmp_path)
    again.examine()
    assert again.tables() == whole


def test_what_is_too_old_leaves_and_is_told(tmp_path: Path, events: list[Event]) -> None:
    """A week of following keeps a week: a storm that is over for longer is no finding, also if nobody says a word."""
    doctor = Doctor(tmp_path, keep_ms=DAY_MS)
    hang = [one for one in events if one.group == "hang"]
    doctor.batch(hang, 0)
    assert doctor.changes == ["new"] * len(list(doctor.kept.read("findings")))
    doctor.changes.clear()
    doctor.kept = replace(doctor.kept, now_ms=DAY_MS + 1)
    for bucket in range(NAMELESS, BUCKETS):
        doctor.kept.age(pa.table({"bucket": [bucket]}))
    doctor.examine()
    assert doctor.changes == ["forgotten"]
    assert doctor.events() == 0
    assert not any(doctor.tables().values())


def test_a_reader_never_sees_what_is_being_written(
    tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file under a name that readers look at is whole at any moment, and hidden ones are cleared away."""
    doctor = Doctor(tmp_path)
    doctor.batch(events[:200], 0)
    before = doctor.tables()
    seen: list[int] = []

    def dies(table: pa.Table, file: object) -> None:
        file.write(b"PAR1 half of")  # type: ignore[attr-defined]
        seen.append(1)
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", dies)
        with pytest.raises(OSError, match="no space"):
            doctor.batch(events[200:], 1)
    assert seen and doctor.tables() == before
    assert list(tmp_path.glob("*/_*.parquet.*"))
    (tmp_path / "_follow" / "names" / "_b00.parquet.half").touch()
    notebook = Notebook(tmp_path, tmp_path / "_follow" / "checkpoint")
    with notebook.turn():
        assert not list(tmp_path.rglob("_*.parquet.*"))
    notebook.close()


def test_lines_are_counted_through_batches_and_pieces() -> None:
    state = State()

    def told(content: str, piece: int, lines: int) -> dict[str, object]:
        return {"content": content, "piece": piece, "number": float(lines), "generation": 1, "line": 0, "at_ms": 9.0,
                "said": "", "file": content, "partitions": '{"x #": 2}'}  # fmt: skip

    assert state.add(0, [told("a", 1, 5), told("a", 0, 10)]) == {("a", 0): 0, ("a", 1): 10}
    assert state.add(1, [told("a", 0, 3), told("b", 0, 1)]) == {("a", 0): 15, ("b", 0): 0}
    assert state.lines == {"a": 18, "b": 1}
    assert (state.files, state.read["lines"], state.read["size"], state.shapes) == (2, 19, 36, {"x #": 8})


def test_another_source_or_a_lost_checkpoint_is_refused(tmp_path: Path) -> None:
    """The checkpoint was deleted and the tables kept: all lines would have come into them a second time."""
    place = tmp_path / "_follow" / "checkpoint"
    first = Notebook(tmp_path, place)
    with pytest.raises(HoldfastError, match="another doctor") as second:
        Notebook(tmp_path, place)
    first.claim({"kind": "files", "checkpoint": first.doctor})
    first.close()
    assert second.value.code == "DOCTOR_ALREADY_FOLLOWS"
    again = Notebook(tmp_path, place)
    again.claim({"kind": "files", "checkpoint": again.doctor})
    again.close()
    shutil.rmtree(place)
    lost = Notebook(tmp_path, place)
    with pytest.raises(HoldfastError) as refused:
        lost.claim({"kind": "files", "checkpoint": lost.doctor})
    lost.close()
    assert refused.value.code == "DOCTOR_OTHER_SOURCE"


def test_the_tables_of_a_single_run_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "part-0.parquet").touch()
    notebook = Notebook(tmp_path, tmp_path / "_follow" / "checkpoint")
    with pytest.raises(HoldfastError) as refused:
        notebook.claim({"kind": "files", "checkpoint": notebook.doctor})
    notebook.close()
    assert refused.value.code == "DOCTOR_NOT_A_FOLLOWED_FOLDER"
