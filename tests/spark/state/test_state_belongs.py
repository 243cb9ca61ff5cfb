"""What comes into a state or a ledger from elsewhere: entries of other chains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import new_data_name
from holdfast.spark.files.ledger import Addition, FileRef, Ledger, Snapshot
from holdfast.spark.files.ledger import encode as encode_listed
from holdfast.spark.files.store import LocalStore
from holdfast.spark.state.chain import Chain, RunRef, beginning, encode

P, OTHER = TopicPartition("orders", 3), TopicPartition("orders", 4)


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
