"""What somebody else has put into a sink's or a state's folder is neither read nor removed, and breaks nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from places import local_place

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.layout import is_data_file, is_partition, new_data_name, numbered_name, numbers_of
from holdfast.spark.files.sink import keep_schema, open_sink, partitions_of
from holdfast.spark.files.store import LocalStore
from holdfast.spark.files.upkeep import clean, compact
from holdfast.spark.files.writing import write_rows
from holdfast.spark.pipeline.verdict import read_commits
from holdfast.spark.state import upkeep
from holdfast.spark.state.chain import Chain, beginning

FAR = 1e12
"""A time long after every file's."""

ORDERS = TopicPartition("orders", 0)

BESIDE_DATA = ("part-00000-abc.snappy.parquet", "_SUCCESS", "notes.txt", "ABCDEF.parquet", f"{'a' * 32}.parquet.bak")
BESIDE_ENTRIES = ("000000000001.json.bak", "000000000002 (copy).json", "1.json", "part-00000.json", "zzz.json")
HIDDEN = (".new-notes", ".old-notes.txt", ".DS_Store")
"""Names that begin like those that files of ours have while they are written or removed."""


def strew(root: Path, *names: str) -> dict[Path, str]:
    """A stranger's files, also in folders of his own."""
    made = {root / name: f"a stranger's {name}" for name in names}
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return made


def untouched(made: dict[Path, str]) -> bool:
    return {path: path.read_text() for path in made if path.is_file()} == made


def commit(store: LocalStore, start: int, end: int) -> None:
    rows = pa.record_batch(
        {
            "topic": pa.array(["orders"] * (end - start)),
            "partition": pa.array([0] * (end - start), pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
        }
    )
    open_sink(store, Columns())
    keep_schema(store, '{"type":"struct","fields":[]}')
    commit_files(store, write_rows(store, [rows], columns=Columns(), schema_id="s"), columns=Columns())


def test_a_strangers_files_in_a_sink_are_left_alone_and_break_nothing(tmp_path: Path) -> None:
    """Symptoms: `clean` removed Spark's `part-…` files and somebody's notes from the data folders, moved a folder away,
    and gave hidden files other names; a copied entry (`… (copy).json`) ended `show`, `compact`, and each commit in a
    ValueError. Rule: only names that the sink gives are its own."""
    store, place = LocalStore(tmp_path), local_place(tmp_path)
    commit(store, 0, 10)
    data, ledger = "data/orders/0", "_holdfast/ledger/orders/0"
    theirs = strew(
        tmp_path,
        *(f"{data}/{name}" for name in (*BESIDE_DATA, *HIDDEN, "backup/x.parquet", "day=1/part-1.parquet")),
        *(f"{ledger}/{part}/{name}" for part in ("entries", "snapshots") for name in (*BESIDE_ENTRIES, *HIDDEN)),
        *(f"{root}/{folder}/x" for root in ("data", "_holdfast/ledger") for folder in ("my notes/0", "orders/03")),
        *("_holdfast/ledger/orders/²/x", "_holdfast/schemas/copy of it.json", "_holdfast/.new-notes", "_SUCCESS"),
    )
    commit(store, 10, 20)
    assert partitions_of(store) == [ORDERS]
    assert place.positions() == {ORDERS: 20}
    assert [len(commits) for commits in read_commits(str(tmp_path)).values()] == [2]
    assert [one.files_after for one in compact(store)] == [1]
    done = clean(store, now=FAR, grace_s=0)
    assert (done.entries, done.data_files, done.unfinished) == (2, 2, 0)
    commit(store, 20, 30)
    assert sum(place.parquet(name).metadata.num_rows for name in place.files()) == 30
    assert untouched(theirs)


def test_a_strangers_files_in_a_state_are_left_alone_and_break_nothing(tmp_path: Path) -> None:
    """The same by `pipeline state --clean` and `--start-empty`."""
    store = LocalStore(tmp_path)
    chain = Chain(store, ORDERS)
    assert chain.append(beginning(0).next(10))
    ours = (chain.new_run_name(), chain.new_output_name())
    for name in ours:
        store.create(name, b"left over")
    theirs = strew(
        tmp_path,
        *(f"{chain.entries_folder}/{name}" for name in (*BESIDE_ENTRIES, *HIDDEN)),
        *(f"{chain.runs_folder}/{name}" for name in (*BESIDE_DATA, *HIDDEN, "backup/x.arrow", "old.arrow")),
        *(f"outbox/orders/0/{name}" for name in (*BESIDE_DATA, *HIDDEN)),
        *("_holdfast/state/my notes/0/x", "_holdfast/state/orders/00/x"),
    )
    assert [one["next_offset"] for one in upkeep.held(store)] == [10]
    assert chain.numbers() == [1]
    assert upkeep.clean(store, now=FAR, grace_s=0).files == 2
    assert upkeep.start_empty(store, ORDERS) == 2
    assert chain.tip() is None
    assert not any(store.exists(name) for name in ours)
    assert untouched(theirs)


@pytest.mark.parametrize(
    "name", ["1.json", "00000000001.json", "0000000000011.json", "000000000001.JSON", "٣.json", ""]
)
def test_a_number_is_written_in_one_way(name: str) -> None:
    assert numbers_of([name, numbered_name(10**12), numbered_name(2), numbered_name(10)]) == [2, 10, 10**12]


def test_the_names_that_are_given_are_known_again() -> None:
    assert is_data_file(new_data_name(ORDERS, "day=1").rpartition("/")[2])
    assert [name for name in ("0", "7", "123", "", "03", "-1", "²", "٣", "1a") if is_partition(name)] == [
        "0",
        "7",
        "123",
    ]


def test_what_a_crash_of_ours_left_is_still_removed(tmp_path: Path) -> None:
    store, place = LocalStore(tmp_path), local_place(tmp_path)
    commit(store, 0, 10)
    place.leave_unfinished("data/orders/0")
    place.leave_unfinished("_holdfast/ledger/orders/0/entries")
    (file,) = place.files()
    aside = tmp_path / "data/orders/0" / f".old-{file.rpartition('/')[2]}"
    (tmp_path / file).rename(aside)
    assert clean(store, now=FAR, grace_s=0).unfinished == 2
    assert (tmp_path / file).is_file() and not aside.exists()


@pytest.mark.parametrize("name", ["orders-²", "orders-03", "orders-", "orders", "-3", "orders--3x"])
def test_a_partition_of_a_command_is_written_in_one_way(name: str) -> None:
    """Symptom: a traceback for `--start-empty orders-²`, which Python takes for a digit."""
    with pytest.raises(HoldfastError, match="INVALID_OPTION"):
        upkeep.parse_partition(name)
