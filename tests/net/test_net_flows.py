"""The shelf between the fetcher and its reader: turns, versions, bounds, errors told once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.flow_values import BEGINNING, NOWHERE, Fetched, FetchSettings, Trouble
from holdfast.net.flows import Flow, Flows

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class World:
    """A shelf, and how often it called."""

    def __init__(self, **settings: Any) -> None:
        self.changes = 0
        self.flows = Flows(FetchSettings(**settings), wake=lambda: None, changed=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def flow(self, partition: TopicPartition) -> Flow:
        return self.flows.flows[partition]

    def arrive(self, partition: TopicPartition, *starts: int, size: int = 10) -> None:
        for start in starts:
            with self.flows.lock:
                answer = Fetched(memoryview(bytes(size)), start, start + 5, 5, None)
                self.flows.arrived(self.flow(partition), answer)

    def read(self, times: int) -> list[tuple[TopicPartition, int]]:
        found = (self.flows.next_answer() for _ in range(times))
        return [(one[0].partition, one[1].start) for one in found if one is not None]

    def wanted(self, now: float = 0.0) -> list[TopicPartition]:
        return sorted(p for p, flow in self.flows.flows.items() if self.flows.wants(flow, now))


def world(partitions: Iterable[TopicPartition] = (A, B), **settings: int) -> World:
    made = World(**settings)
    made.flows.add(dict.fromkeys(partitions, 0))
    return made


def test_partitions_take_turns_one_answer_each() -> None:
    shelf = world()
    shelf.arrive(A, 0, 5, 10)
    shelf.arrive(B, 0, 5)
    assert shelf.read(9) == [(A, 0), (B, 0), (A, 5), (B, 5), (A, 10)]


def test_what_arrived_moves_the_next_request_and_counts_until_it_is_read() -> None:
    shelf = world(partition_bytes=20, queued_bytes=100)
    shelf.arrive(A, 0, 5)
    assert shelf.flow(A).at == 10
    assert shelf.flows.room() == 80
    assert shelf.wanted() == [B], "A has as much as one request would bring"
    shelf.read(1)
    assert shelf.flows.room() == 80, "it was handed out, but it is not read yet"
    shelf.flows.read(A, 10)
    assert shelf.flows.room() == 90
    assert shelf.wanted() == [A, B]


def test_a_seek_forgets_what_was_fetched_and_what_is_under_way() -> None:
    shelf = world()
    shelf.arrive(A, 0)
    before = shelf.flow(A).version
    shelf.flow(A).under_way = True
    shelf.flows.seek(A, 40)
    assert shelf.flow(A).version != before
    assert shelf.flow(A).at == 40
    assert shelf.wanted() == [A, B]
    assert shelf.read(1) == []
    assert shelf.flows.queued_bytes == 0


def test_a_dropped_partition_is_gone_at_once_and_an_added_one_begins_anew() -> None:
    shelf = world()
    shelf.arrive(A, 0)
    old = shelf.flow(A)
    shelf.flows.drop([A])
    assert shelf.read(1) == []
    assert shelf.flows.queued_bytes == 0
    shelf.flows.add({A: 7})
    assert shelf.flow(A) is not old
    assert shelf.flows.unread_from(A) == 7


def test_a_paused_partition_keeps_what_was_fetched_and_what_was_handed_back() -> None:
    shelf = world()
    shelf.arrive(A, 0, 5)
    found = shelf.flows.next_answer()
    assert found is not None
    shelf.flows.pause(A, [found[1]])
    assert shelf.read(1) == []
    assert A not in shelf.wanted()
    shelf.flows.resume(A)
    assert shelf.read(9) == [(A, 0), (A, 5)]
    assert shelf.flows.queued_bytes == 20


def test_what_waits_for_a_paused_partition_does_not_hold_a_whole_answer_in_memory() -> None:
    shelf = world()
    shelf.flows.pause(A)
    shelf.arrive(A, 0)
    assert isinstance(shelf.flow(A).answers[0].records, bytes)


def test_what_is_reported_is_handed_out_once_in_its_order() -> None:
    shelf = world()
    first, second = (HoldfastError(code, "no.", "Ask.") for code in ("TOPIC_AUTHORIZATION_FAILED", "CORRUPT_BATCH"))
    shelf.flows.report(shelf.flow(A), first, number=29)
    shelf.flows.report(shelf.flow(B), second)
    assert [shelf.flows.next_error() for _ in range(3)] == [Trouble(first, A, 0, 29), Trouble(second, B, 0), None]


def test_without_a_place_to_start_a_partition_stands_still_until_somebody_seeks() -> None:
    shelf = World(reset=NOWHERE)
    shelf.flows.add({A: NOWHERE})
    trouble = shelf.flows.next_error()
    assert trouble is not None
    assert trouble.error.code == "AUTO_OFFSET_RESET"
    assert (trouble.partition, trouble.offset) == (A, None)
    assert shelf.wanted() == []
    shelf.flows.seek(A, 3)
    assert shelf.wanted() == [A]


def test_a_reset_begins_a_new_era_since_offsets_may_go_back() -> None:
    shelf = World(reset=BEGINNING)
    shelf.flows.add({A: 100})
    shelf.flows.reset(shelf.flow(A), HoldfastError("OFFSET_OUT_OF_RANGE", "gone.", "Go on."))
    assert (shelf.flow(A).at, shelf.flow(A).era) == (BEGINNING, 1)
    assert shelf.flows.next_error() is None


def test_whatever_the_reader_changes_wakes_the_fetcher() -> None:
    shelf = world()
    shelf.arrive(A, 0)
    before = shelf.changes
    shelf.flows.seek(A, 1)
    shelf.flows.pause(B)
    shelf.flows.resume(B)
    shelf.flows.read(A, 0)
    shelf.flows.drop([A])
    assert shelf.changes == before + 4, "a pause alone leaves nothing to fetch"


def test_the_end_of_a_partition_comes_behind_its_records_and_once_for_each_end() -> None:
    shelf = World(tell_ends=True)
    shelf.flows.add({A: 0})
    shelf.arrive(A, 0)
    for _ in range(3):
        with shelf.flows.lock:
            shelf.flows.ended(shelf.flow(A), 5)
    found = [shelf.flows.next_answer() for _ in range(3)]
    assert [None if one is None else (one[1].start, one[1].end) for one in found] == [(0, -1), (5, 5), None]
    shelf.flows.seek(A, 5)
    with shelf.flows.lock:
        shelf.flows.ended(shelf.flow(A), 5)
    again = shelf.flows.next_answer()
    assert again is not None, "who seeks to the end hears of it again"


def test_nobody_hears_of_ends_who_did_not_ask_for_them() -> None:
    shelf = world()
    with shelf.flows.lock:
        shelf.flows.ended(shelf.flow(A), 0)
    assert shelf.flows.next_answer() is None
