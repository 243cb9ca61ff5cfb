"""A member that was told no strategy joins what runs, and the group becomes cooperative by itself.

A rolling deploy that changed the import and nothing else was refused: librdkafka's default lists range and roundrobin,
ours listed cooperative-sticky alone, so the first new process got INCONSISTENT_GROUP_PROTOCOL while old ones ran.
"""

from __future__ import annotations

import pytest
from driven import Driven, Lost, PlainAssignor, Revoked, tps

from holdfast.group.member import Drain, JoinAnswered, Phase, Planned, SyncAnswered, Tell, Tick
from holdfast.group.member.adapting import TRY_AGAIN_MS
from holdfast.group.member.events import Subscribe
from holdfast.group.messages import HeartbeatRequest, JoinAnswer, JoinRequest, SyncAnswer
from holdfast.model import Assignment, ErrorCode, JoinedMember, Membership, RebalanceProtocol
from holdfast.model.consumer_protocol import decode_subscription, encode_assignment

EAGER = ["range", "roundrobin", "cooperative-sticky"]
COOPERATIVE = ["cooperative-sticky"]
AFTER_MS = 120_000.0


def adapting(after_ms: float | None = AFTER_MS) -> Driven:
    eager = tuple(PlainAssignor(name, None if name in COOPERATIVE else (RebalanceProtocol.EAGER,)) for name in EAGER)
    return Driven(settings={"eager_assignors": eager, "cooperative_after_ms": after_ms})


def came(runs: str | None, **options: float | None) -> Driven:
    return adapting(**options).feed(Subscribe(frozenset({"orders"}), runs))


def listed(member: Driven) -> list[str]:
    (join,) = member.requests(JoinRequest)
    return [name for name, _ in join.protocols]


def joined(member: Driven, protocol: str, *, generation: int = 1, leads: bool = False) -> Driven:
    answer = JoinAnswer(
        membership=Membership("m-1", generation),
        protocol_type="consumer",
        protocol=protocol,
        leader="m-1" if leads else "other",
        members=(JoinedMember(member_id="m-1"), JoinedMember(member_id="m-2")) if leads else (),
    )
    return member.feed(JoinAnswered(member.pending, answer))


def led(member: Driven, *, all_list: list[str], generation: int = 1, owns: str = "orders-0") -> Driven:
    """Through a whole range round as its leader."""
    joined(member, "range", generation=generation, leads=True)
    member.feed(Planned(member.pending, {}, {"orders": 4}, frozenset(all_list)))
    data = encode_assignment(Assignment(partitions=tps(owns)))
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=data))).notified()
    assert member.phase is Phase.STABLE
    return member


@pytest.mark.parametrize(
    ("runs", "lists"),
    [("", COOPERATIVE), ("cooperative-sticky", COOPERATIVE), ("range", EAGER), ("sticky", EAGER), (None, EAGER)],
)
def test_a_newcomer_joins_what_it_found(runs: str | None, lists: list[str]) -> None:
    assert listed(came(runs)) == lists


def test_a_newcomer_that_was_refused_comes_again_as_one_that_fits_in() -> None:
    """An old member came between its look and its join."""
    member = came("").refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert listed(member) == EAGER
    assert joined(member, "range").phase is Phase.SYNCING


def test_who_fits_in_nowhere_is_told_so() -> None:
    member = came("sticky").refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert [told.error.code for told in member.effects(Tell)] == ["INCONSISTENT_GROUP_PROTOCOL"]
    assert member.phase is Phase.JOINING, "the old members may go: it is tried again"


def test_who_was_told_a_strategy_does_not_list_another() -> None:
    member = Driven().subscribe().refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert member.effects(Tell)
    member.feed(Tick(), after_ms=100)
    assert listed(member) == COOPERATIVE


def test_a_newcomer_in_an_unknown_group_is_cooperative_once_a_round_is() -> None:
    member = joined(came(None), "cooperative-sticky")
    assert member.state.cooperative
    member.answer_sync("orders-0").notified()
    member.feed(Subscribe(frozenset({"orders", "pay"})))
    assert listed(member) == COOPERATIVE
    assert member.joins()[0].owned == tps("orders-0"), "kept while joining"


def test_in_an_eager_group_everything_is_given_up_before_the_join() -> None:
    member = led(came("range"), all_list=[])
    member.feed(Subscribe(frozenset({"orders", "pay"})))
    assert member.calls() == [Revoked(tps("orders-0"))]
    member.notified()
    assert listed(member) == EAGER
    (join,) = member.requests(JoinRequest)
    assert all(decode_subscription(data).owned == frozenset() for _, data in join.protocols)


def test_the_leader_makes_the_group_cooperative_when_all_have_been_able_for_a_while() -> None:
    member = led(came("range"), all_list=EAGER)
    assert member.state.adapting.upgrade_at == AFTER_MS
    member.feed(Tick(), after_ms=AFTER_MS)
    assert listed(member) == COOPERATIVE
    assert member.joins()[0].owned == tps("orders-0")
    assert member.calls() == [], "the leader itself never stops"
    joined(member, "cooperative-sticky", generation=2, leads=True)
    assert member.state.cooperative and member.state.adapting.upgrade_at is None


def test_the_time_runs_on_through_rounds_in_which_all_can() -> None:
    member = led(came("range"), all_list=EAGER)
    member.feed(Subscribe(frozenset({"orders", "pay"})), after_ms=1_000).notified()
    led(member, all_list=EAGER, generation=2)
    assert member.state.adapting.upgrade_at == AFTER_MS


def test_the_time_begins_anew_when_somebody_came_who_does_not_say() -> None:
    member = led(came("range"), all_list=EAGER)
    member.feed(Subscribe(frozenset({"orders", "pay"})), after_ms=1_000).notified()
    led(member, all_list=[], generation=2)
    assert member.state.adapting.upgrade_at == 1_000 + AFTER_MS


def test_at_once_and_never_are_settings() -> None:
    assert led(came("range", after_ms=0.0), all_list=EAGER).state.adapting.upgrade_at == 0.0
    assert led(came("range", after_ms=None), all_list=EAGER).state.adapting.upgrade_at is None


def test_at_once_waits_a_minute_where_only_a_refusal_can_tell() -> None:
    assert led(came("range", after_ms=0.0), all_list=[]).state.adapting.upgrade_at == TRY_AGAIN_MS


def test_a_refused_try_changes_nothing() -> None:
    """An old member is there that does not say what it lists: asking must not cost the group a rebalance each time."""
    member = led(came("range"), all_list=[])
    member.feed(Tick(), after_ms=AFTER_MS)
    member.refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert member.phase is Phase.STABLE
    assert member.state.owned == tps("orders-0") and member.calls() == []
    assert member.state.membership == Membership("m-1", 1)
    assert member.state.adapting.upgrade_at == 2 * AFTER_MS
    member.feed(Tick())
    assert member.requests(HeartbeatRequest), "it asks whether a round began meanwhile"
    member.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.calls() == [Revoked(tps("orders-0"))]
    assert listed(member.notified()) == EAGER


def test_a_try_that_costs_the_membership_ends_as_any_join_does() -> None:
    member = led(came("range"), all_list=EAGER)
    member.feed(Tick(), after_ms=AFTER_MS)
    member.refuse_join(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.calls() == [Lost(tps("orders-0"))]


def test_a_follower_never_tries() -> None:
    member = joined(came("range"), "range")
    member.answer_sync("orders-0").notified()
    assert member.state.adapting.upgrade_at is None


def test_a_leader_that_drains_leaves_it_to_the_next_one() -> None:
    member = led(came("range"), all_list=EAGER)
    member.feed(Drain("a deploy"))
    member.feed(Tick(), after_ms=AFTER_MS)
    assert not member.requests(JoinRequest)


def test_a_cooperative_member_that_is_refused_gives_up_everything_and_fits_in() -> None:
    """All others had crashed, an old member came, and what we hold may not be kept under range."""
    member = joined(came(""), "cooperative-sticky")
    member.answer_sync("orders-0").notified()
    member.feed(Subscribe(frozenset({"orders", "pay"})))
    member.refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert member.calls() == [Revoked(tps("orders-0"))]
    assert listed(member.notified()) == EAGER
