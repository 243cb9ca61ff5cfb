"""The first batch of a process reads nothing: a member that joined before it would keep partitions dark for seconds."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from holdfast.model import TopicPartition
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.source import NO_LIMIT, Slice, StreamReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}
GIVEN |= {"kafka.holdfast.stateful": "none"}
READ = {TopicPartition("orders", 0): (5, 9)}


class Joined:
    """A member that is asked for one batch, and remembers what it was told is done."""

    def __init__(self) -> None:
        self.told: list[tuple[BatchOffset, int | None]] = []

    def next_batch(self, done: BatchOffset, limit: int | None, *, at_least: int | None) -> BatchOffset | None:
        self.told.append((done, limit))
        return None

    def replay(self, previous: BatchOffset, planned: BatchOffset) -> BatchOffset:
        self.told.append((previous, None))
        return planned

    def stop_at_what_is_there(self) -> None:
        """For AvailableNow."""


@pytest.fixture(params=[{}])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = StreamReader(GIVEN | request.param)

    def joined() -> Joined:
        if made._member is None:
            made._member = Joined()
        return made._member  # type: ignore[no-any-return]

    monkeypatch.setattr(made, "_joined", joined)
    return made


def ask(reader: Any, start: BatchOffset, limit: ReadLimit | None = None) -> BatchOffset:
    return BatchOffset.from_json(reader.latestOffset(start.to_json(), limit or reader.getDefaultReadLimit()))


def test_the_first_batch_reads_nothing_and_the_member_joins_after_it(reader: Any) -> None:
    start = BatchOffset(number=7, generation=3, ranges=READ)
    rehearsal = ask(reader, start)
    assert (rehearsal.number, rehearsal.ranges) == (8, {})
    slices = reader.partitions(start.to_json(), rehearsal.to_json())
    assert slices
    assert all(isinstance(one, Slice) and one.pieces == [] for one in slices)
    assert reader._member is None, "nobody has joined yet"
    ask(reader, rehearsal)
    assert reader._member.told == [(BatchOffset(number=8, generation=3, ranges=READ), None)]


STATIC = {"kafka.group.instance.id": "pod-0"}


@pytest.mark.parametrize("reader", [STATIC], indirect=True)
@pytest.mark.parametrize(("batches", "joined"), [(0, False), (7, True)])
def test_a_static_member_that_comes_back_joins_before_its_rehearsal(reader: Any, batches: int, joined: bool) -> None:
    """What it takes has waited for it, and its session runs out meanwhile. One that is new takes it from others."""
    assert ask(reader, BatchOffset(number=batches)).number == batches + 1
    assert (reader._member is not None) is joined
    ask(reader, BatchOffset(number=batches).rehearsal())
    assert len(reader._member.told) == 1


def test_what_was_done_before_a_rehearsal_is_not_forgotten_when_the_process_dies_after_it(reader: Any) -> None:
    """The group may not have heard of the last batch: whoever comes next must still be able to tell it."""
    once = BatchOffset(number=7, generation=3, ranges=READ).rehearsal()
    again = ask(reader, once)
    assert (again.number, again.done().ranges) == (9, READ)


def test_a_rehearsal_that_a_crash_left_unfinished_is_enough(reader: Any) -> None:
    left = BatchOffset(number=7, ranges=READ).rehearsal()
    assert reader.partitions({}, left.to_json())
    ask(reader, left)
    assert len(reader._member.told) == 1


@pytest.mark.parametrize("trigger", ["once", "available-now"])
def test_a_trigger_that_ends_by_itself_is_not_spent_on_a_rehearsal(reader: Any, trigger: str) -> None:
    if trigger == "available-now":
        reader.prepareForTriggerAvailableNow()
    ask(reader, BatchOffset(), ReadAllAvailable() if trigger == "once" else None)
    assert len(reader._member.told) == 1


def test_a_batch_that_a_crash_left_unfinished_comes_first(reader: Any) -> None:
    left = BatchOffset(number=8, ranges=READ)
    before = BatchOffset(number=6, ranges={TopicPartition("orders", 0): (0, 5)}).rehearsal()
    assert [one.pieces for one in reader.partitions(before.to_json(), left.to_json())]
    assert reader._member.told == [(before.done(), None)]


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


def test_what_limits_a_batch_is_told_and_no_limit_is_none(reader: Any) -> None:
    reader._rehearsed = True
    ask(reader, BatchOffset())
    assert reader.getDefaultReadLimit().max_rows == NO_LIMIT
    assert reader._member.told[-1][1] is None
