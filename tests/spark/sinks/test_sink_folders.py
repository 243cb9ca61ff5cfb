"""`partitionBy` of the file sink, without Spark: folders by value, what a filter spares, and upkeep beside it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from places import Place
from pyspark.sql import datasource as ds
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructType

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.folders import (
    NULL,
    check_partition_by,
    folder_name,
    may_hold,
    parse_partition_by,
    split_by_values,
    values_of,
)
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.schema import check_types
from holdfast.spark.files.sink import keep_schema, open_sink
from holdfast.spark.files.source import FilesSource
from holdfast.spark.files.store import LocalStore, Store
from holdfast.spark.files.upkeep import clean, compact
from holdfast.spark.files.writing import Written, write_rows

COLUMNS = Columns()
ORDERS = TopicPartition("orders", 0)
FAR = 1e12


def rows(start: int, countries: list[str | None]) -> pa.RecordBatch:
    count = len(countries)
    return pa.record_batch(
        {
            "topic": pa.array(["orders"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "country": pa.array(countries, pa.string()),
            "day": pa.array([date(2026, 1, 1 + n % 2) for n in range(count)], pa.date32()),
        }
    )


def write(store: Store, batch: pa.RecordBatch, *names: str) -> list[Written]:
    return write_rows(store, [batch], columns=COLUMNS, schema_id="s", partition_by=names)


def offsets(place: Place) -> list[int]:
    read = [place.parquet(name).read(["offset"]).to_pylist() for name in place.files()]
    return sorted(row["offset"] for table in read for row in table)


def test_rows_go_to_the_folders_of_their_values_and_keep_their_columns(place: Place) -> None:
    """Symptom: `partitionBy("country")` was ignored. Rule: Hive's folders, and the columns stay in the files."""
    store = place.store
    open_sink(store, COLUMNS)
    commit_files(store, write(store, rows(0, ["de", "a/b=c", None, "", "de"]), "country"), columns=COLUMNS)
    assert store.names("data/orders/0") == [f"country={NULL}", "country=a%2Fb%3Dc", "country=de"]
    assert offsets(place) == [0, 1, 2, 3, 4]
    by_folder = {values_of(name)["country"]: name for name in place.files()}
    assert place.parquet(by_folder["de"]).read()["country"].to_pylist() == ["de", "de"]
    assert place.parquet(by_folder["a/b=c"]).read()["country"].to_pylist() == ["a/b=c"]
    assert place.parquet(by_folder[None]).read()["country"].to_pylist() == [None, ""]


@pytest.mark.parametrize(("day", "folder"), [(20_000_000, "56728-02-22"), (-1_000_000, "-768-02-04")])
def test_a_day_beyond_pythons_years_has_a_folder_too(tmp_path: Path, day: int, folder: str) -> None:
    """Symptom: one record whose timestamp was in microseconds instead of milliseconds ended a query that wrote by
    day, and again after each start. Cause: the folder was named with Python's dates, whose years end with 9999."""
    store = LocalStore(tmp_path)
    batch = rows(0, ["de", "de"]).set_column(4, "day", pa.array([day, None], pa.int32()).cast(pa.date32()))
    written = write(store, batch, "day")
    names = [one.file.name.split("/")[3] for one in written if one.file is not None]
    assert names == [f"day={folder}", f"day={NULL}"]
    there = f"data/orders/0/day={folder}/x.parquet"
    assert may_hold(there, [ds.EqualTo(("day",), date(2026, 1, 1))], {"day": "date"}), "in doubt it is read"


def test_several_columns_make_folders_in_folders() -> None:
    found = {folder: part.num_rows for folder, part in split_by_values(rows(0, ["de", "de", "fr"]), ["country", "day"])}
    assert found == {
        "country=de/day=2026-01-01": 1,
        "country=de/day=2026-01-02": 1,
        "country=fr/day=2026-01-01": 1,
    }
    assert folder_name({"ok": True, "n": -3, "day": date(2026, 1, 2)}) == "ok=true/n=-3/day=2026-01-02"


def test_a_replay_with_other_cuts_is_in_once_and_stays_in_its_folders(place: Place) -> None:
    store = place.store
    zombie = write(store, rows(0, ["de", "fr"] * 10), "country")
    commit_files(store, write(store, rows(0, ["de", "fr"] * 3), "country"), columns=COLUMNS)
    commit_files(store, zombie, columns=COLUMNS)
    assert offsets(place) == list(range(20))
    assert {values_of(name)["country"] for name in place.files()} == {"de", "fr"}


def test_compaction_and_cleaning_keep_folders_apart(place: Place) -> None:
    store = place.store
    open_sink(store, COLUMNS)
    for start in range(0, 40, 8):
        commit_files(store, write(store, rows(start, ["de", "fr"] * 4), "country"), columns=COLUMNS)
    left = write(store, rows(100, ["xx"]), "country")[0].file
    assert left is not None
    (done,) = compact(store)
    assert (done.files_before, done.files_after) == (10, 2)
    assert clean(store, now=FAR, grace_s=0).data_files == 11
    assert offsets(place) == list(range(40))
    assert store.read(left.name) is None
    by_country = {values_of(file.name)["country"]: file.rows for file in Ledger(store, ORDERS).load().files}
    assert by_country == {"de": 20, "fr": 20}


TYPES = {"country": "string", "day": "date", "n": "long", "ok": "boolean"}
FILE = "data/orders/0/country=de/day=2026-01-02/n=7/ok=true/x.parquet"


@pytest.mark.parametrize(
    ("one", "read"),
    [
        (ds.EqualTo(("country",), "de"), True),
        (ds.EqualTo(("country",), "fr"), False),
        (ds.EqualNullSafe(("country",), "fr"), False),
        (ds.In(("country",), ("fr", "de")), True),
        (ds.In(("country",), ("fr", "it")), False),
        (ds.IsNull(("country",)), False),
        (ds.IsNotNull(("country",)), True),
        (ds.GreaterThan(("day",), date(2026, 1, 2)), False),
        (ds.GreaterThanOrEqual(("day",), date(2026, 1, 2)), True),
        (ds.LessThan(("n",), 7), False),
        (ds.LessThanOrEqual(("n",), 7), True),
        (ds.EqualTo(("ok",), False), False),
        (ds.EqualTo(("n",), 7.0), True),  # of another type: a doubt
        (ds.GreaterThan(("country",), "zz"), True),  # order of texts: a doubt
        (ds.Not(ds.EqualTo(("country",), "de")), True),
        (ds.EqualTo(("country", "inner"), "fr"), True),
        (ds.EqualTo(("amount",), 1), True),
    ],
)
def test_a_filter_spares_a_file_only_if_its_folders_leave_no_doubt(one: ds.Filter, read: bool) -> None:
    assert may_hold(FILE, [one], TYPES) is read
    assert may_hold("data/orders/0/x.parquet", [one], TYPES)


def test_the_folder_of_null_holds_empty_texts_too() -> None:
    file = f"data/orders/0/country={NULL}/n={NULL}/x.parquet"
    assert may_hold(file, [ds.EqualTo(("country",), "")], TYPES)
    assert may_hold(file, [ds.IsNull(("country",))], TYPES)
    assert may_hold(file, [ds.IsNull(("n",))], TYPES)
    assert not may_hold(file, [ds.EqualTo(("n",), 1)], TYPES)
    assert may_hold("data/orders/0/n=x/x.parquet", [ds.EqualTo(("n",), 1)], TYPES), "written as a text"


def test_the_option_is_read_and_wrong_columns_are_refused() -> None:
    assert parse_partition_by(None) == ()
    assert parse_partition_by("day, country") == ("day", "country")
    assert parse_partition_by('["a,b"]') == ("a,b",)
    for wrong in ("day,,x", "day,day", "[1", ","):
        with pytest.raises(HoldfastError, match="partitionBy"):
            parse_partition_by(wrong)
    with pytest.raises(HoldfastError, match="Name a column of the rows"):
        check_partition_by(["contry"], TYPES)
    with pytest.raises(HoldfastError, match="of type double"):
        check_partition_by(["amount"], {"amount": "double"})


@pytest.mark.parametrize(
    ("name", "meant"), [("partitonby", "partitionBy"), ("compresion", "compression"), ("writter", "writer")]
)
def test_an_option_that_does_not_exist_is_refused(tmp_path: Path, name: str, meant: str) -> None:
    """Symptom: `partitonBy` wrote a sink without folders, and nothing said so. Rule: the source's, where a typing
    mistake does not become a default."""
    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    spelled = {"path": str(tmp_path), "checkpointlocation": "c", "queryname": "q", "holdfast.store.region": "x"}
    with pytest.raises(HoldfastError, match=f"INVALID_OPTION: option {name} is not .* Did you mean {meant}"):
        FilesSource(spelled | {name: "x"}).streamWriter(schema, False)
    unread = r"INVALID_OPTION: option mergeschema is not .* The options are topicColumn"
    with pytest.raises(HoldfastError, match=unread):
        FilesSource(spelled | {"mergeschema": "true"}).schema()
    FilesSource(spelled | {"compression": "zstd"}).streamWriter(schema, False)


def test_columns_with_a_value_for_every_row_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.files.writing.MAX_FOLDERS", 3)
    store = LocalStore(tmp_path)
    with pytest.raises(HoldfastError, match="SINK_TOO_MANY_FOLDERS"):
        write(store, rows(0, ["a", "b", "c", "d"]), "country")
    assert [name for folder in store.names("data/orders/0") for name in store.names(f"data/orders/0/{folder}")] == []


def test_a_changed_type_is_refused_when_it_is_written(tmp_path: Path) -> None:
    """Symptom: a job wrote `amount` as a double, later as a text, and nobody could read the sink any more.

    Cause: types were compared by readers only. Rule: what can't be read together is not written together.
    """
    store = LocalStore(tmp_path)
    first = StructType().add("amount", DoubleType()).add("tags", ArrayType(StringType()))
    check_types(store, first)
    keep_schema(store, first.json())
    check_types(store, StructType().add("amount", DoubleType(), False).add("more", StringType()))
    check_types(store, StructType().add("tags", ArrayType(StringType(), False)))
    for name, wrong in (("amount", StringType()), ("AMOUNT", DoubleType()), ("tags", ArrayType(DoubleType()))):
        with pytest.raises(HoldfastError, match="SCHEMA_CONFLICT"):
            check_types(store, StructType().add(name, wrong))


def test_a_new_sink_has_a_text_for_whoever_looks_into_the_folder(tmp_path: Path) -> None:
    open_sink(LocalStore(tmp_path), COLUMNS)
    assert "holdfast-files" in (tmp_path / "_README").read_text()
