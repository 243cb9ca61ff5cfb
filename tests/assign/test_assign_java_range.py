"""Kafka's RangeAssignorTest: all lists exact."""

from __future__ import annotations

import pytest
from assign_cases import RACK_CONFIGS, Group, Member, RackRow, expect, far, lists, member, plan, rack_fixture, tps

from holdfast.model import ClusterView, TopicPartition

T12 = "topic1 topic2"


@pytest.fixture(params=RACK_CONFIGS)
def group(request: pytest.FixtureRequest) -> Group:
    return Group("range", str(request.param))


def test_a_member_without_topics_gets_nothing(group: Group) -> None:
    """Java: RangeAssignorTest.testOneConsumerNoTopic"""
    expect(group.plan({}, group.members(c1=member())).assignment, c1="")


def test_a_topic_that_does_not_exist_gives_nothing(group: Group) -> None:
    """Java: RangeAssignorTest.testOneConsumerNonexistentTopic"""
    expect(group.plan({}, group.members(c1=member("topic1"))).assignment, c1="")


def test_one_member_gets_the_whole_topic(group: Group) -> None:
    """Java: RangeAssignorTest.testOneConsumerOneTopic"""
    expect(group.plan({"topic1": 3}, group.members(c1=member("topic1"))).assignment, c1="topic1-0 topic1-1 topic1-2")


def test_what_nobody_subscribes_to_is_not_planned(group: Group) -> None:
    """Java: RangeAssignorTest.testOnlyAssignsPartitionsFromSubscribedTopics"""
    planned = group.plan({"topic1": 3, "other": 3}, group.members(c1=member("topic1")))
    expect(planned.assignment, c1="topic1-0 topic1-1 topic1-2")


def test_one_member_gets_all_topics(group: Group) -> None:
    """Java: RangeAssignorTest.testOneConsumerMultipleTopics"""
    planned = group.plan({"topic1": 1, "topic2": 2}, group.members(c1=member(T12)))
    expect(planned.assignment, c1="topic1-0 topic2-0 topic2-1")


def test_the_first_of_two_gets_the_only_partition(group: Group) -> None:
    """Java: RangeAssignorTest.testTwoConsumersOneTopicOnePartition"""
    planned = group.plan({"topic1": 1}, group.members(c1=member("topic1"), c2=member("topic1")))
    expect(planned.assignment, c1="topic1-0", c2="")


def test_two_members_get_one_partition_each(group: Group) -> None:
    """Java: RangeAssignorTest.testTwoConsumersOneTopicTwoPartitions"""
    planned = group.plan({"topic1": 2}, group.members(c1=member("topic1"), c2=member("topic1")))
    expect(planned.assignment, c1="topic1-0", c2="topic1-1")


def test_each_topic_is_cut_among_its_own_members(group: Group) -> None:
    """Java: RangeAssignorTest.testMultipleConsumersMixedTopics

    edge A22 sarama 2245: range differed from the reference.
    """
    members = group.members(c1=member("topic1"), c2=member(T12), c3=member("topic1"))
    planned = group.plan({"topic1": 3, "topic2": 2}, members)
    expect(planned.assignment, c1="topic1-0", c2="topic1-1 topic2-0 topic2-1", c3="topic1-2")


def test_the_first_members_get_the_longer_ranges(group: Group) -> None:
    """Java: RangeAssignorTest.testTwoConsumersTwoTopicsSixPartitions"""
    planned = group.plan({"topic1": 3, "topic2": 3}, group.members(c1=member(T12), c2=member(T12)))
    expect(planned.assignment, c1="topic1-0 topic1-1 topic2-0 topic2-1", c2="topic1-2 topic2-2")


@pytest.mark.parametrize("second", ["instance2", None], ids=["two static", "one static"])
def test_static_members_come_first_by_instance_id(group: Group, second: str | None) -> None:
    """Java: RangeAssignorTest.testTwoStaticConsumersTwoTopicsSixPartitions
    Java: RangeAssignorTest.testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions
    """
    members = {"consumer-b": member(T12, instance="instance1"), "consumer-a": member(T12, instance=second)}
    assert lists(group.plan({"topic1": 3, "topic2": 3}, members).assignment) == {
        "consumer-a": ["topic1-2", "topic2-2"],
        "consumer-b": ["topic1-0", "topic1-1", "topic2-0", "topic2-1"],
    }


def test_static_members_keep_theirs_when_a_dynamic_one_is_replaced(group: Group) -> None:
    """Java: RangeAssignorTest.testStaticMemberRangeAssignmentPersistent"""
    static = {f"c{i}": member(T12, instance=f"instance{i}") for i in (1, 2, 3)}
    topics = {"topic1": 5, "topic2": 4}
    expected = {
        "c1": "topic1-0 topic1-1 topic2-0",
        "c2": "topic1-2 topic2-1",
        "c3": "topic1-3 topic2-2",
    }
    for last in ("c4", "c5"):
        planned = group.plan(topics, group.members(**static, **{last: member(T12)}))
        expect(planned.assignment, **expected, **{last: "topic1-4 topic2-3"})


def by_instance(members: dict[str, Member], assignment: dict[str, frozenset[TopicPartition]]) -> dict[str, list[str]]:
    return lists({str(members[name].instance): given for name, given in assignment.items()})


NEW_IDS = {"consumer1": "consumer1", "consumer2": "consumer5", "consumer3": "consumer4"}


def test_static_members_keep_theirs_under_new_member_ids(group: Group) -> None:
    """Java: RangeAssignorTest.testStaticMemberRangeAssignmentPersistentAfterMemberIdChanges"""
    members = {f"consumer{i}": member(T12, instance=f"instance{i}") for i in (1, 2, 3)}
    topics = {"topic1": 5, "topic2": 5}
    wanted = lists(
        {
            "instance1": tps("topic1-0 topic1-1 topic2-0 topic2-1"),
            "instance2": tps("topic1-2 topic1-3 topic2-2 topic2-3"),
            "instance3": tps("topic1-4 topic2-4"),
        }
    )
    for people in (members, {NEW_IDS[name]: one for name, one in members.items()}):
        assert by_instance(people, group.plan(topics, people).assignment) == wanted


def test_static_members_near_their_racks_keep_theirs_under_new_member_ids() -> None:
    """Java: RangeAssignorTest.testRackAwareStaticMemberRangeAssignmentPersistentAfterMemberIdChanges"""
    members = {f"consumer{i}": member(T12, instance=f"instance{i}", rack="abc"[i - 1]) for i in (1, 2, 3)}
    each = rack_fixture({"topic1": 5}, "abcabc", 2).topics["topic1"]
    view = ClusterView({"topic1": each, "topic2": each})
    wanted = lists(
        {
            "instance1": tps("topic1-0 topic1-2 topic2-0 topic2-2"),
            "instance2": tps("topic1-1 topic1-3 topic2-1 topic2-3"),
            "instance3": tps("topic1-4 topic2-4"),
        }
    )
    for people in (members, {NEW_IDS[name]: one for name, one in members.items()}):
        assert by_instance(people, plan("range", view, people).assignment) == wanted


NONE3 = (None, None, None)
WITHOUT_RACKS: list[RackRow] = [
    # replicas, racks of brokers, racks of members, prefer racks, far away: none of these may change the plain ranges
    (3, NONE3, "abc", False, None),
    (3, "abc", NONE3, False, None),
    (3, "abc", "abc", False, 0),
    (4, "abcd", "abc", False, 0),
    (3, "abc", "def", False, None),
    (3, "abc", (None, "e", "f"), False, None),
    (3, "abc", "abc", True, 0),
]


def check(
    topics: dict[str, int],
    wants: tuple[str, ...],
    row: RackRow,
    expected: list[str],
) -> None:
    replicas, brokers, racks, prefer, mismatches = row
    view = rack_fixture(topics, brokers, replicas)
    members = {f"consumer{i}": member([f"t{k}" for k in wants[i].split()], rack=rack) for i, rack in enumerate(racks)}
    planned = plan("range", view, members, prefer_racks=prefer)
    expect(planned.assignment, **{f"c{i}": text for i, text in enumerate(expected)})
    if mismatches is not None:
        assert far(view, members, planned.assignment) == mismatches


SIX_SEVEN_TWO = {"t1": 6, "t2": 7, "t3": 2}
ALL = ("1 2 3",) * 3
SOME = ("1 2 3", "1 2 3", "1 3")


def test_racks_with_equal_subscriptions() -> None:
    """Java: RangeAssignorTest.testRackAwareAssignmentWithUniformSubscription"""
    plain = [
        "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0",
        "t1-2, t1-3, t2-3, t2-4, t3-1",
        "t1-4, t1-5, t2-5, t2-6",
    ]
    for row in [*WITHOUT_RACKS, (3, "ab", "abc", False, 4)]:
        check(SIX_SEVEN_TWO, ALL, row, plain)
    near = [
        "t1-0, t1-3, t2-0, t2-3, t2-6",
        "t1-1, t1-4, t2-1, t2-4, t3-0",
        "t1-2, t1-5, t2-2, t2-5, t3-1",
    ]
    check(SIX_SEVEN_TWO, ALL, (1, "abc", "abc", False, 0), near)
    nearer = [
        "t1-0, t1-2, t2-0, t2-2, t2-3, t3-1",
        "t1-1, t1-3, t2-1, t2-4, t3-0",
        "t1-4, t1-5, t2-5, t2-6",
    ]
    check(SIX_SEVEN_TWO, ALL, (2, "abc", "abc", False, 1), nearer)


def test_racks_with_differing_subscriptions() -> None:
    """Java: RangeAssignorTest.testRackAwareAssignmentWithNonEqualSubscription"""
    plain = [
        "t1-0, t1-1, t2-0, t2-1, t2-2, t2-3, t3-0",
        "t1-2, t1-3, t2-4, t2-5, t2-6, t3-1",
        "t1-4, t1-5",
    ]
    for row in [*WITHOUT_RACKS, (3, "ab", "abc", False, 2)]:
        check(SIX_SEVEN_TWO, SOME, row, plain)
    one = ["t1-0, t1-3, t2-0, t2-2, t2-3, t2-6", "t1-1, t1-4, t2-1, t2-4, t2-5, t3-0", "t1-2, t1-5, t3-1"]
    check(SIX_SEVEN_TWO, SOME, (1, "abc", "abc", False, 2), one)
    two = ["t1-0, t1-2, t2-0, t2-2, t2-3, t2-5, t3-1", "t1-1, t1-3, t2-1, t2-4, t2-6, t3-0", "t1-4, t1-5"]
    check(SIX_SEVEN_TWO, SOME, (2, "abc", "abc", False, 0), two)


FIVES = {"t1": 5, "t2": 5, "t3": 5}


def test_copartitioning_goes_before_racks() -> None:
    """Java: RangeAssignorTest.testRackAwareAssignmentWithUniformPartitions

    edge A10 K-14891: co-partitioned topics are decided together.
    """
    plain = [
        "t1-0, t1-1, t2-0, t2-1, t3-0, t3-1",
        "t1-2, t1-3, t2-2, t2-3, t3-2, t3-3",
        "t1-4, t2-4, t3-4",
    ]
    more = [(1, "abc", "abc", False, 10), (2, "abc", "abc", False, 5), (3, "ab", "abc", False, 3)]
    for row in [*WITHOUT_RACKS, *more]:
        check(FIVES, ALL, row, plain)


def test_copartitioning_of_the_topics_that_have_the_same_members() -> None:
    """Java: RangeAssignorTest.testRackAwareAssignmentWithUniformPartitionsNonEqualSubscription"""
    plain = [
        "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0, t3-1",
        "t1-2, t1-3, t2-3, t2-4, t3-2, t3-3",
        "t1-4, t3-4",
    ]
    for row in [*WITHOUT_RACKS, (3, "ab", "abc", False, 2)]:
        check(FIVES, SOME, row, plain)
    one = [
        "t1-0, t1-1, t2-0, t2-1, t2-4, t3-0, t3-1",
        "t1-2, t1-3, t2-2, t2-3, t3-2, t3-3",
        "t1-4, t3-4",
    ]
    check(FIVES, SOME, (1, "abc", "abc", False, 9), one)
    two = ["t1-2, t2-0, t2-1, t2-3, t3-2", "t1-0, t1-3, t2-2, t2-4, t3-0, t3-3", "t1-1, t1-4, t3-1, t3-4"]
    check(FIVES, SOME, (2, "abc", "abc", False, 0), two)


PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}


def test_pairs_of_copartitioned_topics() -> None:
    """Java: RangeAssignorTest.testRackAwareAssignmentWithCoPartitioning"""
    wants = ("1 2", "1 2", "3 4", "3 4")
    plain = [
        "t1-0, t1-1, t1-2, t2-0, t2-1, t2-2",
        "t1-3, t1-4, t1-5, t2-3, t2-4, t2-5",
        "t3-0, t4-0",
        "t3-1, t4-1",
    ]
    check(PAIRS, wants, (3, "ab", "abba", False, None), plain)
    check(PAIRS, wants, (2, "ab", "abba", False, 0), plain)
    near = ["t1-0 t1-2 t1-4 t2-0 t2-2 t2-4", "t1-1 t1-3 t1-5 t2-1 t2-3 t2-5", "t3-1 t4-1", "t3-0 t4-0"]
    check(PAIRS, wants, (1, "ab", "abba", False, 0), near)
    everything = ("1 2 3 4",) * 4
    plain = ["t1-0 t1-1 t2-0 t2-1 t3-0 t4-0", "t1-2 t1-3 t2-2 t2-3 t3-1 t4-1", "t1-4 t2-4", "t1-5 t2-5"]
    check(PAIRS, everything, (3, "ab", "abba", False, None), plain)
    check(PAIRS, everything, (2, "ab", "abba", False, 0), plain)
    near = ["t1-0 t1-2 t2-0 t2-2 t3-0 t4-0", "t1-1 t1-3 t2-1 t2-3 t3-1 t4-1", "t1-5 t2-5", "t1-4 t2-4"]
    check(PAIRS, everything, (1, "ab", "abba", False, 0), near)
    three = ["t1-0 t1-3 t2-0 t2-3 t3-0 t4-0", "t1-1 t1-4 t2-1 t2-4 t3-1 t4-1", "t1-2 t2-2", "t1-5 t2-5"]
    check(PAIRS, everything, (1, "abc", "abba", False, 6), three)


def test_three_pairs_of_copartitioned_topics_and_three_that_do_not_exist() -> None:
    """Java: RangeAssignorTest.testCoPartitionedAssignmentWithSameSubscription"""
    topics = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}
    wants = ("1 2 3 4 5 6 7 8 9",) * 3
    plain = [
        "t1-0 t1-1 t2-0 t2-1 t3-0 t4-0 t5-0 t5-1 t6-0 t6-1",
        "t1-2 t1-3 t2-2 t2-3 t3-1 t4-1 t5-2 t6-2",
        "t1-4 t1-5 t2-4 t2-5 t5-3 t6-3",
    ]
    check(topics, wants, (3, NONE3, "abc", False, None), plain)
    check(topics, wants, (3, "abc", "abc", True, 0), plain)
    near = [
        "t1-0 t1-2 t2-0 t2-2 t3-0 t4-0 t5-1 t6-1",
        "t1-1 t1-3 t2-1 t2-3 t3-1 t4-1 t5-2 t6-2",
        "t1-4 t1-5 t2-4 t2-5 t5-0 t5-3 t6-0 t6-3",
    ]
    check(topics, wants, (2, "abc", "abc", True, 0), near)
