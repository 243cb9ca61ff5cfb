"""Kafka's CooperativeStickyAssignorTest and StickyAssignorTest: what is particular to each of the two."""

from __future__ import annotations

import itertools
import struct

import pytest
from assign_cases import (
    RACK_CONFIGS,
    Group,
    Member,
    expect,
    fully_balanced,
    joined,
    member,
    plan,
    rack_fixture,
    sizes,
    tps,
)

from holdfast.assign import by_name, sticky_user_data
from holdfast.assign.columns import CLAIMS_FROM_OWNED, CLAIMS_FROM_USER_DATA, Columns, read
from holdfast.model import ClusterView, JoinedMember, Subscription
from holdfast.model.consumer_protocol import encode_subscription


@pytest.fixture(params=RACK_CONFIGS)
def cooperative(request: pytest.FixtureRequest) -> Group:
    return Group("cooperative-sticky", str(request.param))


@pytest.fixture(params=RACK_CONFIGS)
def sticky(request: pytest.FixtureRequest) -> Group:
    return Group("sticky", str(request.param))


def columns_of(subscription: Subscription, claims_from: str, version: int = 3) -> Columns:
    one = JoinedMember(member_id="consumer", metadata=encode_subscription(subscription, version))
    return read(ClusterView(), [one], claims_from=claims_from)


def claimed(columns: Columns) -> set[str]:
    return {f"{topic}-{partition}" for _, topic, partition in columns.others}


def test_the_generation_travels_in_cooperative_user_data() -> None:
    """Java: CooperativeStickyAssignorTest.testEncodeAndDecodeGeneration

    edge A22 sarama 1493: user data was empty after the first round.
    """
    assignor = by_name("cooperative-sticky")
    for generation in (-1, 10):
        data = assignor.subscription_user_data(frozenset({"topic"}), frozenset(), generation)
        assert data == struct.pack(">i", generation)
        columns = columns_of(Subscription(topics=("topic",), user_data=data), CLAIMS_FROM_OWNED, version=1)
        assert columns.generation.tolist() == [generation]


def test_a_subscription_without_user_data_has_no_generation() -> None:
    """Java: CooperativeStickyAssignorTest.testDecodeGeneration"""
    assert columns_of(Subscription(topics=("topic",)), CLAIMS_FROM_OWNED, 1).generation.tolist() == [-1]


def double_claim() -> dict[str, Member]:
    return {
        "c1": member("topic", "topic-0 topic-1", 1),
        "c2": member("topic", "topic-0 topic-2", 1),
        "c3": member("topic", "", 1),
    }


def test_a_double_claim_is_withheld_until_both_revoke(cooperative: Group) -> None:
    """Java: CooperativeStickyAssignorTest.
    testAllConsumersHaveOwnedPartitionInvalidatedWhenClaimedByMultipleConsumersInSameGenerationWithEqualPartitionsPerConsumer
    """
    members = cooperative.members(**double_claim())
    expect(cooperative.plan({"topic": 3}, members).assignment, c1="topic-1", c2="topic-2", c3="")
    assert fully_balanced(cooperative.settle({"topic": 3}, members).plan.target)


def test_a_double_claim_is_withheld_beside_a_free_partition(cooperative: Group) -> None:
    """Java: CooperativeStickyAssignorTest.
    testAllConsumersHaveOwnedPartitionInvalidatedWhenClaimedByMultipleConsumersInSameGenerationWithUnequalPartitionsPerConsumer
    """
    members = cooperative.members(**double_claim())
    expect(cooperative.plan({"topic": 4}, members).assignment, c1="topic-1 topic-3", c2="topic-2", c3="")
    assert fully_balanced(cooperative.settle({"topic": 4}, members).plan.target)


def test_cooperative_believes_the_subscription_and_takes_the_generation_from_user_data() -> None:
    """Java: CooperativeStickyAssignorTest.testMemberDataWithInconsistentData"""
    subscription = Subscription(
        topics=("topic",), owned=tps("topic-0"), user_data=struct.pack(">i", 1) + sticky_user_data(tps("topic-1"), 1)
    )
    columns = columns_of(subscription, CLAIMS_FROM_OWNED, version=1)
    assert claimed(columns) == {"topic-0"}
    assert columns.generation.tolist() == [1]


def test_cooperative_believes_that_a_member_owns_nothing() -> None:
    """Java: CooperativeStickyAssignorTest.testMemberDataWithEmptyPartitionsAndEqualGeneration
    Java: CooperativeStickyAssignorTest.testMemberDataWithEmptyPartitionsAndHigherGeneration

    edge A6 K-13715: the generation is a field of the subscription (v2), and goes before that in user data.
    """
    for older in (1, 0):
        user_data = struct.pack(">i", older)
        columns = columns_of(Subscription(topics=("topic",), generation=1, user_data=user_data), CLAIMS_FROM_OWNED)
        assert claimed(columns) == set()
        assert columns.generation.tolist() == [1]


def test_members_of_old_and_new_versions_keep_theirs_cooperatively() -> None:
    """Java: CooperativeStickyAssignorTest.testAssignorWithOldVersionSubscriptions"""
    group = Group("cooperative-sticky")
    members = group.members(
        c1=member("topic1", "topic1-0", 1, version=1),
        c2=member("topic1", "topic1-1", 1, version=1),
        c3=member("topic1", "", 1, version=2),
    )
    settled = group.settle({"topic1": 3}, members)
    expect(settled.plan.assignment, c1="topic1-0", c2="topic1-1", c3="topic1-2")
    assert settled.rounds == 1


def test_a_move_for_rack_reasons_is_a_transfer() -> None:
    """Java: CooperativeStickyAssignorTest.testUniformSubscriptionTransferOwnershipListIsRight

    edge A7 K-15170: it was granted at once, and two members owned the partition.
    """
    view = rack_fixture({"topic1": 4}, "ab", 1)
    members = {
        "consumer0": member("topic1", "topic1-0 topic1-1", 1, rack="a"),
        "consumer1": member("topic1", "topic1-2 topic1-3", 1, rack="b"),
    }
    planned = plan("cooperative-sticky", view, members)
    assert {str(part): way.target for part, way in planned.withheld.items()} == {
        "topic1-1": "consumer1",
        "topic1-2": "consumer0",
    }
    expect(planned.assignment, c0="topic1-0", c1="topic1-3")


def test_eager_members_hand_a_double_claim_over_at_once(sticky: Group) -> None:
    """Java: StickyAssignorTest.
    testAllConsumersHaveOwnedPartitionInvalidatedWhenClaimedByMultipleConsumersInSameGenerationWithEqualPartitionsPerConsumer
    """
    planned = sticky.plan({"topic": 3}, sticky.members(**double_claim()))
    expect(planned.assignment, c1="topic-1", c2="topic-2", c3="topic-0")


def test_eager_members_hand_a_double_claim_over_beside_a_free_partition(sticky: Group) -> None:
    """Java: StickyAssignorTest.
    testAllConsumersHaveOwnedPartitionInvalidatedWhenClaimedByMultipleConsumersInSameGenerationWithUnequalPartitionsPerConsumer
    """
    planned = sticky.plan({"topic": 4}, sticky.members(**double_claim()))
    expect(planned.assignment, c1="topic-1 topic-3", c2="topic-2", c3="topic-0")


@pytest.mark.parametrize("equal", [True, False])
def test_a_member_that_was_away_for_a_round_returns_with_old_claims(sticky: Group, equal: bool) -> None:
    """Java: StickyAssignorTest.testAssignmentWithMultipleGenerations1"""
    topics = {"topic": 6, "topic2": 6}
    both = "topic topic2"
    second = both if equal else "topic"
    r1 = sticky.settle(topics, sticky.members(c1=member(both), c2=member(second), c3=member(both))).plan.target
    assert sizes(r1) == [4, 4, 4]
    members = sticky.members(
        c1=member(both, map(str, r1["consumer1"]), 1), c2=member(second, map(str, r1["consumer2"]), 1)
    )
    r2 = sticky.settle(topics, members).plan.target
    assert sizes(r2) == [6, 6]
    assert r2["consumer2"] >= r1["consumer2"]
    assert not equal or r2["consumer1"] >= r1["consumer1"]
    assert r2["consumer2"] & r1["consumer3"]
    members = sticky.members(
        c2=member(second, map(str, r2["consumer2"]), 2), c3=member(both, map(str, r1["consumer3"]), 1)
    )
    r3 = sticky.settle(topics, members).plan.target
    assert sizes(r3) == [6, 6]


@pytest.mark.parametrize("equal", [True, False])
def test_two_members_return_to_one_that_held_everything(sticky: Group, equal: bool) -> None:
    """Java: StickyAssignorTest.testAssignmentWithMultipleGenerations2"""
    topics = dict.fromkeys(("topic", "topic2", "topic3"), 4)
    wants = [tuple(topics)] * 3 if equal else [("topic",), tuple(topics), ("topic", "topic2")]
    fresh = sticky.members(c1=member(wants[0]), c2=member(wants[1]), c3=member(wants[2]))
    r1 = sticky.settle(topics, fresh).plan.target
    assert sizes(r1) == [4, 4, 4]
    r2 = sticky.settle(topics, sticky.members(c2=member(wants[1], map(str, r1["consumer2"]), 1))).plan.target
    assert sizes(r2) == [12]
    assert r2["consumer2"] >= r1["consumer2"]
    members = sticky.members(
        c1=member(wants[0], map(str, r1["consumer1"]), 1),
        c2=member(wants[1], map(str, r2["consumer2"]), 2),
        c3=member(wants[2], map(str, r1["consumer3"]), 1),
    )
    assert sizes(sticky.settle(topics, members).plan.target) == [4, 4, 4]


@pytest.mark.parametrize("equal", [True, False])
def test_older_claims_that_conflict_are_dropped(sticky: Group, equal: bool) -> None:
    """Java: StickyAssignorTest.testAssignmentWithConflictingPreviousGenerations"""
    topics = dict.fromkeys(("topic", "topic2", "topic3"), 4)
    old = "topic-0 topic-1 topic-2 topic2-2 topic2-3 topic3-0" if equal else "topic-0 topic-1 topic-2 topic-3"
    newer2 = "topic-0 topic-1 topic2-0 topic2-1 topic2-2 topic2-3"
    newer3 = "topic-2 topic-3 topic3-0 topic3-1 topic3-2 topic3-3"
    members = sticky.members(
        c1=member(topics if equal else "topic", old, 1), c2=member(topics, newer2, 2), c3=member(topics, newer3, 2)
    )
    target = sticky.settle(topics, members).plan.target
    assert sizes(target) == [4, 4, 4]
    assert target["consumer2"] <= tps(newer2)
    assert target["consumer3"] <= tps(newer3)


def test_user_data_without_a_generation_is_still_read(sticky: Group) -> None:
    """Java: StickyAssignorTest.testSchemaBackwardCompatibility"""
    members = sticky.members(
        c1=member("topic", "topic-0 topic-2", 1),
        c2=member("topic", "topic-1", user_data=sticky_user_data(tps("topic-1"), None)),
        c3=member("topic"),
    )
    target = sticky.settle({"topic": 3}, members).plan.target
    assert sizes(target) == [1, 1, 1]
    assert target["consumer1"] <= tps("topic-0 topic-2")
    assert target["consumer2"] == tps("topic-1")


def test_sticky_believes_its_user_data_and_nothing_else() -> None:
    """Java: StickyAssignorTest.testMemberDataWithInconsistentData
    Java: StickyAssignorTest.testMemberDataWillHonorUserData
    """
    for said, generation, owned in (("topic-1", 1, "topic-0"), ("topic1-0 topic2-1", 0, "")):
        subscription = Subscription(
            topics=("topic",), owned=tps(owned), generation=1, user_data=sticky_user_data(tps(said), generation)
        )
        columns = columns_of(subscription, CLAIMS_FROM_USER_DATA)
        assert claimed(columns) == set(said.split())
        assert columns.generation.tolist() == [generation]


def test_members_of_old_and_new_versions_keep_theirs_eagerly() -> None:
    """Java: StickyAssignorTest.testAssignorWithOldVersionSubscriptions"""
    group = Group("sticky")
    members = group.members(
        c1=member("topic1", "topic1-0", 1, version=0),
        c2=member("topic1", "topic1-1", 1, version=1),
        c3=member("topic1", "", 1, version=2),
    )
    expect(group.settle({"topic1": 3}, members).plan.target, c1="topic1-0", c2="topic1-1", c3="topic1-2")


def test_user_data_that_cannot_be_read_claims_nothing() -> None:
    """Any prefix of sticky user data, and noise: never an exception, never a claim of a negative partition."""
    whole = sticky_user_data(tps("topic-0 topic-1"), 5)
    for data in itertools.chain((whole[:n] for n in range(len(whole))), (b"\xff" * 9, b"\x7f" * 40)):
        one = joined("sticky", {"c": Member(topics=("topic",), user_data=data)})
        columns = read(ClusterView(), one, claims_from=CLAIMS_FROM_USER_DATA)
        assert columns.generation.tolist() == [-1]
        assert all(partition >= 0 for _, _, partition in columns.others)
