"""Parquet files, the ledger and upkeep together, without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import committed_files, positions
from holdfast.spark.files.columns import Columns, check_columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.ledger import FileRef, Ledger
from holdfast.spark.files.sink import keep_schema, open_sink
from holdfast.spark.files.store import LocalStore, Store
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


def write(store: LocalStore, *batches: pa.RecordBatch) -> list[Written]:
    return write_rows(store, batches, columns=COLUMNS, schema_id="s")


def read(path: Path) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for name in committed_files(str(path)):
        table = pq.read_table(name, columns=["topic", "partition", "offset"])
        found.extend(tuple(row.values()) for row in table.to_pylist())
    return sorted(found)


def expected(partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [("orders", partition, offset) for offset in range(start, end)]


def test_rows_count_only_when_they_are_committed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written = write(store, rows(("orders", 1, 5), ("orders", 0, 7), ("pay", 0, 2), ("orders", 1, 6)))
    assert [str(one.partition) for one in written] == ["orders-0", "orders-1", "pay-0"]
    assert read(tmp_path) == []
    commit_files(store, written, columns=COLUMNS)
    assert read(tmp_path) == [("orders", 0, 7), ("orders", 1, 5), ("orders", 1, 6), ("pay", 0, 2)]
    assert positions(str(tmp_path)) == {
        TopicPartition("orders", 0): 8,
        TopicPartition("orders", 1): 7,
        TopicPartition("pay", 0): 3,
    }
    assert positions(str(tmp_path), "pay") == {TopicPartition("pay", 0): 3}


def test_a_batch_written_twice_is_in_once_and_leaves_no_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first, again = write(store, orders(0, 0, 10)), write(store, orders(0, 0, 10))
    assert commit_files(store, first, columns=COLUMNS).rows == 10
    done = commit_files(store, again, columns=COLUMNS)
    assert (done.rows, done.dropped_rows) == (0, 10)
    assert read(tmp_path) == expected(0, 0, 10)
    assert len(store.names("data/orders/0")) == 1


def test_a_batch_that_overlaps_another_with_other_cuts_adds_only_the_new_rows(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    zombie = write(store, orders(0, 0, 100), orders(0, 100, 120))
    commit_files(store, write(store, orders(0, 0, 50)), columns=COLUMNS)
    assert commit_files(store, zombie, columns=COLUMNS).rows == 70
    assert read(tmp_path) == expected(0, 0, 120)
    content = Ledger(store, TopicPartition("orders", 0)).load()
    assert [(f.first, f.last, f.rows) for f in content.files] == [(0, 49, 50), (50, 119, 70)]
    assert len(store.names("data/orders/0")) == 2


def test_a_replayed_task_does_not_write_what_the_ledger_has(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    commit_files(store, write(store, orders(0, 0, 50)), columns=COLUMNS)
    again, left_out = write(store, orders(0, 30, 60))
    assert again.file is not None
    assert (again.file.first, again.file.last, again.file.rows) == (50, 59, 10)
    assert (left_out.file, left_out.dropped) == (None, 20)
    assert [(one.file, one.dropped) for one in write(store, orders(0, 0, 50))] == [(None, 50)]


def test_rows_that_are_in_already_are_told_wherever_they_are_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Symptom: a batch that was done again, or a job whose rows come out late, lost rows to the ledger and nothing said
    so, though the docs do. Cause: tasks leave out what the ledger has, and only what the ledger itself dropped was
    counted. Rule: what goes in is written, added or told."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from holdfast.spark.files.source import FilesSource

    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    writer = FilesSource({"path": str(tmp_path), "writer": "billing"}).streamWriter(schema, False)
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
    assert read(tmp_path) == expected(0, 0, 14)


def test_several_rows_of_one_record_stay_together(tmp_path: Path) -> None:
    """A job may make many rows of one record; they share an offset and come in the same batch."""
    store = LocalStore(tmp_path)
    exploded = rows(*[("orders", 0, 3)] * 5)
    commit_files(store, write(store, exploded), columns=COLUMNS)
    commit_files(store, write(store, exploded), columns=COLUMNS)
    assert read(tmp_path) == [("orders", 0, 3)] * 5


def test_a_failed_task_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def failing():  # type: ignore[no-untyped-def]
        yield orders(0, 0, 10)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write_rows(store, failing(), columns=COLUMNS, schema_id="s")
    assert store.names("data/orders/0") == []
    assert store.leftovers("data/orders/0") == []


def test_an_aborted_batch_keeps_its_files_because_some_may_be_in_the_ledger(tmp_path: Path) -> None:
    """Spark calls abort also after a commit that failed half-way, or that a stopped query interrupted.

    Symptom: a partition whose entry was written lost its file. Cause: abort deleted every file that the tasks had
    reported. Invariant: only `clean` deletes files that were reported to the driver and may be named by an entry.
    """
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from holdfast.spark.files.source import FilesSource, TaskWrote

    schema = StructType().add("topic", StringType()).add("partition", IntegerType()).add("offset", LongType())
    writer = FilesSource({"path": str(tmp_path)}).streamWriter(schema, False)
    message = writer.write(iter([orders(0, 0, 10), orders(1, 0, 10)]))
    assert isinstance(message, TaskWrote)
    (tmp_path / message.written[1].file.name).unlink()
    with pytest.raises(HoldfastError, match="DATA_FILE_MISSING"):
        writer.commit([message, None], 7)
    writer.abort([message, None], 7)
    assert read(tmp_path) == expected(0, 0, 10)


def test_large_tasks_write_row_groups_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.files.writing.BUFFER_BYTES", 2_000)
    store = LocalStore(tmp_path)
    written = write(store, *[orders(p, n * 10, n * 10 + 10) for n in range(20) for p in (0, 1)])
    commit_files(store, written, columns=COLUMNS)
    assert read(tmp_path) == expected(0, 0, 200) + expected(1, 0, 200)
    assert all(pq.ParquetFile(name).num_row_groups > 1 for name in committed_files(str(tmp_path)))


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
def test_a_topic_that_is_no_folder_name_is_refused(tmp_path: Path, topic: str) -> None:
    with pytest.raises(HoldfastError, match="NOT_A_TOPIC"):
        write(LocalStore(tmp_path), rows((topic, 0, 0)))


def test_a_row_without_an_offset_is_refused(tmp_path: Path) -> None:
    batch = orders(0, 0, 2).set_column(2, "offset", pa.array([1, None], pa.int64()))
    with pytest.raises(HoldfastError, match="A row has no offset"):
        write(LocalStore(tmp_path), batch)


def test_a_sink_keeps_the_columns_it_was_made_with(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    open_sink(store, COLUMNS)
    open_sink(store, COLUMNS)
    with pytest.raises(HoldfastError, match="SINK_COLUMNS_DIFFER"):
        open_sink(store, Columns(offset="position"))


def test_a_commit_whose_file_is_gone_fails_before_the_ledger_knows_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written = write(store, orders(0, 0, 10))
    store.remove(written[0].file.name)
    with pytest.raises(HoldfastError, match="DATA_FILE_MISSING"):
        commit_files(store, written, columns=COLUMNS)
    assert positions(str(tmp_path)) == {}
    commit_files(store, write(store, orders(0, 0, 10)), columns=COLUMNS)
    assert read(tmp_path) == expected(0, 0, 10)


# -- upkeep


def filled(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    open_sink(store, COLUMNS)
    keep_schema(store, SCHEMA)
    for start in range(0, 100, 10):
        commit_files(store, write(store, orders(0, start, start + 10), orders(1, start, start + 10)), columns=COLUMNS)
    return store


def test_compaction_merges_and_a_reader_with_the_old_list_still_reads(tmp_path: Path) -> None:
    store = filled(tmp_path)
    old_list = committed_files(str(tmp_path))
    done = compact(store)
    assert [(one.files_before, one.files_after, one.entries) for one in done] == [(10, 1, 10)] * 2
    assert len(committed_files(str(tmp_path))) == 2
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)
    assert sum(pq.ParquetFile(name).metadata.num_rows for name in old_list) == 200
    assert compact(store) == []


def test_cleaning_waits_for_the_grace_period_and_then_leaves_only_what_counts(tmp_path: Path) -> None:
    store = filled(tmp_path)
    leftover = write(store, orders(0, 500, 510))
    (tmp_path / "data/orders/0/.new-1234").write_bytes(b"half")
    compact(store)
    assert clean(store, now=FAR, grace_s=FAR).data_files == 0
    assert clean(store, now=FAR, grace_s=0, dry_run=True).data_files == 21
    done = clean(store, now=FAR, grace_s=0)
    assert (done.entries, done.snapshots, done.data_files, done.unfinished) == (20, 0, 21, 1)
    assert store.read(leftover[0].file.name) is None
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)
    assert len(store.names("data/orders/0")) == 1
    assert clean(store, now=FAR, grace_s=0).data_files == 0


def test_cleaning_beside_a_compaction_that_takes_longer_than_the_grace_period_removes_no_row(tmp_path: Path) -> None:
    """Symptom: committed rows were gone after `compact` and `clean --older-than 1h` had run side by side.

    Cause: nobody names a merged file before the snapshot does, so `clean` took one that had waited an hour for the
    others of its partition; then the snapshot named it. Rule: merged files stay young until it names them.
    """
    store = filled(tmp_path)

    def slow(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        merged = merge_parquet(where, partition, files)
        clean(store, now=time.time(), grace_s=3600)
        for name in store.names("data/orders/0"):  # this one took an hour
            _age(tmp_path / "data/orders/0" / name, 3600)
        return merged

    size = max(file.bytes for file in Ledger(store, TopicPartition("orders", 0)).load().files)
    done = compact(store, target_bytes=3 * size, merge=slow)
    assert all(1 < one.files_after < one.files_before for one in done)
    clean(store, now=time.time(), grace_s=3600)
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)


def test_a_compaction_whose_file_is_gone_stops_before_anything_counts_on_it(tmp_path: Path) -> None:
    """A process that stood still for longer than the grace period finds its file gone: no snapshot may name it."""
    store = filled(tmp_path)

    def removed(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        merged = merge_parquet(where, partition, files)
        clean(store, now=FAR, grace_s=0)
        return merged

    with pytest.raises(HoldfastError, match="COMPACTION_OVERTAKEN"):
        compact(store, merge=removed)
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)
    compact(store)
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)


def test_a_compaction_that_another_one_and_cleaning_overtake_ends_quietly(tmp_path: Path) -> None:
    store = filled(tmp_path)

    def overtaken(where: Store, partition: TopicPartition, files: Sequence[FileRef]) -> FileRef:
        compact(store)
        clean(store, now=FAR, grace_s=0)
        return merge_parquet(where, partition, files)

    assert compact(store, merge=overtaken) == []
    assert read(tmp_path) == expected(0, 0, 100) + expected(1, 0, 100)


def test_a_file_that_was_touched_while_it_was_being_removed_stays(tmp_path: Path) -> None:
    """Renewing and removing exclude each other: else a file goes between its writer's touch and its ledger entry."""
    store = LocalStore(tmp_path)
    for name in ("f/old", "f/young", "f/half"):
        store.create(name, b"1")
    _age(tmp_path / "f/old", 100)
    _age(tmp_path / "f/half", 100)
    before = time.time() - 50
    assert store.remove_untouched("f/old", before)
    assert not store.touch("f/old")
    assert not store.remove_untouched("f/old", before)
    assert not store.remove_untouched("f/young", before)
    (tmp_path / "f/half").rename(tmp_path / "f/.old-half")  # a crash in the middle of it
    assert store.names("f") == ["young"]
    store.put_back("f")
    assert store.names("f") == ["half", "young"]


def _age(path: Path, seconds: float) -> None:
    at = path.stat().st_mtime - seconds
    os.utime(path, (at, at))


def test_writing_goes_on_after_compaction_and_cleaning(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for start in range(100, 130, 10):
        compact(store)
        clean(store, now=FAR, grace_s=0)
        commit_files(store, write(store, orders(0, start - 5, start + 10)), columns=COLUMNS)
    assert read(tmp_path) == expected(0, 0, 130) + expected(1, 0, 100)
    assert positions(str(tmp_path))[TopicPartition("orders", 0)] == 130


def test_large_files_are_left_alone(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert [one.files_after for one in compact(store, target_bytes=1)] == [10, 10]


def test_a_torn_ledger_file_is_named_and_not_guessed_at(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "_holdfast/ledger/orders/0/entries/000000000010.json").write_bytes(b'{"v":1,"numb')
    with pytest.raises(HoldfastError, match=r"LEDGER_UNREADABLE.*000000000010"):
        read(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 64, 65])
def test_the_end_of_a_chain_is_found_whatever_its_length(tmp_path: Path, length: int) -> None:
    store = LocalStore(tmp_path)
    for offset in range(length):
        commit_files(store, write(store, orders(0, offset, offset + 1)), columns=COLUMNS)
    tip = Ledger(store, TopicPartition("orders", 0)).tip()
    assert (tip.number, tip.end) == (length, length or None)
    assert len(Ledger(store, TopicPartition("orders", 0)).load().files) == length
