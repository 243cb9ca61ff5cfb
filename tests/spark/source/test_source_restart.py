"""A query that comes back: what its checkpoint says, what the group says, and who is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from source_engine import Checkpoint, Engine, committed, every, produce

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.spark.offsets import BatchOffset
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import wait_for

QUICK = {"kafka__session__timeout__ms": "400"}
"""A member that vanished is given up soon."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        produce(running, 5)
        yield running


def settled(broker: Broker, offset: int) -> None:
    wait_for(lambda: committed(broker) == dict.fromkeys(range(4), offset))


def test_a_batch_that_was_planned_and_not_done_is_read_again(broker: Broker) -> None:
    checkpoint = Checkpoint()
    first = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert first.plan() is not None
    first.vanish()
    again = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert again.step() == 20
    assert again.plan() is None
    settled(broker, 5)
    assert sorted(again.seen) == every(5)
    again.stop()


def test_a_batch_that_was_done_and_not_committed_is_committed_and_not_read_again(broker: Broker) -> None:
    checkpoint = Checkpoint()
    first = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert first.step() == 20
    first.vanish()
    assert committed(broker) == dict.fromkeys(range(4), 0)
    again = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert again.plan() is None
    settled(broker, 5)
    produce(broker, 2)
    again.run_until(lambda: len(again.seen) == 8)
    assert sorted(first.seen + again.seen) == every(7)
    again.stop()


def test_a_batch_done_but_not_committed_before_one_that_was_only_planned(broker: Broker) -> None:
    """The commit of a batch is on its way while the next one is planned: a crash in between loses the commit only."""
    checkpoint = Checkpoint()
    first = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert first.step() == 20
    produce(broker, 2)
    broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    first.plan_something()
    first.vanish()
    broker.faults.clear()
    assert committed(broker) == dict.fromkeys(range(4), 0)
    again = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert again.step() == 8, "the planned batch is read, the one before it is not"
    assert again.plan() is None
    settled(broker, 7)
    assert sorted(first.seen + again.seen) == every(7)
    again.stop()


def test_ranges_that_somebody_else_has_done_meanwhile_are_empty_when_a_batch_is_replayed(broker: Broker) -> None:
    checkpoint = Checkpoint()
    first = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert first.plan() is not None
    first.vanish()
    other = Engine(broker.bootstrap, **QUICK)
    other.run_until(lambda: len(other.seen) == 20)
    assert other.plan() is None
    settled(broker, 5)
    again = Engine(broker.bootstrap, checkpoint, **QUICK)
    assert again.step() == 0
    again.run_until(lambda: len(again.owned()) == 2, other)
    produce(broker, 2)
    again.run_until(lambda: len(again.seen) + len(other.seen) == 28, other)
    assert sorted(again.seen + other.seen) == every(7)
    again.stop()
    other.stop()


def test_a_finished_batch_does_not_count_where_the_group_stands_elsewhere(broker: Broker) -> None:
    """An old checkpoint, and a group that has gone on without it: the group is right."""
    checkpoint = Checkpoint()
    first = Engine(broker.bootstrap, checkpoint)
    assert first.step() == 20
    assert first.plan() is None
    settled(broker, 5)
    first.stop()
    produce(broker, 5)
    other = Engine(broker.bootstrap)
    other.run_until(lambda: len(other.seen) == 20)
    assert other.plan() is None
    settled(broker, 10)
    other.stop()
    again = Engine(broker.bootstrap, checkpoint)
    assert again.plan() is None
    produce(broker, 1)
    again.run_until(lambda: len(again.seen) == 4)
    assert sorted(again.seen) == [(n, 10) for n in range(4)]
    again.stop()


def test_a_checkpoint_of_another_source_is_refused_with_the_way_out() -> None:
    with pytest.raises(HoldfastError, match=r"FOREIGN_CHECKPOINT.*import-checkpoint"):
        BatchOffset.from_json({"orders": {"0": 100}})
    with pytest.raises(HoldfastError, match="version 9"):
        BatchOffset.from_json({"v": 9})


def test_the_same_batch_gives_the_same_text_whatever_the_order() -> None:
    ranges = {("b", 1): (0, 2), ("a", 11): (3, 4), ("a", 2): (5, 6)}
    named = {TopicPartition(*p): r for p, r in ranges.items()}
    one = BatchOffset(number=3, generation=4, ranges=named)
    other = BatchOffset(number=3, generation=4, ranges=dict(reversed(named.items())))
    assert str(one.to_json()) == str(other.to_json())
    assert BatchOffset.from_json(one.to_json()) == one
    assert one.records == 4
