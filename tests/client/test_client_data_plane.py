"""The data plane by itself: who reads, what is assigned, where it stands, and what an interruption leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from stand_ins import A, B, FakeReader

from holdfast.client.partitions import confluent_list
from holdfast.client.reading.book import Book
from holdfast.client.reading.data_plane import DataPlane, close_readers
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition


class Read:
    """A data plane over one stand-in, with another one that shares its book."""

    def __init__(self, reset: str = "earliest") -> None:
        book = Book()
        self.first, self.second = FakeReader(book), FakeReader(book)
        self.plane = DataPlane(self.first, reset=reset)

    def at(self, **offsets: int) -> None:
        self.plane.replace([ck.TopicPartition("orders", "ab".index(name), at) for name, at in offsets.items()])


def at(partition: TopicPartition, offset: int) -> ck.TopicPartition:
    return ck.TopicPartition(partition.topic, partition.partition, offset)


def record(partition: TopicPartition, offset: int) -> ck.Message:
    return ck.Message(topic=partition.topic, partition=partition.partition, offset=offset, value=b"x")


def shown(partitions: list[ck.TopicPartition]) -> list[tuple[int, int]]:
    return [(p.partition, p.offset) for p in partitions]


# -- what is assigned


@pytest.mark.parametrize(("reset", "start"), [("earliest", ck.OFFSET_BEGINNING), ("latest", ck.OFFSET_END)])
def test_a_partition_without_an_offset_starts_where_the_settings_say(reset: str, start: int) -> None:
    read = Read(reset)
    read.plane.add({A: 7, B: None})
    assert read.first.book.starts == {A: 7, B: start}


def test_what_is_read_already_is_not_started_again() -> None:
    """Its position would be lost: a round names kept partitions too."""
    read = Read()
    read.plane.add({A: 7})
    read.first.hand_out(A, 9)
    read.plane.add({A: 3, B: 0})
    assert read.first.book.starts == {A: 7, B: 0}
    assert read.plane.positions([A, B]) == {A: OffsetEntry(10)}


def test_an_assignment_shows_the_offsets_that_were_named_and_no_others() -> None:
    read = Read()
    named = [at(A, 4), at(B, ck.OFFSET_INVALID)]
    read.plane.add({A: 4, B: 8}, named=named)
    assert shown(read.plane.assignment()) == [(0, 4), (1, ck.OFFSET_STORED)]
    read.first.hand_out(A, 5)
    assert shown(read.plane.assignment())[0] == (0, 4), "wherever it stands by now"
    read.plane.replace([at(A, 1)])
    assert shown(read.plane.assignment()) == [(0, ck.OFFSET_STORED)]


def test_what_is_not_assigned_is_not_dropped() -> None:
    read = Read()
    read.at(a=0)
    read.plane.drop([B])
    assert "drop" not in read.first.calls
    read.plane.drop([A, B])
    assert not read.plane.assigned


def test_only_what_was_ever_read_can_be_paused_and_what_is_paused_stays_so() -> None:
    read = Read()
    read.at(a=0)
    read.plane.pause(confluent_list([A, B]))
    assert read.first.book.paused == {A}
    read.plane.drop([A])
    read.plane.add({A: 0})
    assert read.first.book.paused == {A}
    read.plane.resume(confluent_list([A]))
    assert read.first.book.paused == set()


# -- where it stands


def test_a_commit_after_a_seek_is_made_where_the_application_stood_until_it_gets_a_record() -> None:
    read = Read()
    read.at(a=0)
    read.first.hand_out(A, 4)
    read.plane.seek(at(A, 50))
    assert read.plane.standing([A]) == {A: OffsetEntry(5)}
    assert read.plane.positions([A]) == {}
    read.first.hand_out(A, 50)
    assert read.plane.standing([A]) == {A: OffsetEntry(51)}


def test_records_that_are_not_handed_out_are_read_again_from_each_partitions_first() -> None:
    read = Read()
    read.at(a=0)
    read.first.hand_out(A, 9)
    read.plane.rewind([record(B, 3), record(A, 5), record(A, 6)])
    assert read.first.book.starts == {A: 5}, "the other one is not ours any more"
    assert read.plane.standing([A]) == {A: OffsetEntry(5)}, "a commit now must not skip them"


def test_a_position_without_a_record_is_none() -> None:
    read = Read()
    read.at(a=3, b=3)
    read.first.hand_out(B, 3)
    assert shown(read.plane.position(confluent_list([A, B]))) == [(0, ck.OFFSET_INVALID), (1, 4)]
    assert read.plane.handed_out() == {B: OffsetEntry(4)}


def test_the_lag_is_the_largest_of_those_that_are_known() -> None:
    read = Read()
    read.at(a=0, b=0)
    assert read.plane.lag_max() is None
    read.first.hand_out(A, 9)
    assert read.plane.lag_max() is None, "no watermark was seen"
    read.first.marks = {A: (0, 12), B: (0, 1_000)}
    assert read.plane.lag_max() == 2, "of the other one nothing was read yet"
    read.first.marks = {A: (0, 3)}
    assert read.plane.lag_max() == 0, "an old watermark makes no negative lag"


# -- who reads


def test_another_reader_goes_on_where_the_application_stands() -> None:
    read = Read()
    read.at(a=0, b=6)
    read.first.hand_out(A, 4)
    read.plane.let_read(read.second)
    assert (read.first.calls[-2:], read.second.calls) == (["write_down", "stop"], ["take_over"])
    assert read.plane.reader is read.second
    assert read.second.book.starts == {A: 5, B: 6}
    assert read.plane.positions([A]) == {A: OffsetEntry(5)}


def test_a_reader_that_is_in_charge_is_left_alone() -> None:
    read = Read()
    read.plane.let_read(read.first)
    assert read.first.calls == []


# -- what is interrupted


CHANGES: list[tuple[str, str, Callable[[DataPlane], Any]]] = [
    ("add", "drop_again", lambda plane: plane.take([at(B, 0)])),
    ("drop", "drop_again", lambda plane: plane.drop([A])),
    ("replace", "replace", lambda plane: plane.replace([at(B, 0)])),
    ("seek", "seek", lambda plane: plane.seek(at(A, 5))),
    ("pause", "pause", lambda plane: plane.pause(confluent_list([A]))),
    ("resume", "resume", lambda plane: plane.resume(confluent_list([A]))),
]


@pytest.mark.parametrize(("method", "again", "change"), CHANGES, ids=[name for name, _, _ in CHANGES])
def test_a_change_that_is_interrupted_is_finished_before_anything_else_is_asked(
    method: str, again: str, change: Callable[[DataPlane], Any]
) -> None:
    """Symptom: after a Ctrl-C reader and book disagreed on what is read. Rule: the next call finishes it first."""
    read = Read()
    read.at(a=0)
    read.first.will_raise(method, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        change(read.plane)
    read.first.calls.clear()
    read.plane.positions([A])
    assert read.first.calls[:1] == [again]
    read.first.calls.clear()
    read.plane.positions([A])
    assert read.first.calls == [], "once is enough"


def test_a_finish_that_is_interrupted_too_is_tried_again() -> None:
    read = Read()
    read.at(a=0)
    read.first.will_raise("seek", KeyboardInterrupt(), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        read.plane.seek(at(A, 5))
    with pytest.raises(KeyboardInterrupt):
        read.plane.positions([A])
    read.plane.positions([A])
    assert read.first.book.starts == {A: 5}


@pytest.mark.parametrize("step", ["stop", "take_over"])
def test_a_change_of_readers_that_is_interrupted_ends_with_the_new_one(step: str) -> None:
    read = Read()
    read.at(a=0)
    (read.first if step == "stop" else read.second).will_raise(step, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        read.plane.let_read(read.second)
    read.plane.positions([A])
    assert read.plane.reader is read.second
    assert read.second.calls[-1] == "take_over"


def test_a_change_that_is_refused_has_changed_nothing_and_is_not_repeated() -> None:
    read = Read()
    read.at(a=0)
    read.first.will_raise("add", ck.KafkaException(ck.KafkaError(ck.KafkaError._CONFLICT)))
    with pytest.raises(ck.KafkaException):
        read.plane.take([at(B, 0)])
    read.first.calls.clear()
    read.plane.positions([A])
    assert read.first.calls == []
    assert read.plane.assigned == {A}


def test_what_can_not_be_finished_is_told_once() -> None:
    """Otherwise every later call would raise it, and nothing could be read any more."""
    read = Read()
    read.at(a=0)
    closed = [RuntimeError("the handle is closed") for _ in range(2)]
    read.first.will_raise("replace", KeyboardInterrupt(), *closed)
    with pytest.raises(KeyboardInterrupt):
        read.plane.replace([at(B, 0)])
    with pytest.raises(RuntimeError, match="the handle is closed"):
        read.plane.positions([A])
    read.plane.positions([A])


def test_records_that_a_call_had_taken_are_put_back_with_the_next_one() -> None:
    read, done = Read(), list[str]()
    read.plane.read_again(lambda: done.append("put back"))
    read.plane.positions([])
    read.plane.positions([])
    assert done == ["put back"]


# -- the end


def test_all_readers_are_closed_also_those_that_are_not_in_charge() -> None:
    read = Read()
    read.at(a=0)
    read.plane.let_read(read.second)
    read.plane.close()
    assert (read.first.calls[-1], read.second.calls[-1]) == ("close", "close")
    assert not read.plane.assigned


def test_what_a_callback_raises_while_closing_is_logged_and_the_rest_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = Read()
    read.plane.let_read(read.second)
    read.second.will_raise("close", LookupError("from error_cb"))
    close_readers(read.plane)
    assert (read.first.calls.count("close"), read.second.calls.count("close")) == (1, 2)
    assert "from error_cb" in caplog.text
