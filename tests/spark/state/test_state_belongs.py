"""What comes into a state or a ledger from elsewhere: entries of other chains, offsets of other topics, wrong times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import new_data_name
from holdfast.spark.files.ledger import Addition, FileRef, Ledger, Snapshot
from holdfast.spark.files.ledger import encode as encode_listed
from holdfast.spark.files.store import LocalStore
from holdfast.spark.source import Slice
from holdfast.spark.state.batch import Batch
from holdfast.spark.state.chain import Chain, Entry, RunRef, beginning, encode

P, OTHER = TopicPartition("orders", 3), TopicPartition("orders", 4)
DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"null", b"5", b"[]", b'"entry"', b"{}", b'{"v":1}', b'{"v":2}', b'{"v":1,"numb', b"\xff"]
)
def test_an_entry_that_is_cut_off_or_something_else_is_told(store: LocalStore, text: bytes) -> None:
    """Symptom: `null` ended in an AttributeError that named no file."""
    chain = Chain(store, P)
    store.create(chain.entry_name(1), text)
    with pytest.raises(HoldfastError, match=r"STATE_UNREADABLE: The state of orders-3.*000000000001\.json"):
        chain.tip()


def test_an_entry_of_another_partition_or_number_is_told(store: LocalStore) -> None:
    """Symptom: after a backup was restored into the wrong folder, orders-3 counted on with the totals of orders-4."""
    chain, other = Chain(store, P), Chain(store, OTHER)
    run = RunRef(name=other.new_run_name(), rows=1, bytes=1, crc=1)
    store.create(chain.entry_name(1), encode(replace(beginning(0).next(10), runs=(run,))))
    with pytest.raises(HoldfastError, match=r"STATE_UNREADABLE: .* of another partition, or of another number"):
        chain.tip()
    store.create(other.entry_name(2), encode(beginning(0).next(10)))
    with pytest.raises(HoldfastError, match=r"STATE_UNREADABLE: .* of another partition, or of another number"):
        other.tip()


def file_of(partition: TopicPartition) -> FileRef:
    return FileRef(name=new_data_name(partition), rows=10, bytes=1, first=0, last=9, schema="s")


def test_a_ledgers_file_of_another_partition_or_number_is_told(store: LocalStore) -> None:
    """The same for a sink: rows of orders-4 came out twice, and those of orders-3 not at all."""
    ours, theirs = Ledger(store, P), Ledger(store, OTHER)
    theirs.append(lambda _: Addition(0, 10, (file_of(OTHER),)))
    entry = store.read(theirs.entry_name(1))
    assert entry is not None
    store.create(ours.entry_name(1), entry)
    with pytest.raises(HoldfastError, match=r"LEDGER_UNREADABLE: .*orders/3.* elsewhere: it names data/orders/4/"):
        ours.load()
    store.create(theirs.entry_name(2), entry)
    with pytest.raises(HoldfastError, match=r"LEDGER_UNREADABLE: .* belongs elsewhere: it says that it is number 1"):
        theirs.tip()
    snapshot = Snapshot(number=1, through=1, start=0, end=10, files=(file_of(P),))
    store.create(theirs.snapshot_name(1), encode_listed(snapshot))
    with pytest.raises(HoldfastError, match=r"LEDGER_UNREADABLE: .* belongs elsewhere: it names data/orders/3"):
        theirs.tip()


# -- topics of the same name


def a_batch(store: LocalStore, start: int, end: int, topic_id: str) -> list[Entry]:
    ids = {"orders": topic_id} if topic_id else {}
    return Batch(store, {P: (start, end)}, "batch 7", ids).work(lambda _: {})[P]


def test_a_topic_that_was_made_anew_does_not_go_on_with_the_old_ones_state(store: LocalStore) -> None:
    """Symptom: with failOnDataLoss=false the new topic was read from its beginning, and all its records up to the old
    one's end were taken for counted. Cause: a state knew its offsets, and not of which topic they were."""
    a_batch(store, 0, 500, "one")
    a_batch(store, 500, 600, "one")
    for start, end in ((0, 100), (600, 700), (900, 950)):
        with pytest.raises(HoldfastError, match="STATE_OF_OTHER_TOPIC: The state of orders-3 was made of"):
            a_batch(store, start, end, "two")
    assert a_batch(store, 600, 700, "one")[-1].end == 700


def test_a_state_that_knows_no_topic_learns_it_and_brokers_that_tell_none_are_believed(store: LocalStore) -> None:
    """Brokers before 2.8 give topics no ids, and states were made before they were kept."""
    a_batch(store, 0, 10, "")
    a_batch(store, 10, 20, "one")
    assert a_batch(store, 20, 30, "")[-1].topic_id == "one"
    with pytest.raises(HoldfastError, match="STATE_OF_OTHER_TOPIC"):
        a_batch(store, 30, 40, "two")


def test_a_task_is_told_the_ids_of_its_own_topics_only() -> None:
    """A pattern may match a thousand topics, and a batch has a thousand tasks."""
    ids = {"orders": "one", "payments": "two"}
    assert Slice([(P, 0, 10), (OTHER, 0, 5)], ids).topic_ids == {"orders": "one"}
    assert Slice([(P, 0, 10)]).topic_ids == {}


# -- times


@pytest.mark.parametrize(
    ("ahead_us", "told"), [(DAY_US // 2, ""), (400 * DAY_US, "at 2025-11-08"), (3_000_000 * DAY_US, "at 10238-06-25")]
)
def test_a_watermark_far_ahead_of_the_clock_is_told_once(
    store: LocalStore, capsys: pytest.CaptureFixture[str], ahead_us: int, told: str
) -> None:
    """Symptom: one record with a time of next year, and every row after it was dropped as late, without a word."""

    def job(work: object) -> dict[TopicPartition, Entry]:
        tip = Chain(store, P).tip() or beginning(0)
        return {P: replace(tip.next(tip.end + 10), watermark=NOW_US + ahead_us)}

    for start in (0, 10):
        Batch(store, {P: (start, start + 10)}, "batch 7", now_us=NOW_US).work(job)
    said = capsys.readouterr().err
    assert said.count("ahead of the clock: rows before that are late") == (1 if ahead_us > DAY_US else 0)
    assert told in said
