"""Kafka's RoundRobinAssignorTest, all lists exact, and AbstractPartitionAssignorTest: orders, and when racks matter."""

from __future__ import annotations

import random

import pytest
from assign_cases import Group, Member, expect, joined, lists, member, tps

from holdfast.assign.columns import read
from holdfast.assign.eager import member_order
from holdfast.assign.order import utf16
from holdfast.assign.racks import racks_matter
from holdfast.model import ClusterView

GROUP = Group("roundrobin")
T12 = "topic1 topic2"


def test_a_member_without_topics_gets_nothing() -> None:
    """Java: RoundRobinAssignorTest.testOneConsumerNoTopic"""
    expect(GROUP.plan({}, GROUP.members(c=member())).assignment, c="")


def test_a_topic_that_does_not_exist_gives_nothing() -> None:
    """Java: RoundRobinAssignorTest.testOneConsumerNonexistentTopic"""
    expect(GROUP.plan({}, GROUP.members(c=member("topic"))).assignment, c="")


def test_one_member_gets_the_whole_topic() -> None:
    """Java: RoundRobinAssignorTest.testOneConsumerOneTopic"""
    expect(GROUP.plan({"topic": 3}, GROUP.members(c=member("topic"))).assignment, c="topic-0 topic-1 topic-2")


def test_what_nobody_subscribes_to_is_not_planned() -> None:
    """Java: RoundRobinAssignorTest.testOnlyAssignsPartitionsFromSubscribedTopics"""
    planned = GROUP.plan({"topic": 3, "other": 3}, GROUP.members(c=member("topic")))
    expect(planned.assignment, c="topic-0 topic-1 topic-2")


def test_one_member_gets_all_topics() -> None:
    """Java: RoundRobinAssignorTest.testOneConsumerMultipleTopics"""
    planned = GROUP.plan({"topic1": 1, "topic2": 2}, GROUP.members(c=member(T12)))
    expect(planned.assignment, c="topic1-0 topic2-0 topic2-1")


def test_the_first_of_two_gets_the_only_partition() -> None:
    """Java: RoundRobinAssignorTest.testTwoConsumersOneTopicOnePartition"""
    planned = GROUP.plan({"topic": 1}, GROUP.members(c1=member("topic"), c2=member("topic")))
    expect(planned.assignment, c1="topic-0", c2="")


def test_two_members_get_one_partition_each() -> None:
    """Java: RoundRobinAssignorTest.testTwoConsumersOneTopicTwoPartitions"""
    planned = GROUP.plan({"topic": 2}, GROUP.members(c1=member("topic"), c2=member("topic")))
    expect(planned.assignment, c1="topic-0", c2="topic-1")


def test_members_that_do_not_subscribe_are_skipped() -> None:
    """Java: RoundRobinAssignorTest.testMultipleConsumersMixedTopics

    edge A18 librdkafka 2121, 3024, 3159: unequal subscriptions looped or crashed.
    """
    members = GROUP.members(c1=member("topic1"), c2=member(T12), c3=member("topic1"))
    planned = GROUP.plan({"topic1": 3, "topic2": 2}, members)
    expect(planned.assignment, c1="topic1-0", c2="topic1-1 topic2-0 topic2-1", c3="topic1-2")


def test_the_cursor_goes_on_from_topic_to_topic() -> None:
    """Java: RoundRobinAssignorTest.testTwoDynamicConsumersTwoTopicsSixPartitions"""
    planned = GROUP.plan({"topic1": 3, "topic2": 3}, GROUP.members(c1=member(T12), c2=member(T12)))
    expect(planned.assignment, c1="topic1-0 topic1-2 topic2-1", c2="topic1-1 topic2-0 topic2-2")


@pytest.mark.parametrize("second", ["instance2", None], ids=["two static", "one static"])
def test_static_members_come_first_by_instance_id(second: str | None) -> None:
    """Java: RoundRobinAssignorTest.testTwoStaticConsumersTwoTopicsSixPartitions
    Java: RoundRobinAssignorTest.testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions
    """
    members = {"consumer-b": member(T12, instance="instance1"), "consumer-a": member(T12, instance=second)}
    assert lists(GROUP.plan({"topic1": 3, "topic2": 3}, members).assignment) == {
        "consumer-a": ["topic1-1", "topic2-0", "topic2-2"],
        "consumer-b": ["topic1-0", "topic1-2", "topic2-1"],
    }


def test_static_members_keep_theirs_when_a_dynamic_one_is_replaced() -> None:
    """Java: RoundRobinAssignorTest.testStaticMemberRoundRobinAssignmentPersistent"""
    static = {f"c{i}": member(T12, instance=f"instance{i}") for i in (1, 2, 3)}
    for last in ("c4", "c5"):
        planned = GROUP.plan({"topic1": 3, "topic2": 3}, GROUP.members(**static, **{last: member(T12)}))
        rest = {"c1": "topic1-0 topic2-1", "c2": "topic1-1 topic2-2", "c3": "topic1-2"}
        expect(planned.assignment, **rest, **{last: "topic2-0"})


def test_static_members_keep_theirs_under_new_member_ids() -> None:
    """Java: RoundRobinAssignorTest.testStaticMemberRoundRobinAssignmentPersistentAfterMemberIdChanges"""
    wanted = lists(
        {
            "instance1": tps("topic1-0 topic1-3 topic2-1 topic2-4"),
            "instance2": tps("topic1-1 topic1-4 topic2-2"),
            "instance3": tps("topic1-2 topic2-0 topic2-3"),
        }
    )
    for ids in (("consumer1", "consumer2", "consumer3"), ("consumer1", "consumer5", "consumer4")):
        members = {name: member(T12, instance=f"instance{i}") for i, name in enumerate(ids, 1)}
        planned = GROUP.plan({"topic1": 5, "topic2": 5}, members)
        assert lists({str(members[name].instance): given for name, given in planned.assignment.items()}) == wanted


def ordered(instances: dict[str, str | None]) -> list[str]:
    members = {name: Member(topics=("t",), instance=instance) for name, instance in instances.items()}
    columns = read(ClusterView(), joined("range", members))
    return [columns.members[m] for m in member_order(columns)]


def test_members_are_ordered_static_first() -> None:
    """Java: AbstractPartitionAssignorTest.testMemberInfoSortingWithoutGroupInstanceId
    Java: AbstractPartitionAssignorTest.testMemberInfoSortingWithAllGroupInstanceId
    Java: AbstractPartitionAssignorTest.testMemberInfoSortingSomeGroupInstanceId
    """
    assert ordered({"c": None, "a": None, "b": None}) == ["a", "b", "c"]
    assert ordered({"a": "y", "b": "z", "c": "x"}) == ["c", "a", "b"]
    assert ordered({"a": None, "b": "y", "c": "x"}) == ["c", "b", "a"]


def test_a_hundred_members_are_ordered_static_first() -> None:
    """Java: AbstractPartitionAssignorTest.testMergeSortManyMemberInfo"""
    rng = random.Random(5)
    for _ in range(10):
        numbers = rng.sample(range(10_000), 100)
        instances = {f"m{n}": f"i{10_000 - n}" if rng.random() < 0.5 else None for n in numbers}
        static = sorted((name for name in instances if instances[name]), key=lambda name: str(instances[name]))
        assert ordered(instances) == static + sorted(name for name in instances if not instances[name])


def test_members_are_ordered_as_java_orders_utf16() -> None:
    """U+FF5E sorts before U+1F600 as a code point, and after it in UTF-16, where the latter starts with 0xD83D."""
    assert utf16("\U0001f600") < utf16("～")
    assert ordered({"～": None, "\U0001f600": None}) == ["\U0001f600", "～"]


@pytest.mark.parametrize(
    ("members", "everywhere", "spots", "matters", "preferred"),
    [
        ("", "", "all", False, False),
        ("", "abc", "all", False, False),
        ("abc", "", "none", False, False),
        ("d", "abc", "all", False, False),
        ("abc", "abc", "all", False, True),
        ("ab", "abc", "all", False, True),
        ("ad", "abc", "all", False, True),
        ("abc", "abc", "some", True, True),
        ("ab", "abc", "some", True, True),
        ("ad", "abc", "some", True, True),
    ],
)
def test_racks_matter_when_some_partition_is_not_everywhere(
    members: str, everywhere: str, spots: str, matters: bool, preferred: bool
) -> None:
    """Java: AbstractPartitionAssignorTest.testUseRackAwareAssignment"""
    racks = {
        "all": [frozenset(everywhere)] * 4,
        "none": [],
        "some": [frozenset("abc"[i % 3]) for i in range(4)],
    }[spots]
    assert racks_matter(set(members), frozenset(everywhere), racks) is matters
    assert racks_matter(set(members), frozenset(everywhere), racks, prefer=True) is preferred
