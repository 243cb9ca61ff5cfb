"""The reader of batches by itself, over a feed that the test fills: rows, positions, changes, what can't be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka as ck
import pytest
from stand_ins import A, B

from holdfast.client.partitions import confluent_at
from holdfast.client.reading.batch_reader import BatchReader
from holdfast.client.reading.book import Book
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.flow_values import BEGINNING, NOWHERE, Fetched, FetchSettings
from holdfast.net.flows import Flow, Flows
from holdfast.net.metadata import ClusterInfo, TopicInfo
from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch

Place = tuple[int, int]
EPOCH = 4
"""Of every record here."""


class ByHand:
    """A `Feed` whose fetcher is the test."""

    def __init__(self, settings: FetchSettings, wake: Callable[[], None]) -> None:
        self.flows = Flows(settings, wake=wake, changed=lambda: None)
        self.info = ClusterInfo(topics={"orders": TopicInfo(name="orders")})
        self.closed = 0
        self.watchers: list[Any] = []
        self._wake = wake

    def addresses(self) -> list[Any]:
        return []

    def watch(self, watcher: Any) -> None:
        self.watchers.append(watcher)

    def close(self) -> None:
        self.closed += 1

    # -- as the fetcher

    def flow(self, partition: TopicPartition) -> Flow:
        return self.flows.flows[partition]

    def brings(self, partition: TopicPartition, first: int, count: int, *, damaged: bool = False) -> None:
        """An answer of so many records comes."""
        records = [
            Record(offset=first + n, timestamp=1_000 + n, key=None, value=b"%d" % (first + n)) for n in range(count)
        ]
        data = bytearray(encode_batch(records))
        if damaged:
            data[-1] ^= 0xFF
        end = first + count
        answer = Fetched(bytes(data), first, end, count, None, self.flow(partition).era, ((first, EPOCH),))
        with self.flows.lock:
            self.flows.arrived(self.flow(partition), answer)
        self._wake()

    def ends(self, partition: TopicPartition) -> None:
        with self.flows.lock:
            self.flows.ended(self.flow(partition), self.flow(partition).at)

    def fails(self, error: HoldfastError, partition: TopicPartition) -> None:
        with self.flows.lock:
            self.flows.report(self.flow(partition), error)


class World:
    """A reader of both partitions, from 0."""

    def __init__(self, *, tell: Callable[[ck.KafkaError], bool] | None = None, **settings: Any) -> None:
        self.feed: Any = None
        self.book = Book()
        fetching = FetchSettings(**settings)

        def opened(wake: Callable[[], None]) -> ByHand:
            self.feed = ByHand(fetching, wake)
            return self.feed  # type: ignore[no-any-return]  # it was made here

        self.reader = BatchReader(opened, fetching, self.book, tell=tell)
        self.reader.add([confluent_at(A, 0), confluent_at(B, 0)])

    def rows(self, max_rows: int = 100) -> list[Place]:
        """The next batch's, as (partition, offset)."""
        batch = self.reader.take_batch(max_rows)
        if batch is None:
            return []
        assert [f"{n}".encode() for n in batch.column("offset").to_pylist()] == batch.column("value").to_pylist()
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("partition", "offset")]
        return list(zip(*columns, strict=True))

    def all_rows(self, max_rows: int = 100) -> list[Place]:
        found: list[Place] = []
        while came := self.rows(max_rows):
            found += came
        return sorted(found)

    def positions(self) -> dict[int, int]:
        return {p.partition: entry.offset for p, entry in self.reader.positions([A, B]).items()}


def places(partition: int, offsets: Iterable[int]) -> list[Place]:
    return [(partition, offset) for offset in offsets]


def shown(messages: list[ck.Message]) -> list[tuple[int | None, int | None]]:
    return [(one.partition(), one.offset()) for one in messages]


def told_by(messages: list[ck.Message]) -> list[int]:
    """The codes of those that are errors."""
    return [error.code() for one in messages if (error := one.error()) is not None]


# -- rows and positions


def test_nothing_is_there_before_something_came() -> None:
    world = World()
    assert world.reader.take_batch(10) is None
    assert world.reader.take(10, 0) == []
    assert world.positions() == {}


def test_a_batch_has_no_more_rows_than_were_asked_for_and_the_rest_comes_next() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    assert world.rows(3) == places(0, range(3))
    assert world.positions() == {0: 3}, "however far fetching is ahead"
    assert world.rows(3) == places(0, range(3, 5))
    assert world.rows(3) == []


def test_a_position_has_the_epoch_of_the_record_before_it() -> None:
    world = World()
    world.feed.brings(A, 0, 2)
    world.rows()
    assert world.reader.positions([A]) == {A: OffsetEntry(2, EPOCH)}


def test_partitions_take_turns() -> None:
    world = World()
    for first in (0, 2):
        world.feed.brings(A, first, 2)
    world.feed.brings(B, 0, 2)
    assert {partition for partition, _ in world.rows(4)} == {0, 1}


def test_messages_and_batches_may_be_mixed() -> None:
    """What was made messages and is not handed out yet comes first."""
    world = World()
    world.feed.brings(A, 0, 6)
    assert shown(world.reader.take(2, 0)) == places(0, range(2))
    assert world.positions() == {0: 2}
    assert world.rows() == places(0, range(2, 6))
    assert world.positions() == {0: 6}


def test_read_bytes_make_room_for_more() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    queued = world.feed.flows.queued_bytes
    assert queued > 0
    world.rows(4)
    assert world.feed.flows.queued_bytes == queued, "an answer counts until its last row was taken"
    world.rows(4)
    assert world.feed.flows.queued_bytes == 0


def test_whoever_waits_is_woken_by_what_comes() -> None:
    world = World()
    bring = threading.Timer(0.01, lambda: world.feed.brings(A, 0, 1))
    bring.start()
    found = world.reader.take(1, 120.0)
    bring.join()
    assert shown(found) == [(0, 0)]


# -- changes


def test_of_what_is_dropped_nothing_is_handed_out_any_more() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    world.feed.brings(B, 0, 5)
    assert len(world.reader.take(1, 0)) == 1
    world.reader.drop([A])
    assert {partition for partition, _ in world.all_rows()} == {1}
    assert world.book.assigned == {B}
    assert world.positions().keys() == {1}


def test_what_comes_back_begins_where_it_is_told() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    world.rows(2)
    world.reader.drop([A])
    world.reader.add([confluent_at(A, 40)])
    assert world.positions() == {}
    world.feed.brings(A, 40, 1)
    assert world.rows() == [(0, 40)]


def test_a_sought_partition_gives_nothing_from_before() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    world.rows(1)
    world.reader.seek(confluent_at(A, 3))
    assert world.rows() == [] and world.positions() == {}
    assert world.feed.flow(A).at == 3
    world.feed.brings(A, 3, 2)
    assert world.rows() == places(0, range(3, 5))


@pytest.mark.parametrize("taken", ["rows", "messages"])
def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(taken: str) -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    if taken == "rows":
        world.rows(2)
    else:
        world.reader.take(2, 0)
    world.reader.pause([A])
    world.reader.pause([A])
    assert world.rows() == [] and world.reader.take(1, 0) == []
    assert world.positions() == {0: 2}
    world.reader.resume([A])
    if world.feed.flow(A).at < 5:  # messages that were made of it are fetched again
        world.feed.brings(A, world.feed.flow(A).at, 5 - world.feed.flow(A).at)
    assert world.rows() == places(0, range(2, 5))


def test_what_is_added_while_paused_stays_paused() -> None:
    world = World()
    world.reader.pause([A])
    world.reader.drop([A])
    world.reader.add([confluent_at(A, 0)])
    world.feed.brings(A, 0, 1)
    assert world.rows() == []
    world.reader.resume([A])
    assert world.rows() == [(0, 0)]


def test_an_assignment_replaces_everything() -> None:
    world = World()
    world.feed.brings(B, 0, 5)
    world.reader.replace([confluent_at(A, 7)])
    assert world.book.starts == {A: 7}
    assert world.rows() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda reader: reader.add([confluent_at(A, 0)]),
        lambda reader: reader.seek(ck.TopicPartition("pay", 0, 0)),
    ],
    ids=["assigned already", "not assigned"],
)
def test_a_change_that_can_not_be_is_refused_and_changes_nothing(change: Callable[[BatchReader], None]) -> None:
    world = World()
    with pytest.raises(ck.KafkaException):
        change(world.reader)
    assert world.book.starts == {A: 0, B: 0}


# -- who reads


def test_another_reader_goes_on_at_the_first_record_that_was_not_handed_out() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    world.reader.take(1, 0)  # all five are messages by now
    world.reader.write_down()
    assert world.book.starts == {A: 1, B: 0}
    assert world.book.reached == {A: OffsetEntry(1, EPOCH)}
    world.reader.stop()
    assert world.rows() == []
    world.book.starts[A] = 3  # the other one handed out two
    world.reader.take_over()
    world.feed.brings(A, 3, 1)
    assert world.rows() == [(0, 3)]


def test_a_batch_that_nobody_got_is_read_again() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    world.rows(2)
    stood = world.reader.stand()
    world.rows(2)
    world.reader.read_again(stood)
    assert world.positions() == {0: 2}
    assert world.feed.flow(A).at == 2
    world.feed.brings(A, 2, 3)
    assert world.rows() == places(0, range(2, 5))


def test_a_first_batch_that_nobody_got_leaves_no_position() -> None:
    world = World()
    world.feed.brings(A, 0, 5)
    stood = world.reader.stand()
    world.rows()
    world.reader.write_down()
    world.reader.read_again(stood)
    assert world.positions() == {}
    assert world.feed.flow(A).at == 0


# -- what can't be read


def test_a_damaged_batch_is_told_until_the_application_seeks_past_it() -> None:
    world = World()
    world.feed.brings(A, 0, 2)
    world.feed.brings(A, 2, 2, damaged=True)
    assert world.rows() == places(0, range(2))
    for _ in range(2):
        with pytest.raises(HoldfastError, match="offset 2"):
            world.rows()
        assert world.positions() == {0: 2}
        assert world.feed.flow(A).at == 2, "it is fetched again: it may have been damaged on the way"
        world.feed.brings(A, 2, 2, damaged=True)
    world.reader.seek(confluent_at(A, 4))
    world.feed.brings(A, 4, 1)
    assert world.rows() == [(0, 4)]


def test_an_error_of_one_partition_keeps_no_other_from_being_read() -> None:
    world = World()
    world.feed.brings(A, 0, 2, damaged=True)
    world.feed.brings(B, 0, 2)
    found: list[Place] = []
    with pytest.raises(HoldfastError, match="orders-0"):
        while True:
            found += world.rows(1)
    found += world.all_rows()
    assert found == places(1, range(2))


def test_a_partition_without_any_start_is_told_of() -> None:
    """auto.offset.reset=error, and the group has no offset."""
    world = World(reset=NOWHERE)
    world.reader.drop([A])
    world.reader.add([confluent_at(A, NOWHERE)])
    with pytest.raises(HoldfastError, match="AUTO_OFFSET_RESET"):
        world.rows()
    assert world.rows() == []


def test_with_somebody_to_tell_errors_are_messages_in_their_place() -> None:
    world = World(tell=lambda _error: False)
    world.feed.brings(A, 0, 1)
    world.reader.take(1, 0)
    world.feed.fails(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed."), A)
    found = world.reader.take(10, 0)
    assert told_by(found) == [29]
    assert shown(found) == [(0, 1)]


@pytest.mark.parametrize(("has_error_cb", "messages"), [(True, []), (False, [ck.KafkaError.UNKNOWN_TOPIC_OR_PART])])
def test_an_unknown_topic_goes_to_error_cb_or_else_among_the_records(has_error_cb: bool, messages: list[int]) -> None:
    heard: list[int] = []

    def tell(error: ck.KafkaError) -> bool:
        heard.append(error.code())
        return has_error_cb

    world = World(tell=tell)
    world.feed.info = ClusterInfo()
    world.feed.fails(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic."), A)
    assert told_by(world.reader.take(10, 0)) == messages
    assert heard == [ck.KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_a_broker_that_can_not_be_reached_is_no_message() -> None:
    """That is told once for the whole client."""
    world = World(tell=lambda _error: False)
    world.feed.fails(NetError("DISCONNECTED", "it is gone.", "Wait.", retriable=True), A)
    assert world.reader.take(10, 0) == []


def test_the_end_of_a_partition_is_told_behind_its_last_record() -> None:
    world = World(tell=lambda _error: False, tell_ends=True)
    world.feed.brings(A, 0, 2)
    world.feed.ends(A)
    found = world.reader.take(10, 0)
    found += world.reader.take(10, 0)
    assert shown(found) == places(0, range(3))
    assert told_by(found) == [ck.KafkaError._PARTITION_EOF]
    assert world.positions() == {0: 2}


def test_a_log_that_was_reset_goes_on_at_a_lower_offset() -> None:
    """The topic was deleted and made again: what is left of the old one is handed out first."""
    world = World(reset=BEGINNING)
    world.reader.seek(confluent_at(A, 7))
    world.feed.brings(A, 7, 2)
    flow = world.feed.flow(A)
    with world.feed.flows.lock:
        world.feed.flows.reset(flow, HoldfastError("OFFSET_OUT_OF_RANGE", "not in the log.", "Wait."))
    assert flow.at == BEGINNING
    world.feed.brings(A, 0, 2)
    assert world.rows(1) + world.rows(1) + world.rows(1) + world.rows(1) == [(0, 7), (0, 8), (0, 0), (0, 1)]
    assert world.positions() == {0: 2}


# -- the feed


def test_the_feed_is_watched_and_closed_through_the_reader() -> None:
    world, watcher = World(), object()
    world.reader.watch(watcher)  # type: ignore[arg-type]
    assert world.feed.watchers == [watcher]
    assert world.reader.broker_name(3) == "3", "not known yet"
    world.reader.close()
    assert world.feed.closed == 1
