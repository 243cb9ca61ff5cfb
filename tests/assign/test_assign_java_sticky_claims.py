"""Kafka's AbstractStickyAssignorTest, second half: differing subscriptions, claims of several generations, racks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from assign_cases import (
    RACK_CONFIGS,
    STICKY,
    Group,
    Member,
    RackRow,
    expect,
    far,
    fed_back,
    fully_balanced,
    lists,
    member,
    plan,
    rack_fixture,
    settle,
    sizes,
    tps,
    valid_and_balanced,
)
from assign_oracle import cost, optimum


@pytest.fixture(params=STICKY)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=RACK_CONFIGS)
def group(request: pytest.FixtureRequest, strategy: str) -> Group:
    return Group(strategy, str(request.param))


def test_one_partition_claimed_in_three_generations_goes_to_one_member(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testSubscriptionNotEqualAndAssignSamePartitionWith3Generation"""
    for g1, g2, g3 in itertools.permutations((1, 2, 3)):
        members = group.members(
            c1=member("topic", "topic-0 topic-2", g1),
            c2=member("topic", "topic-1 topic-2 topic-3", g2),
            c3=member("topic", "topic-2 topic-4 topic-5", g3),
            c4=member("topic1", "topic1-0", 2),
        )
        settled = group.settle({"topic": 6, "topic1": 1}, members)
        assert sizes(settled.plan.target) == [1, 2, 2, 2]


@pytest.mark.parametrize("seed", range(2))
def test_fifty_of_two_hundred_members_leave_at_random(group: Group, seed: int) -> None:
    """Java: AbstractStickyAssignorTest.testLargeAssignmentWithMultipleConsumersLeavingAndRandomSubscription"""
    rng = random.Random(seed)
    topics = {f"topic{i}": rng.randint(1, 10) for i in range(40)}
    names = sorted(topics)
    members = {f"consumer{i:03d}": member([rng.choice(names) for _ in range(rng.randrange(20))]) for i in range(200)}
    for topic in names:  # so that every partition has a taker, whatever was drawn
        members["consumer000"] = member({*members["consumer000"].topics, topic})
    planned = group.plan(topics, members)
    valid_and_balanced(members, planned.target)
    following = fed_back(members, planned, 1, consumer000=members["consumer000"])
    gone = rng.sample(sorted(set(members) - {"consumer000"}), 50)
    group.settle(topics, {name: one for name, one in following.items() if name not in gone})


def test_a_member_that_subscribes_anew_gets_its_share(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testNewSubscription"""
    topics = {f"topic{i}": 1 for i in range(1, 5)}
    members = group.members(c0=member(), c1=member("topic1"), c2=member("topic2 topic3 topic4"))
    settled = group.settle(topics, members)
    group.settle(topics, {**settled.members, "consumer0": member("topic1")})


def test_existing_assignments_move_as_little_as_balance_needs(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testMoveExistingAssignments"""
    topics = {f"topic{i}": 1 for i in range(1, 7)}
    members = group.members(
        c1=member("topic1 topic2", "topic1-0", 1),
        c2=member("topic1 topic2 topic3 topic4", "topic2-0 topic3-0", 1),
        c3=member("topic2 topic3 topic4 topic5 topic6", "topic4-0 topic5-0 topic6-0", 1),
    )
    settled = group.settle(topics, members)
    assert sizes(settled.plan.target) == [2, 2, 2]
    assert cost(group.view(topics), members, settled.plan.target)[2] == 2


def test_whoever_has_one_keeps_it(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testStickiness"""
    topics = {"topic1": 3}
    settled = group.settle(topics, group.members(**{f"c{i}": member("topic1") for i in range(1, 5)}))
    assert sizes(settled.plan.target) == [0, 1, 1, 1]
    after = group.settle(topics, fed_back(settled.members, settled.plan, 2, consumer1=None))
    assert sizes(after.plan.target) == [1, 1, 1]
    assert all(after.plan.target[name] >= settled.plan.target[name] for name in after.members)
    assert after.rounds == 1


def test_a_topic_missing_from_the_metadata_is_passed_over(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testAssignmentUpdatedForDeletedTopic

    edge A13 K-7962, K-3661: a subscribed topic that is deleted, or not in the metadata, is skipped.
    """
    planned = group.plan({"topic01": 1, "topic03": 100}, group.members(c=member("topic01 topic02 topic03")))
    assert sizes(planned.target) == [101]
    assert not planned.transferring


def test_the_only_topic_is_deleted(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testNoExceptionThrownWhenOnlySubscribedTopicDeleted"""
    settled = group.settle({"topic": 3}, group.members(c=member("topic")))
    planned = group.plan({}, settled.members)
    expect(planned.target, c="")
    assert not planned.transferring


def test_subscriptions_change_at_random_and_the_group_stays_balanced(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testReassignmentWithRandomSubscriptionsAndChanges"""
    rng = random.Random(group.config)
    for _ in range(4):
        topics = {f"topic{i}": i + 1 for i in range(rng.randint(10, 19))}
        names = [f"consumer{i}" for i in range(rng.randint(20, 39))]

        def draw(among: list[str]) -> list[str]:
            return rng.sample(among, rng.randint(1, len(among)))

        pool = sorted(topics)
        members = {name: member(draw(pool)) for name in names} | {"consumer-all": member(pool)}
        settled = group.settle(topics, members)
        changed = {
            name: Member(topics=tuple(draw(pool)), owned=settled.plan.target[name], generation=1) for name in names
        }
        changed["consumer-all"] = settled.members["consumer-all"]
        planned = group.plan(topics, changed)
        valid_and_balanced(changed, planned.target)
        group.settle(topics, changed)


def test_members_at_the_smaller_share_are_filled_once_the_larger_ones_are_given(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testAllConsumersReachExpectedQuotaAndAreConsideredFilled"""
    members = group.members(
        c1=member("topic", "topic-0 topic-1", 1), c2=member("topic", "topic-2", 1), c3=member("topic", "", 1)
    )
    planned = group.plan({"topic": 4}, members)
    expect(planned.assignment, c1="topic-0 topic-1", c2="topic-2", c3="topic-3")


@pytest.mark.parametrize("stale", [9, -1])
def test_a_stale_claim_loses_to_the_newer(group: Group, stale: int) -> None:
    """Java: AbstractStickyAssignorTest.testOwnedPartitionsAreInvalidatedForConsumerWithStaleGeneration
    Java: AbstractStickyAssignorTest.testOwnedPartitionsAreInvalidatedForConsumerWithNoGeneration

    edge A1 K-7026, edge A2 K-10082: the newer claim wins, and filtering the stale one must not drop the newer.
    """
    both = "topic topic2"
    owned = "topic-0 topic-2 topic2-1"
    members = group.members(c1=member(both, owned, 10), c2=member(both, owned, stale))
    planned = group.plan({"topic": 3, "topic2": 3}, members)
    expect(planned.assignment, c1=owned, c2="topic-1 topic2-0 topic2-2")
    assert not planned.transferring


def test_a_partition_claimed_twice_in_one_generation_is_in_transfer(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.
    testPartitionsTransferringOwnershipIncludeThePartitionClaimedByMultipleConsumersInSameGeneration

    edge A3 K-12984: neither claimant keeps it.
    """
    members = group.members(
        c1=member("topic", "topic-0 topic-1", 1), c2=member("topic", "topic-0 topic-2", 1), c3=member("topic", "", 1)
    )
    planned = group.plan({"topic": 3}, members)
    if group.strategy != "sticky":
        assert group.transfers(planned) == {"topic-0": "consumer3"}
        expect(planned.assignment, c1="topic-1", c2="topic-2", c3="")
        assert planned.withheld[next(iter(tps("topic-0")))].source is None
    expect(group.settle({"topic": 3}, members).plan.target, c1="topic-1", c2="topic-2", c3="topic-0")


def test_the_highest_generation_wins_partition_by_partition(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testEnsurePartitionsAssignedToHighestGeneration

    edge A16 librdkafka 4252: the lowest generation was chosen as the owner.
    """
    topics = "topic topic2 topic3"
    members = group.members(
        c1=member(topics, "topic-0 topic2-0 topic3-0", 10),
        c2=member(topics, "topic-1 topic2-1 topic3-1", 9),
        c3=member(topics, "topic2-1 topic3-0 topic3-2", 8),
    )
    planned = group.plan(dict.fromkeys(topics.split(), 3), members)
    expect(
        planned.assignment,
        c1="topic-0 topic2-0 topic3-0",
        c2="topic-1 topic2-1 topic3-1",
        c3="topic-2 topic2-2 topic3-2",
    )
    assert not planned.transferring


def test_old_claims_that_nobody_contests_stand(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testNoReassignmentOnCurrentMembers

    edge A4 K-14639: a member that missed a round must not lose what is still its own.
    """
    topics = "topic topic1 topic2 topic3"
    members = group.members(
        c1=member(topics),
        c2=member(topics, "topic-0 topic2-0 topic1-0", 9),
        c3=member(topics, "topic3-2 topic2-2 topic1-1", 8),
        c4=member(topics, "topic3-1 topic-1 topic-2", 7),
    )
    planned = group.plan(dict.fromkeys(topics.split(), 3), members)
    assert planned.assignment["consumer1"] == tps("topic1-2 topic2-1 topic3-0")
    assert not planned.transferring


def test_a_member_of_several_generations_ago_keeps_what_is_uncontested(group: Group) -> None:
    """Java: AbstractStickyAssignorTest.testOwnedPartitionsAreInvalidatedForConsumerWithMultipleGeneration"""
    both = "topic topic2"
    members = group.members(
        c1=member(both, "topic-0 topic2-1 topic-1", 10), c2=member(both, "topic-0 topic2-1 topic2-2", 8)
    )
    planned = group.plan({"topic": 3, "topic2": 3}, members)
    expect(planned.assignment, c1="topic-0 topic2-1 topic-1", c2="topic-2 topic2-2 topic2-0")
    assert not planned.transferring


A = (
    "topic1-0 topic1-3 topic2-0 topic2-3 topic2-6",
    "topic1-1 topic1-4 topic2-1 topic2-4 topic3-0",
    "topic1-2 topic1-5 topic2-2 topic2-5 topic3-1",
)
MISALIGNED = (
    "topic1-0 topic1-1 topic1-2 topic1-3 topic1-4",
    "topic1-5 topic2-0 topic2-1 topic2-2 topic2-3",
    "topic2-4 topic2-5 topic2-6 topic3-0 topic3-1",
)
RACK_TOPICS = {"topic1": 6, "topic2": 7, "topic3": 2}
NONE3 = (None, None, None)
RACK_ROWS: list[RackRow] = [
    (3, NONE3, "abc", False, None),
    (3, "abc", NONE3, False, None),
    (3, "abc", "abc", True, 0),
    (4, "abcd", "abc", True, 0),
    (3, "abc", "abc", False, 0),
    (3, "abc", "def", False, None),
    (3, "abc", (None, "e", "f"), False, None),
    (1, "abc", "abc", False, 0),
    (2, "abc", "abc", False, 0),
    (3, "ab", "abc", False, 5),
]


def rack_members(
    racks: Sequence[str | None], topics: tuple[tuple[str, ...], ...], owned: tuple[str, ...] | None
) -> dict[str, Member]:
    return {
        f"consumer{i}": member(topics[i], owned[i] if owned else "", -1 if owned is None else 1, rack=rack)
        for i, rack in enumerate(racks)
    }


EQUAL = (tuple(RACK_TOPICS),) * 3


@pytest.mark.parametrize("row", RACK_ROWS, ids=str)
@pytest.mark.parametrize("owned", [None, A], ids=["fresh", "owned"])
def test_racks_with_equal_subscriptions(strategy: str, row: RackRow, owned: tuple[str, ...] | None) -> None:
    """Java: AbstractStickyAssignorTest.testRackAwareAssignmentWithUniformSubscription"""
    replicas, brokers, racks, prefer, mismatches = row
    view = rack_fixture(RACK_TOPICS, brokers, replicas)
    members = rack_members(racks, EQUAL, owned)
    planned = plan(strategy, view, members, prefer_racks=prefer)
    expect(planned.assignment, **{f"c{i}": text for i, text in enumerate(A)})
    if mismatches is not None:
        assert far(view, members, planned.target) == mismatches


def test_a_group_far_from_its_racks_revokes_first_and_then_is_near(strategy: str) -> None:
    """The misaligned row of testRackAwareAssignmentWithUniformSubscription; eager sticky claims nothing in it."""
    view = rack_fixture(RACK_TOPICS, "abc", 1)
    if strategy == "sticky":
        expect(plan(strategy, view, rack_members("abc", EQUAL, None)).target, **{f"c{i}": a for i, a in enumerate(A)})
        return
    members = rack_members("abc", EQUAL, MISALIGNED)
    planned = plan(strategy, view, members)
    expect(planned.assignment, c0="topic1-0 topic1-3", c1="topic2-1", c2="topic2-5 topic3-1")
    settled = settle(strategy, view, members)
    assert far(view, members, settled.plan.target) == 0


DIFFERING = (tuple(RACK_TOPICS), tuple(RACK_TOPICS), ("topic1", "topic3"))


@pytest.mark.parametrize("row", RACK_ROWS, ids=str)
@pytest.mark.parametrize("owned", [None, MISALIGNED], ids=["fresh", "misaligned"])
def test_racks_with_differing_subscriptions(strategy: str, row: RackRow, owned: tuple[str, ...] | None) -> None:
    """Java: AbstractStickyAssignorTest.testRackAwareAssignmentWithNonEqualSubscription

    By balance, distance and moves: all loads are 5, and no plan is nearer than ours. Where Java has 4 partitions far
    away (replication 1), so has the optimum.
    """
    replicas, brokers, racks, prefer, _ = row
    view = rack_fixture(RACK_TOPICS, brokers, replicas)
    members = rack_members(racks, DIFFERING, owned)
    planned = plan(strategy, view, members, prefer_racks=prefer)
    assert sizes(planned.target) == [5, 5, 5]
    assert fully_balanced(planned.target)
    if not prefer:
        assert cost(view, members, planned.target) == optimum(view, members)
    if (replicas, brokers, racks) == (1, "abc", "abc"):
        assert far(view, members, planned.target) <= 4
    settled = settle(strategy, view, members, prefer_racks=prefer)
    again = plan(strategy, view, settled.members, prefer_racks=prefer)
    assert lists(again.target) == lists(settled.plan.target)
