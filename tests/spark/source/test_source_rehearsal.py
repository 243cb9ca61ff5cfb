"""The first batch of a process that joins others reads nothing: a member that joined before it would keep partitions
dark for seconds. Where nobody is at work, it begins at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from source_engine import Engine, produce, source_options

from holdfast.model import TopicPartition
from holdfast.spark import checking, group_members, member, siblings
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import SourceOptions, parse
from holdfast.spark.source import FIRST_BATCH, NO_LIMIT, Slice, StreamReader
from holdfast.testing import Broker
from patience import PATIENCE_S

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}
GIVEN |= {"kafka.holdfast.stateful": "none"}
READ = {TopicPartition("orders", 0): (5, 9)}


class Joined:
    """A member that is asked for one batch, and remembers what it was told is done."""

    def __init__(self) -> None:
        self.told: list[tuple[BatchOffset, int | None]] = []

    def next_batch(
        self, done: BatchOffset, limit: int | None, *, at_least: int | None, last: bool
    ) -> BatchOffset | None:
        self.told.append((done, limit))
        return None

    def keep_place(self, done: BatchOffset) -> BatchOffset | None:
        return None

    def replay(self, previous: BatchOffset, planned: BatchOffset) -> BatchOffset:
        self.told.append((previous, None))
        return planned

    def stop_at_what_is_there(self) -> None:
        """For AvailableNow."""

    def open_door(self) -> None:
        """For the driver, which asks nothing here."""


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether others are at work in the group: they are, unless a test says something else."""
    there = [True]
    monkeypatch.setattr(group_members, "others_at_work", lambda _options: there[0])
    return there


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Joined]:
    """The members that a reader has made: none, or one."""
    made: list[Joined] = []

    def join(_options: SourceOptions) -> Joined:
        made.append(Joined())
        return made[-1]

    monkeypatch.setattr(member, "QueryMember", join)
    monkeypatch.setattr(checking, "check_reachable", lambda _: None)  # no broker is there to be reached
    monkeypatch.setattr(siblings.Claimed, "stake", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return made


@pytest.fixture(params=[{}])
def reader(request: pytest.FixtureRequest, others: list[bool], joined: list[Joined]) -> StreamReader:
    return StreamReader(GIVEN | request.param)


def ask(reader: Any, start: BatchOffset, limit: ReadLimit | None = None) -> BatchOffset:
    return BatchOffset.from_json(reader.latestOffset(start.to_json(), limit or reader.getDefaultReadLimit()))


def test_the_first_batch_reads_nothing_and_the_member_joins_after_it(reader: Any, joined: list[Joined]) -> None:
    start = BatchOffset(number=7, generation=3, ranges=READ)
    rehearsal = ask(reader, start)
    assert (rehearsal.number, rehearsal.ranges) == (8, {})
    slices = reader.partitions(start.to_json(), rehearsal.to_json())
    assert slices
    assert all(isinstance(one, Slice) and one.pieces == [] for one in slices)
    assert not joined, "nobody has joined yet"
    ask(reader, rehearsal)
    assert joined[0].told == [(BatchOffset(number=8, generation=3, ranges=READ), None)]


def test_a_query_that_nobody_waits_for_begins_with_its_first_batch(
    reader: Any, joined: list[Joined], others: list[bool]
) -> None:
    """Symptom: with a trigger of 30 s a query's first rows came after 33 s, at each start. Cause: the rehearsal took
    the first trigger, also where there was nobody whose partitions it could keep dark. Rule: it is for those that are
    at work; a lone query reads at once, and not all there is, so that a second one does not wait long for its share."""
    others[0] = False
    start = BatchOffset(number=7, generation=3, ranges=READ)
    ask(reader, start)
    ask(reader, start)
    assert joined[0].told == [(start, FIRST_BATCH), (start, None)]


def at_most(most: int) -> dict[str, str]:
    return {"maxOffsetsPerTrigger": str(most)}


@pytest.mark.parametrize(
    ("reader", "most"), [(at_most(10), 10), (at_most(FIRST_BATCH * 2), FIRST_BATCH)], indirect=["reader"]
)
def test_the_first_batch_keeps_the_limit_that_was_asked_for(
    reader: Any, joined: list[Joined], others: list[bool], most: int
) -> None:
    others[0] = False
    ask(reader, BatchOffset())
    assert joined[0].told == [(BatchOffset(), most)]


STATIC = {"kafka.group.instance.id": "pod-0"}


@pytest.mark.parametrize("reader", [STATIC], indirect=True)
@pytest.mark.parametrize(("batches", "joins"), [(0, False), (7, True)])
def test_a_static_member_that_comes_back_needs_no_rehearsal(
    reader: Any, joined: list[Joined], batches: int, joins: bool
) -> None:
    """What it takes has waited for it, and its session runs out meanwhile. One that is new takes it from others."""
    ask(reader, BatchOffset(number=batches))
    assert bool(joined) is joins


def test_what_was_done_before_a_rehearsal_is_not_forgotten_when_the_process_dies_after_it(reader: Any) -> None:
    """The group may not have heard of the last batch: whoever comes next must still be able to tell it."""
    once = BatchOffset(number=7, generation=3, ranges=READ).rehearsal()
    again = ask(reader, once)
    assert (again.number, again.without_rehearsal().ranges) == (9, READ)


def test_a_rehearsal_that_a_crash_left_unfinished_is_enough(reader: Any, joined: list[Joined]) -> None:
    left = BatchOffset(number=7, ranges=READ).rehearsal()
    assert reader.partitions({}, left.to_json())
    ask(reader, left)
    assert len(joined[0].told) == 1


@pytest.mark.parametrize("trigger", ["once", "available-now"])
def test_a_trigger_that_ends_by_itself_is_not_spent_on_a_rehearsal(
    reader: Any, joined: list[Joined], trigger: str
) -> None:
    if trigger == "available-now":
        reader.prepareForTriggerAvailableNow()
    ask(reader, BatchOffset(), ReadAllAvailable() if trigger == "once" else None)
    assert len(joined[0].told) == 1


def test_a_batch_that_a_crash_left_unfinished_comes_first(reader: Any, joined: list[Joined]) -> None:
    left = BatchOffset(number=8, ranges=READ)
    before = BatchOffset(number=6, ranges={TopicPartition("orders", 0): (0, 5)}).rehearsal()
    assert [one.pieces for one in reader.partitions(before.to_json(), left.to_json())]
    assert joined[0].told == [(before.without_rehearsal(), None)]


def test_a_batch_that_is_done_again_is_cut_for_each_of_its_scans(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a frame that is used twice in a query (united with itself) read ranges after a restart that are somebody
    else's by now. Cause: only the first scan of a replayed batch was cut to what is still ours. Rule: all of them."""
    ours, lost = {TopicPartition("orders", 0): (5, 9)}, {TopicPartition("orders", 1): (2, 4)}
    left = BatchOffset(number=8, ranges=ours | lost)
    monkeypatch.setattr(Joined, "replay", lambda *_: BatchOffset(number=8, ranges=ours))

    def scanned(end: BatchOffset) -> set[TopicPartition]:
        return {piece[0] for one in reader.partitions(BatchOffset().to_json(), end.to_json()) for piece in one.pieces}

    assert [scanned(left) for _ in range(2)] == [ours.keys(), ours.keys()]
    assert scanned(BatchOffset(number=9, ranges=lost)) == lost.keys(), (
        "the next batch is planned with what is ours then"
    )


def test_what_limits_a_batch_is_told_and_no_limit_is_none(reader: Any, joined: list[Joined]) -> None:
    reader.partitions({}, BatchOffset().rehearsal().to_json())
    ask(reader, BatchOffset())
    assert reader.getDefaultReadLimit().max_rows == NO_LIMIT
    assert joined[0].told[-1][1] is None


# -- with a broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        produce(running, 5)
        yield running


def test_members_of_the_group_are_others_and_nobody_else_is(broker: Broker) -> None:
    options = parse(source_options(broker.bootstrap), streaming=True)
    assert not group_members.others_at_work(options), "there is no such group yet"
    first = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.seen) == 20)
    assert group_members.others_at_work(options)
    first.stop()
    assert not group_members.others_at_work(options), "it has offsets, and no members"


def test_a_querys_place_is_in_its_checkpoint_before_there_is_anything_to_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a query with `latest` had nothing to read until it was stopped. Its group's offsets expired, and what
    was produced meanwhile was skipped: the checkpoint had nothing to go by. Rule: a new checkpoint is told where the
    query stands, by a batch that reads nothing if need be; later ones have it from their batches."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given = source_options(broker.bootstrap, startingOffsets="latest", kafka__holdfast__stateful="none")
    reader = StreamReader(given)
    start = BatchOffset.from_json(reader.initialOffset())
    kept = ask(reader, start)
    assert (kept.number, kept.ranges) == (1, {})
    assert kept.stands == {TopicPartition("orders", n): 5 for n in range(4)}
    assert reader.partitions(start.to_json(), kept.to_json()), "Spark wants something to run"
    assert ask(reader, kept) == kept, "once is enough"
    reader.stop()
    client: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
    produce(broker, 2)
    again = StreamReader(given)
    planned = ask(again, kept)
    assert planned.ranges == {TopicPartition("orders", n): (5, 7) for n in range(4)}
    again.stop()
