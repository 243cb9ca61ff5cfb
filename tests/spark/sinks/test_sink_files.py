"""Parquet files, the ledger and upkeep together, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from places import Place
from pyspark.sql.types import StructType

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns, check_columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.ledger import FileRef, Ledger
from holdfast.spark.files.reading import read_files
from holdfast.spark.files.sink import keep_schema, open_sink
from holdfast.spark.files.store import Store
from holdfast.spark.files.upkeep import clean, compact, merge_parquet
from holdfast.spark.files.writing import Written, write_rows

COLUMNS = Columns()
SCHEMA = '{"type":"struct","fields":[]}'
FAR = 1e12
"""A time long after every file's."""


def rows(*found: tuple[str, int, int]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*found, strict=True)
    return pa.record_batch(
        {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "value": pa.array([f"{t}-{p}-{o}" for t, p, o in found], pa.string()),
        }
    )


def orders(partition: int, start: int, end: int) -> pa.RecordBatch:
    return rows(*[("orders", partition, offset) for offset in range(start, end)])


def write(store: Store, *batches: pa.RecordBatch) -> list[Written]:
    return write_rows(store, batches, columns=COLUMNS, schema_id="s")


def name_of(written: Written) -> str:
    assert written.file is not None
    return written.file.name


def read(place: Place) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for name in place.files():
        table = place.parquet(name).read(["topic", "partition", "offset"])
        found.extend(tuple(row.values()) for row in table.to_pylist())
    return sorted(found)


def expected(partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [("orders", partition, offset) for offset in range(start, end)]


def test_rows_count_only_when_they_are_committed(place: Place) -> None:
    store = place.store
    written = write(store, rows(("orders", 1, 5), ("orders", 0, 7), ("pay", 0, 2), ("orders", 1, 6)))
    assert [str(one.partition) for one in written] == ["orders-0", "orders-1", "pay-0"]
    assert read(place) == []
    commit_files(store, written, columns=COLUMNS)
    assert read(place) == [("orders", 0, 7), ("orders", 1, 5), ("orders", 1, 6), ("pay", 0, 2)]
    assert place.positions() == {
        TopicPartition("orders", 0): 8,
        TopicPartition("orders", 1): 7,
        TopicPartition("pay", 0): 3,
    }
    assert place.positions("pay") == {TopicPartition("pay", 0): 3}


def test_a_batch_written_twice_is_in_once_and_leaves_no_files(place: Place) -> None:
    store = place.store
    first, again = write(store, orders(0, 0, 10)), write(store, orders(0, 0, 10))
    assert commit_files(store, first, columns=COLUMNS).rows == 10
    done = commit_files(store, again, columns=COLUMNS)
    assert (done.rows, done.dropped_rows) == (0, 10)
    assert read(place) == expected(0, 0, 10)
    assert len(store.names("data/orders/0")) == 1


def test_a_batch_that_overlaps_another_with_other_cuts_adds_only_the_new_rows(place: Place) -> None:
    store = place.store
    zombie = write(store, orders(0, 0, 100), orders(0, 100, 120))
    commit_files(store, write(store, orders(0, 0, 50)), columns=COLUMNS)
    assert commit_files(store, zombie, columns=COLUMNS).rows == 70
    assert read(place) == expected(0, 0, 120)
    content = Ledger(store, TopicPartition("orders", 0)).load()
    assert [(f.first, f.last, f.rows) for f in content.files] == [(0, 49, 50), (50, 119, 70)]
    assert len(store.names("data/orders/0")) == 2


def test_a_replayed_task_does_not_write_what_the_ledger_has(place: Place) -> None:
    store = place.store
    commit_files(store, write(store, orders(0, 0, 50)), columns=COLUMNS)
    again, left_out = write(store, orders(0, 30, 60))
    assert again.file is not None
    assert (again.file.first, again.file.last, again.file.rows) == (50, 59, 10)
    assert (left_out.file, left_out.dropped) == (None, 20)
    assert [(one.file, one.dropped) for one in write(store, orders(0, 0, 50))] == [(None, 50)]


def test_rows_that_are_in_already_are_told_wherever_they_are_dropped(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Symptom: a batch that was done again, or a job whose rows come out late, lost rows to the ledger and nothing said
    so, though the docs do. Cause: tasks leave out what the ledger has, and only what the ledger itself dropped was
    counted. Rule: what goes in is written, added or told."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from holdfast.spark.files.source import FilesSource, StreamFilesWriter

    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    writer = FilesSource({"path": place.path, "writer": "billing", **place.options}).streamWriter(schema, False)
    assert isinstance(writer, StreamFilesWriter)
    writer.commit([writer.write(iter([orders(0, 0, 10)]))], 1)
    assert capsys.readouterr().err == ""
    late = writer.write(iter([orders(0, 5, 12)]))  # sees that five are in
    overtaken = writer.write(iter([orders(0, 10, 14)]))  # sees none, and finds two in when it is committed
    writer.commit([late], 2)
    assert "billing batch 2: 5 rows were in the ledger already" in capsys.readouterr().err
    writer.commit([overtaken], 3)
    assert "billing batch 3: 2 rows were in the ledger already" in capsys.readouterr().err
    writer.commit([writer.write(iter([orders(0, 0, 14)])), None], 4)
    assert "billing batch 4: 14 rows were in the ledger already" in capsys.readouterr().err
    assert read(place) == expected(0, 0, 14)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_several_rows_of_one_record_stay_together(place: Place) -> None:
    """A job may make many rows of one record; they share an offset and come in the same batch."""
    store = place.store
    exploded = rows(*[("orders", 0, 3)] * 5)
    commit_files(store, write(store, exploded), columns=COLUMNS)
    commit_files(store, write(store, exploded), columns=COLUMNS)
    assert read(place) == [("orders", 0, 3)] * 5


def test_a_failed_task_leaves_nothing(place: Place) -> None:
    store = place.store

    def failing() -> Iterator[pa.RecordBatch]:
        yield orders(0, 0, 10)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write_rows(store, failing(), columns=COLUMNS, schema_id="s")
    assert store.names("data/orders/0") == []
    assert store.leftovers("data/orders/0") == []


def test_an_aborted_batch_keeps_its_files_because_some_may_be_in_the_ledger(place: Place) -> None:
    """Spark calls abort also after a commit that failed half-way, or that a stopped query interrupted.

    Symptom: a partition whose entry was written lost its file. Cause: abort deleted every file that the tasks had
    reported. Invariant: only `clean` deletes files that were reported to the driver and may be named by an entry.
    """
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from holdfast.spark.files.source import FilesSource, StreamFilesWriter, TaskWrote

    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    writer = FilesSource({"path": place.path, **place.options}).streamWriter(schema, False)
    assert isinstance(writer, StreamFilesWriter)
    message = writer.write(iter([orders(0, 0, 10), orders(1, 0, 10)]))
    assert isinstance(message, TaskWrote)
    place.store.remove(name_of(message.written[1]))
    with pytest.raises(HoldfastError, match="DATA_FILE_MISSING"):
        writer.commit([message, None], 7)
    writer.abort([message, None], 7)
    assert read(place) == expected(0, 0, 10)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_large_tasks_write_row_groups_on_the_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.files.writing.BUFFER_BYTES", 2_000)
    store = place.store
    written = write(store, *[orders(p, n * 10, n * 10 + 10) for n in range(20) for p in (0, 1)])
    commit_files(store, written, columns=COLUMNS)
    assert read(place) == expected(0, 0, 200) + expected(1, 0, 200)
    assert all(place.parquet(name).num_row_groups > 1 for name in place.files())


@pytest.mark.parametrize(
    ("types", "what"),
    [
        ({"topic": "string", "partition": "integer"}, "no column 'offset'"),
        ({"topic": "string", "partition": "integer", "offset": "string"}, "of type string"),
        ({"topic": "binary", "partition": "integer", "offset": "long"}, "of type binary"),
    ],
)
def test_rows_that_do_not_say_where_they_came_from_are_refused(types: dict[str, str], what: str) -> None:
    with pytest.raises(HoldfastError, match=what):
        check_columns(COLUMNS, types)


@pytest.mark.parametrize("topic", ["../up", "", ".", "..", "a/b", "sp ace"])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_topic_that_is_no_folder_name_is_refused(place: Place, topic: str) -> None:
    with pytest.raises(HoldfastError, match="NOT_A_TOPIC"):
        write(place.store, rows((topic, 0, 0)))


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_row_of_no_partition_is_refused(place: Place) -> None:
    """Symptom: rows with the partition -1, of a union with another table, were committed and never read back. Cause:
    readers take folders with a number as name. Rule: what can't be read is not written."""
    with pytest.raises(HoldfastError, match="SINK_NEEDS_ORIGIN: A row's partition is -1"):
        write(place.store, rows(("orders", -1, 0), ("orders", 0, 0)))


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_columns_are_found_in_any_case_as_spark_finds_them(place: Place) -> None:
    """Symptom: a read with a schema of one's own gave nulls for `Value`, because the files have `value`."""
    keep = write(place.store, orders(0, 0, 2))
    wanted = StructType().add("OFFSET", "long").add("Value", "string").add("other", "string")
    (batch,) = read_files(place.store, [name_of(one) for one in keep], wanted)
    assert batch.schema.names == ["OFFSET", "Value", "other"]
    assert batch.to_pylist()[1] == {"OFFSET": 1, "Value": "orders-0-1", "other": None}


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_row_without_an_offset_is_refused(place: Place) -> None:
    batch = orders(0, 0, 2).set_column(2, "offset", pa.array([1, None], pa.int64()))
    with pytest.raises(HoldfastError, match="A row has no offset"):
        write(place.store, batch)


def test_a_sink_keeps_the_columns_it_was_made_with(place: Place) -> None:
    store = place.store
    open_sink(store, COLUMNS)
    open_sink(store, COLUMNS)
    with pytest.raises(HoldfastError, match="SINK_COLUMNS_DIFFER"):
        open_sink(store, Columns(offset="position"))


def test_a_commit_whose_file_is_gone_fails_before_the_ledger_knows_it(place: Place) -> None:
    store = place.store
    written = write(store, orders(0, 0, 10))
    store.remove(name_of(written[0]))
    with pytest.raises(HoldfastError, match="DATA_FILE_MISSING"):
        commit_files(store, written, columns=COLUMNS)
    assert place.positions() == {}
    commit_files(store, write(store, orders(0, 0, 10)), columns=COLUMNS)
    assert read(place) == expected(0, 0, 10)


# -- upkeep


def filled(place: Place) -> Store:
    store = place.store
    open_sink(store, COLUMNS)
    keep_schema(store, SCHEMA)
    for start in range(0, 100, 20):
        commit_files(store, write(store, orders(0, start, start + 20), orders(1, start, start + 20)), columns=COLUMNS)
    return store


def test_compaction_merges_and_a_reader_with_the_old_list_still_reads(place: Place) -> None:
    store = filled(place)
    old_list = place.files()
    done = compact(store)
    assert [(one.files_before, one.files_after, one.entries) for one in done] == [(5, 1, 5)] * 2
    assert len(place.files()) == 2
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)
    assert sum(place.parquet(name).metadata.num_rows for name in old_list) == 200
    assert compact(store) == []


def test_cleaning_waits_for_the_grace_period_and_then_leaves_only_what_counts(place: Place) -> None:
    store = filled(place)
    leftover = write(store, orders(0, 500, 510))
    place.leave_unfinished("data/orders/0")
    compact(store)
    assert clean(store, now=FAR, grace_s=FAR).data_files == 0
    assert clean(store, now=FAR, grace_s=0, dry_run=True).data_files == 11
    done = clean(store, now=FAR, grace_s=0)
    assert (done.entries, done.snapshots, done.data_files, done.unfinished) == (10, 0, 11, 1)
    assert store.read(name_of(leftover[0])) is None
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)
    assert len(store.names("data/orders/0")) == 1
    assert clean(store, now=FAR, grace_s=0).data_files == 0


def test_cleaning_beside_a_compaction_that_takes_longer_than_the_grace_period_removes_no_row(place: Place) -> None:
    """Symptom: committed rows were gone after `compact` and `clean --older-than 1h` had run side by side.

    Cause: nobody names a merged file before the snapshot does, so `clean` took one that had waited an hour for the
    others of its partition; then the snapshot named it. Rule: merged files stay young until it names them.
    """
    store = filled(place)

    def slow(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        merged = merge_parquet(where, partition, files)
        clean(store, now=time.time(), grace_s=3600)
        for name in store.names("data/orders/0"):  # this one took an hour
            place.age(f"data/orders/0/{name}", 3600)
        return merged

    size = max(file.bytes for file in Ledger(store, TopicPartition("orders", 0)).load().files)
    done = compact(store, target_bytes=3 * size, merge=slow)
    assert all(1 < one.files_after < one.files_before for one in done)
    clean(store, now=time.time(), grace_s=3600)
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)


def test_a_compaction_whose_file_is_gone_stops_before_anything_counts_on_it(place: Place) -> None:
    """A process that stood still for longer than the grace period finds its file gone: no snapshot may name it."""
    store = filled(place)

    def removed(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        merged = merge_parquet(where, partition, files)
        clean(store, now=FAR, grace_s=0)
        return merged

    with pytest.raises(HoldfastError, match="COMPACTION_OVERTAKEN"):
        compact(store, merge=removed)
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)
    compact(store)
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_compaction_that_another_one_and_cleaning_overtake_ends_quietly(place: Place) -> None:
    store = filled(place)

    def overtaken(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        compact(store)
        clean(store, now=FAR, grace_s=0)
        return merge_parquet(where, partition, files)

    assert compact(store, merge=overtaken) == []
    assert read(place) == expected(0, 0, 100) + expected(1, 0, 100)


def test_writing_goes_on_after_compaction_and_cleaning(place: Place) -> None:
    store = filled(place)
    for start in range(100, 130, 10):
        compact(store)
        clean(store, now=FAR, grace_s=0)
        commit_files(store, write(store, orders(0, start - 5, start + 10)), columns=COLUMNS)
    assert read(place) == expected(0, 0, 130) + expected(1, 0, 100)
    assert place.positions()[TopicPartition("orders", 0)] == 130


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_large_files_are_left_alone(place: Place) -> None:
    store = filled(place)
    assert [one.files_after for one in compact(store, target_bytes=1)] == [5, 5]


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_torn_ledger_file_is_named_and_not_guessed_at(place: Place) -> None:
    filled(place)
    place.damage("_holdfast/ledger/orders/0/entries/000000000005.json", b'{"v":1,"numb')
    with pytest.raises(HoldfastError, match=r"LEDGER_UNREADABLE.*000000000005"):
        read(place)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 64, 65])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_end_of_a_chain_is_found_whatever_its_length(place: Place, length: int) -> None:
    store = place.store
    for offset in range(length):
        commit_files(store, write(store, orders(0, offset, offset + 1)), columns=COLUMNS)
    tip = Ledger(store, TopicPartition("orders", 0)).tip()
    assert (tip.number, tip.end) == (length, length or None)
    assert len(Ledger(store, TopicPartition("orders", 0)).load().files) == length
