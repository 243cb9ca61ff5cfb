"""The leader's round: what it withholds, gives back, refuses and survives. KIP-429 2a–2f, and others' traps."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from assign_cases import Member, cluster, expect, fed_back, joined, lists, member, plan, settle, sizes, tp, tps

from holdfast.assign import STRATEGIES, by_name, plan_round
from holdfast.model import (
    Assignment,
    Assignor,
    ClusterView,
    GroupMetadata,
    HoldfastError,
    JoinedMember,
    Membership,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    TopicView,
)
from holdfast.model.consumer_protocol import decode_assignment, encode_subscription

COOPERATIVE = "cooperative-sticky"
FOUR = {f"consumer{i}": member("t", f"t-{2 * i} t-{2 * i + 1}", 4) for i in range(3)} | {"consumer3": member("t")}


def test_a_moving_partition_is_withheld_then_given() -> None:
    """2c and 2d: maybe-revoking in the first round, ready to migrate in the second."""
    view = cluster(t=6)
    first = plan(COOPERATIVE, view, FOUR)
    assert first.transferring
    assert first.rounds == 2
    (partition,) = first.withheld
    way = first.withheld[partition]
    assert way.target == "consumer3"
    assert partition not in first.assignment[str(way.source)]
    assert first.revoked == ((partition, way.source),)
    assert first.taker(partition) is None
    second = plan(COOPERATIVE, view, fed_back(FOUR, first, 5))
    assert partition in second.assignment["consumer3"]
    assert second.taker(partition) == "consumer3"
    assert second.taker(TopicPartition("t", 99)) is None
    assert second.taker(TopicPartition("t", -1)) is None
    assert second.taker(TopicPartition("unknown", 0)) is None
    assert not second.transferring


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_eager_strategies_withhold_nothing(strategy: str) -> None:
    planned = plan(strategy, cluster(t=6), FOUR)
    assert not planned.withheld
    assert planned.assignment == planned.target
    assert planned.rounds == 1


def test_partitions_of_a_topic_the_leader_cannot_see_go_back_to_who_holds_them() -> None:
    """2e: the leader's metadata may be old. Only as long as the member still subscribes to the topic, and on no tie."""
    members = {
        "consumer0": member("t new", "t-0 new-0 gone-1", 3),
        "consumer1": member("t new", "t-1 new-1 new-2", 3),
        "consumer2": member("t new", "new-2 new-0", 2),
        "consumer3": member("t new", "new-3", 3),
        "consumer4": member("t new", "new-3", 3),
    }
    planned = plan_round(COOPERATIVE, cluster(t=2), joined(COOPERATIVE, members))
    assert planned.assignment["consumer0"] == tps("t-0 new-0")
    assert planned.assignment["consumer1"] == tps("t-1 new-1 new-2")
    assert planned.assignment["consumer2"] == frozenset()
    assert planned.assignment["consumer3"] | planned.assignment["consumer4"] == frozenset()
    for name, data in planned.encode().items():
        assert decode_assignment(data).partitions == planned.assignment[name]
    assert (tp("gone-1"), "consumer0") in planned.revoked
    assert (tp("new-0"), "consumer0") not in planned.revoked
    strict = plan_round(COOPERATIVE, cluster(t=2), joined(COOPERATIVE, members), return_unknown=False)
    assert strict.assignment["consumer1"] == tps("t-1")


def test_a_partition_whose_holder_unsubscribed_is_withheld_too() -> None:
    """The claim says that it is still held, whatever the member wants from now on."""
    members = {"consumer0": member("u", "t-0", 2), "consumer1": member("t", "t-1", 2)}
    planned = plan(COOPERATIVE, cluster(t=2, u=1), members)
    expect(planned.assignment, c0="u-0", c1="t-1")
    expect(planned.target, c0="u-0", c1="t-0 t-1")
    assert settle(COOPERATIVE, cluster(t=2, u=1), members).rounds == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_draining_member_is_planned_nothing_that_others_can_take(strategy: str) -> None:
    members = {
        "consumer0": member("t own", "t-0 own-0", 1),
        "consumer1": member("t", "t-1", 1),
        "consumer2": member("t", "t-2", 1),
    }
    planned = plan(strategy, cluster(t=3, own=1), members, draining=["consumer0", "nobody"])
    assert planned.target["consumer0"] == tps("own-0")
    assert sorted(map(str, planned.target["consumer1"] | planned.target["consumer2"])) == ["t-0", "t-1", "t-2"]
    if strategy == COOPERATIVE:
        assert tp("t-0") in planned.withheld
        assert planned.target["consumer1"] >= tps("t-1")


def test_when_everybody_drains_everybody_keeps_working() -> None:
    members = {"consumer0": member("t", "t-0", 1), "consumer1": member("t", "t-1", 1)}
    planned = plan(COOPERATIVE, cluster(t=2), members, draining=members)
    expect(planned.assignment, c0="t-0", c1="t-1")


def test_a_doubly_claimed_partition_is_withheld_even_from_its_claimants() -> None:
    """edge A25: Java's general path gives it back to one of the two at once, while the other still works on it."""
    members = {
        "consumer0": member("t", "t-0", 3),
        "consumer1": member("t", "t-0", 3),
        "consumer2": member("u", "u-0", 3),
    }
    planned = plan(COOPERATIVE, cluster(t=1, u=1), members)
    expect(planned.assignment, c0="", c1="", c2="u-0")
    assert planned.revoked == ((tp("t-0"), "consumer0"), (tp("t-0"), "consumer1"))
    assert planned.moved == {}
    assert sizes(settle(COOPERATIVE, cluster(t=1, u=1), members).plan.target) == [0, 1, 1]


def test_two_old_claims_do_not_spoil_a_newer_sole_one() -> None:
    """edge A4 K-14639: Java taints the partition if it meets the two old claims first."""
    members = {
        "consumer0": member("t", "t-0", 1),
        "consumer1": member("t", "t-0", 1),
        "consumer2": member("t", "t-0", 2),
    }
    expect(plan(COOPERATIVE, cluster(t=1), members).assignment, c0="", c1="", c2="t-0")


def test_a_stale_claimant_that_is_to_get_it_waits_for_the_holder() -> None:
    """edge A5 K-13406: the newest claim decides who must revoke, and a plan is never refused for stale ones."""
    members = {"consumer0": member("t", "t-0 t-1 t-2 t-3", 5), "consumer1": member("t", "t-2 t-3", 4)}
    planned = plan(COOPERATIVE, cluster(t=4), members)
    assert sizes(planned.target) == [2, 2]
    expect(planned.assignment, c0="t-0 t-1", c1="")
    assert {part for part, who in planned.revoked if who == "consumer1"} == tps("t-2 t-3")


def test_a_member_that_forgot_its_partitions_gets_as_many_again() -> None:
    """edge A20 franz-go dcfcacb: owned partitions not attached on a rejoin. Nothing moves among the others."""
    settled = settle(COOPERATIVE, cluster(t=9), {f"consumer{i}": member("t") for i in range(3)})
    forgetful = fed_back(settled.members, settled.plan, 3, consumer1=member("t"))
    planned = plan(COOPERATIVE, cluster(t=9), forgetful)
    assert planned.target == settled.plan.target
    assert not planned.transferring


def test_a_live_move_from_range_to_cooperative_strands_nothing() -> None:
    """edge A21 franz-go 686: members that still claim what range gave them get everything planned in two rounds."""
    view = cluster(t=5, u=5)
    ranged = plan("range", view, {f"consumer{i}": member("t u") for i in range(3)})
    members = {name: Member(topics=("t", "u"), owned=given, generation=7) for name, given in ranged.target.items()}
    settled = settle(COOPERATIVE, view, members)
    assert sizes(settled.plan.target) == [3, 3, 4]


def test_every_member_is_answered_even_with_nothing() -> None:
    """edge A23 sarama 2290: a member with nothing was left out of SyncGroup."""
    for strategy in STRATEGIES:
        members = {"consumer0": member("t"), "consumer1": member("t"), "consumer2": member(), "consumer3": member("x")}
        encoded = plan(strategy, cluster(t=1), members).encode()
        assert set(encoded) == set(members)
        assert decode_assignment(encoded["consumer2"]) == Assignment()
        assert plan(strategy, cluster(t=1), {}).encode() == {}


def test_hostile_members_do_not_disturb_the_plan() -> None:
    """edge A19 franz-go: negative and huge partitions, malformed bytes and doubled ids crashed the leader.

    edge A22 sarama 2285: one id twice, or one topic twice in a subscription, counted double.
    """
    view = cluster(t=4, u=2)
    good = {"consumer0": member("t u", "t-0", 3), "consumer1": member("t u", "t-1", 3)}
    hostile = member("t u t u t", [f"t-{n}" for n in (2, 4, 99, 2**31 - 1)] + ["other-0"], 3)
    hostile = Member(
        topics=hostile.topics,
        owned=hostile.owned | {TopicPartition("t", -1), TopicPartition("u", -(2**31))},
        generation=3,
    )
    people = joined(COOPERATIVE, {**good, "consumer2": hostile})
    noise = [
        JoinedMember(member_id="consumer3", metadata=data)
        for data in (b"", b"\xff" * 40, b"\0\1\0\0\0\1\0\1\xff\xff\xff\xff\xff", b"\0\3\x7f\xff\xff\xff")
    ]
    for broken in noise:
        planned = plan_round(COOPERATIVE, view, [*people, broken, people[0], broken])
        assert planned.malformed == ["consumer3"]
        assert planned.assignment["consumer3"] == frozenset()
        assert sizes({name: planned.target[name] for name in ("consumer0", "consumer1", "consumer2")}) == [2, 2, 2]
        assert tps("t-2") <= planned.assignment["consumer2"]
        assert {str(part) for part, _ in planned.revoked} == {"t-4", "t-99", "t-2147483647", "other-0"}


def test_a_member_whose_topics_are_not_text_is_not_taken_for_the_last_one() -> None:
    """Symptom: the unreadable member was planned partitions. Cause: its row was -1, which is also the last row.

    Invariant: wherever it sorts, a malformed member subscribes to nothing.
    """
    broken = b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff"
    good = encode_subscription(Subscription(topics=("t",)))
    members = [
        JoinedMember(member_id=name, metadata=data) for name, data in (("a", broken), ("b", good), ("c", broken))
    ]
    planned = plan_round(COOPERATIVE, cluster(t=2), members)
    assert planned.malformed == ["a", "c"]
    assert lists(planned.assignment) == {"a": [], "b": ["t-0", "t-1"], "c": []}


def test_of_two_members_with_one_id_the_order_does_not_decide() -> None:
    one, two = (
        JoinedMember(member_id="m", metadata=encode_subscription(Subscription(topics=(topic,)))) for topic in "tu"
    )
    a = plan_round(COOPERATIVE, cluster(t=1, u=1), [one, two]).encode()
    assert a == plan_round(COOPERATIVE, cluster(t=1, u=1), [two, one]).encode()


def test_a_topic_recreated_with_fewer_partitions_keeps_what_still_exists() -> None:
    members = {"consumer0": member("t", "t-0 t-1 t-5", 2), "consumer1": member("t", "t-2 t-3 t-4", 2)}
    settled = settle(COOPERATIVE, cluster(t=4), members)
    expect(settled.plan.target, c0="t-0 t-1", c1="t-2 t-3")


def test_more_topics_than_members_are_all_planned() -> None:
    topics = {f"t{i}": 1 for i in range(30)}
    for strategy in STRATEGIES:
        planned = plan(
            strategy, ClusterView({t: TopicView(1) for t in topics}), {"a": member(topics), "b": member(topics)}
        )
        assert sum(sizes(planned.target)) == 30


def test_planning_keeps_no_state() -> None:
    """edge A14 K-5277, edge A24 aiokafka 1175, 1176: no call remembers another, no consumer knows another's state.

    Java's assignor remembers the highest generation it ever saw; after a group is deleted and made anew all look stale.
    """
    view = cluster(t=4)
    old = {"consumer0": member("t", "t-0 t-1", 900), "consumer1": member("t", "t-2 t-3", 900)}
    new = {"consumer0": member("t", "t-2 t-3", 1), "consumer1": member("t", "t-0 t-1", 1)}
    expected = plan(COOPERATIVE, view, new).encode()
    plan(COOPERATIVE, view, old)
    assert plan(COOPERATIVE, view, new).encode() == expected
    a, b = by_name("sticky"), by_name("sticky")
    a.on_assignment(Assignment(partitions=tps("t-0")), GroupMetadata("m", 3))
    assert b.subscription_user_data(frozenset({"t"}), frozenset(), -1) is None
    said = [assignor.subscription_user_data(frozenset({"t"}), tps("t-1"), 5) for assignor in (a, b)]
    assert said[0] == said[1] is not None


def test_built_in_assignors_follow_the_protocol_of_custom_ones() -> None:
    for name in STRATEGIES:
        assignor = by_name(name)
        assert isinstance(assignor, Assignor)
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols
        assert cooperative is (name == COOPERATIVE)
        assert RebalanceProtocol.EAGER in assignor.protocols
        members = {"a": Subscription(topics=("t",), instance_id="i"), "b": Subscription(topics=("t",))}
        answer = assignor.assign(cluster(t=3), members)
        assert lists({m: given.partitions for m, given in answer.items()}) == lists(
            plan(name, cluster(t=3), {"a": member("t", instance="i"), "b": member("t")}).target
        )
        assert plan_round(assignor, cluster(t=3), joined(name, {"a": member("t")})).strategy == name
    for unknown in ("", "Range", "sticky "):
        with pytest.raises(HoldfastError) as caught:
            by_name(unknown)
        assert caught.value.code == "UNKNOWN_STRATEGY"
        with pytest.raises(HoldfastError):
            plan_round(unknown, cluster(t=1), [])


class Mine:
    """A custom assignor that answers what it is told to."""

    name = "mine"
    version = 1

    def __init__(self, answer: Mapping[str, Assignment], *protocols: RebalanceProtocol) -> None:
        self.answer = answer
        self.protocols = protocols or (RebalanceProtocol.COOPERATIVE,)
        self.seen: dict[str, Subscription] = {}

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> None:
        return None

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        self.seen = dict(members)
        return self.answer

    def on_assignment(self, assignment: Assignment, membership: Membership) -> None:
        pass


TWO = {
    "consumer0": member("t", "t-0 t-1 t-9 x-1", 3, rack="a", user_data=b"\0\0\0\3hello"),
    "consumer1": member("t u", "", 3, instance="i"),
}
SWAP = {"consumer0": Assignment(partitions=tps("t-0"), user_data=b"hi"), "consumer1": Assignment(partitions=tps("t-1"))}


def test_a_custom_assignor_gets_subscriptions_and_its_moves_are_withheld() -> None:
    mine = Mine(SWAP)
    planned = plan_round(mine, cluster(t=2, u=1), joined("mine", TWO))
    assert mine.seen["consumer0"] == Subscription(
        topics=("t",), owned=tps("t-0 t-1 t-9 x-1"), generation=3, rack="a", user_data=b"\0\0\0\3hello"
    )
    assert mine.seen["consumer1"] == Subscription(topics=("t", "u"), generation=3, instance_id="i")
    expect(planned.assignment, c0="t-0", c1="")
    expect(planned.target, c0="t-0", c1="t-1")
    encoded = {name: decode_assignment(data) for name, data in planned.encode().items()}
    assert encoded["consumer0"].user_data == b"hi"
    told = {name: decode_assignment(data) for name, data in planned.encode({"consumer1": b"note"}).items()}
    assert (told["consumer0"].user_data, told["consumer1"].user_data) == (b"hi", b"note")
    assert planned.user_data("consumer0") == b"\0\0\0\3hello"
    assert planned.user_data("consumer1") is None
    assert planned.user_data("nobody") is None


def test_an_eager_custom_assignor_hands_over_at_once() -> None:
    planned = plan_round(Mine(SWAP, RebalanceProtocol.EAGER), cluster(t=2, u=1), joined("mine", TWO))
    assert planned.assignment == planned.target


def test_a_custom_assignor_sees_a_draining_member_without_the_topics_that_others_take() -> None:
    mine = Mine({})
    plan_round(mine, cluster(t=2, u=1), joined("mine", TWO), frozenset({"consumer1"}))
    assert mine.seen["consumer1"].topics == ("u",)
    assert mine.seen["consumer0"].topics == ("t",)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"stranger": "t-0"}, "not a member"),
        ({"consumer0": "u-0"}, "does not subscribe"),
        ({"consumer0": "missing-0"}, "does not subscribe"),
        ({"consumer0": "t-2"}, "does not exist"),
        ({"consumer0": "t-0", "consumer1": "t-0"}, "both"),
    ],
)
def test_a_custom_plan_that_would_break_the_group_is_refused_by_name(answer: dict[str, str], why: str) -> None:
    wrong = Mine({name: Assignment(partitions=tps(text)) for name, text in answer.items()})
    with pytest.raises(HoldfastError, match=why) as caught:
        plan_round(wrong, cluster(t=2, u=1), joined("mine", TWO))
    assert caught.value.code == "INVALID_PLAN"
    assert "'mine'" in caught.value.what


def test_a_custom_assignor_may_leave_partitions_out() -> None:
    planned = plan_round(Mine({}), cluster(t=2, u=1), joined("mine", TWO))
    assert sizes(planned.target) == [0, 0]
    assert not planned.transferring
    assert set(planned.encode()) == set(TWO)


def test_cooperative_user_data_may_carry_more_than_the_generation() -> None:
    """Ours opens with an int32 generation that a v1 subscription has nowhere else, and goes on with notes."""
    data = struct.pack(">i", 7) + b"hdft\1{}"
    old = {"consumer0": member("t", "t-0", version=1, user_data=data), "consumer1": member("t", "t-0", 6)}
    expect(plan(COOPERATIVE, cluster(t=1), old).assignment, c0="t-0", c1="")
