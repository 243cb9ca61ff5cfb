"""Queries as standbys of each other, in a real group: who follows what, and who gets what when one goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from source_engine import Engine, every, produce

from holdfast.assign.following import ALL, Followed
from holdfast.model import TopicPartition
from holdfast.spark.standby import question
from holdfast.testing import Broker
from patience import wait_for

PARTITIONS = 6


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=PARTITIONS)
        produce(running, 5, partitions=PARTITIONS)
        yield running


def follows(query: Engine) -> set[int]:
    standby = query.member.report().get("standby", {})
    return {int(name.rpartition("-")[2]) for name in standby.get("follows", {})} if isinstance(standby, dict) else set()


def has(query: Engine, partitions: set[int]) -> None:
    """What its driver would say when all of these partitions' state is at hand."""
    held = {TopicPartition("orders", number): Followed(5, ALL) for number in partitions}
    query.member.answer(question("state", held, None))


def group_of_three(broker: Broker) -> list[Engine]:
    """One joins after the other. All are asked by this one thread: a newcomer's first answer comes with its round, and
    that would wait for ever for a query that has to give something up and is not asked meanwhile."""
    queries: list[Engine] = []
    for size in (1, 2, 3):
        queries.append(Engine(broker.bootstrap, kafka__holdfast__standby="1"))
        followed = 0 if size == 1 else PARTITIONS

        def shared(each: int = PARTITIONS // size, followed: int = followed) -> bool:
            return all(len(q.owned()) == each for q in queries) and sum(len(follows(q)) for q in queries) == followed

        queries[0].run_until(shared, *queries[1:])
    return queries


@pytest.mark.parametrize("goes", ["drains", "dies"])
def test_the_partitions_of_whoever_goes_move_to_whoever_follows_them(broker: Broker, goes: str) -> None:
    """Every partition has a follower that is not its owner; when an owner goes, by a drain of two rounds or by its
    death, each of its partitions is found with its follower, and nothing else has moved."""
    queries = group_of_three(broker)
    assert sorted(number for query in queries for number in follows(query)) == list(range(PARTITIONS))
    assert all(not follows(query) & query.owned() for query in queries)
    gone, *left = sorted(queries, key=lambda query: min(query.owned()))
    was, before = gone.owned(), [query.owned() for query in left]
    # As if each of the two had followed another one than chance would give it.
    for query, number in zip(left, sorted(was, reverse=True), strict=True):
        has(query, {number})
    if goes == "drains":
        gone.member.drain()
    else:
        gone.stop()
    working = queries if goes == "drains" else left
    working[0].run_until(lambda: sum(len(query.owned()) for query in left) == PARTITIONS, *working[1:])
    for query, number, had in zip(left, sorted(was, reverse=True), before, strict=True):
        assert query.owned() == had | {number}
    produce(broker, 5, partitions=PARTITIONS)
    everything = set(every(10, PARTITIONS))
    left[0].run_until(lambda: {row for query in queries for row in query.seen} == everything, *left[1:])
    for query in queries:
        query.stop()


def test_as_long_as_a_member_has_no_standby_nobody_follows_and_the_group_goes_on(broker: Broker) -> None:
    """A deploy that turns it on meets members without it: they share partitions as ever, and it says that it rests."""
    without = Engine(broker.bootstrap)
    with_it = Engine(broker.bootstrap, kafka__holdfast__standby="1")
    without.run_until(lambda: len(without.owned()) == len(with_it.owned()) == 3, with_it)
    wait_for(lambda: "rests" in str(with_it.member.report()["standby"]))
    assert broker.group("g").state == "Stable"
    third = Engine(broker.bootstrap, kafka__holdfast__standby="1")
    without.stop()
    with_it.run_until(lambda: len(follows(with_it)) == len(follows(third)) == 3, third)
    assert follows(with_it) == third.owned()
    for query in (with_it, third):
        query.stop()
