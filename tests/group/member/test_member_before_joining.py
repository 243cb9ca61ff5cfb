"""KIP-429, events 1a–1e: what a member gives up before it joins, and how it answers errors."""

from __future__ import annotations

import pytest
from driven import Driven, Lost, PlainAssignor, Revoked, tps

from holdfast.group.member import (
    Enforce,
    Fail,
    ForgetCoordinator,
    JoinAnswered,
    MetadataChanged,
    Phase,
    RequestFailed,
    Subscribe,
    Tick,
    select_protocol,
)
from holdfast.group.messages import JoinAnswer, JoinRequest
from holdfast.group.user_data import LeaderNote
from holdfast.model import ClusterView, ErrorCode, HoldfastError, Membership, RebalanceProtocol, TopicView


def cluster(**counts: int) -> ClusterView:
    return ClusterView({name: TopicView(count) for name, count in counts.items()})


def test_1a_a_changed_subscription_revokes_what_is_no_longer_wanted_and_joins_with_the_rest() -> None:
    member = Driven().stable_with("orders-0", "pay-0")
    member.feed(Subscribe(frozenset({"orders"})))
    assert member.phase is Phase.PREPARING
    assert member.calls() == [Revoked(tps("pay-0"))]
    assert not member.requests(JoinRequest), "revoking completes before the rejoin is sent"
    member.notified()
    (join,) = member.joins()
    assert join.topics == ("orders",)
    assert join.owned == tps("orders-0")


def test_1a_an_added_topic_revokes_nothing() -> None:
    member = Driven().stable_with("orders-0")
    member.feed(Subscribe(frozenset({"orders", "pay"})))
    assert member.calls() == []
    assert member.joins()[0].owned == tps("orders-0")


def test_the_same_subscription_again_starts_no_round() -> None:
    member = Driven().stable_with("orders-0")
    member.feed(Subscribe(frozenset({"orders"})))
    assert member.phase is Phase.STABLE
    assert member.last == ()


def test_1b_owned_partitions_that_no_longer_exist_are_revoked() -> None:
    """They were lost: nothing of them was committed, although the membership stood."""
    member = Driven().stable_with("orders-0", "orders-5", "pay-0")
    member.feed(MetadataChanged(cluster(orders=3)))
    assert member.calls() == [Revoked(tps("orders-5", "pay-0"))]
    assert "vanished" in member.steps()
    member.notified()
    assert member.joins()[0].owned == tps("orders-0")


def test_1b_a_follower_does_not_rejoin_when_a_topic_grows() -> None:
    member = Driven().stable_with("orders-0")
    member.feed(MetadataChanged(cluster(orders=3))).feed(MetadataChanged(cluster(orders=6)))
    assert member.phase is Phase.STABLE


def test_1b_a_leader_rejoins_when_a_topic_grows() -> None:
    member = Driven().subscribe()
    member.answer_join(leader="m-1", members=("m-1",)).planned(orders=3).answer_sync("orders-0").notified()
    member.feed(MetadataChanged(cluster(orders=3)))
    assert member.phase is Phase.STABLE, "nothing changed since the plan was made"
    member.feed(MetadataChanged(cluster(orders=6)))
    assert member.phase is Phase.JOINING
    assert "topics or partitions" in (member.requests(JoinRequest)[0].reason or "")


def test_1c_rebalance_in_progress_rejoins_with_everything_still_owned() -> None:
    member = Driven().stable_with("orders-0", "orders-1")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.calls() == []
    assert member.joins()[0].owned == tps("orders-0", "orders-1")
    assert member.joins()[0].generation == 1


def test_1c_an_eager_member_revokes_everything_before_it_rejoins() -> None:
    member = Driven(RebalanceProtocol.EAGER).stable_with("orders-0", "orders-1")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.calls() == [Revoked(tps("orders-0", "orders-1"))]
    member.notified()
    assert member.joins()[0].owned == frozenset()


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
def test_1d_a_lost_membership_loses_everything_and_rejoins_with_nothing(
    error: ErrorCode, protocol: RebalanceProtocol
) -> None:
    member = Driven(protocol).stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(error)
    assert member.calls() == [Lost(tps("orders-0"))]
    member.notified()
    assert member.joins()[0].owned == frozenset()


def test_illegal_generation_resets_the_generation_and_keeps_the_member_id() -> None:
    """edge B27 K-13419: the id was thrown away with the generation, so the group saw a stranger join."""
    member = Driven().stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.ILLEGAL_GENERATION).notified()
    assert member.requests(JoinRequest)[0].membership == Membership("m-1", -1)


def test_unknown_member_id_forgets_the_id() -> None:
    member = Driven().stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID).notified()
    assert member.requests(JoinRequest)[0].membership == Membership("", -1)


def test_1e_a_required_member_id_is_taken_and_the_join_sent_again() -> None:
    member = Driven().subscribe()
    member.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, "m-9")
    (again,) = member.requests(JoinRequest)
    assert again.membership == Membership("m-9", -1)
    assert member.joins()[0].owned == frozenset()


def test_a_late_error_for_an_old_request_does_not_touch_the_new_membership() -> None:
    """edge B26 K-9823: UNKNOWN_MEMBER_ID for a join of the generation before reset the one that had just begun."""
    member = Driven().subscribe()
    old = member.pending
    member.feed(RequestFailed(old, "disconnected")).feed(Tick(), after_ms=100)
    member.answer_join(generation=4).answer_sync("orders-0", note=LeaderNote()).notified()
    before = member.state
    member.feed(JoinAnswered(old, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)))
    assert member.state == before


def test_losing_the_member_id_in_the_middle_of_a_round_still_runs_the_step_before_the_join() -> None:
    """edge B29 K-12983: the pre-join step was skipped, so the listener never heard that its partitions were lost."""
    member = Driven().stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.refuse_join(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.calls() == [Lost(tps("orders-0"))]
    assert member.phase is Phase.PREPARING


def test_a_disconnect_keeps_the_member_id_and_looks_for_the_coordinator() -> None:
    """edge B30 K-13214: a retriable error made the member forget its id, and the group waited for a ghost."""
    member = Driven().stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.feed(RequestFailed(member.pending, "disconnected"))
    assert member.effects(ForgetCoordinator)
    member.feed(Tick(), after_ms=100)
    assert member.requests(JoinRequest)[0].membership == Membership("m-1", 1)
    assert member.joins()[0].owned == tps("orders-0")


@pytest.mark.parametrize(
    "error", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
def test_a_retriable_answer_to_a_join_is_tried_again_after_the_backoff(error: ErrorCode) -> None:
    """edge B31 K-10870: JoinGroup may answer REBALANCE_IN_PROGRESS; it was taken for fatal."""
    member = Driven().subscribe().refuse_join(error)
    assert member.phase is Phase.JOINING
    assert member.deadline == 100.0
    member.feed(Tick(), after_ms=99)
    assert not member.requests(JoinRequest)
    member.feed(Tick(), after_ms=1)
    assert len(member.requests(JoinRequest)) == 1


def test_metadata_that_changes_and_changes_back_while_revoking_still_ends_in_a_join() -> None:
    """edge B32 K-9815, K-9140: the change was undone while the listener ran, and the owed rejoin was forgotten."""
    member = Driven().stable_with("orders-0", "pay-0")
    member.feed(Subscribe(frozenset({"orders"})))
    member.feed(Subscribe(frozenset({"orders", "pay"})))
    member.notified()
    assert member.phase is Phase.JOINING
    assert member.joins()[0].topics == ("orders", "pay")
    assert member.joins()[0].owned == tps("orders-0")


def test_a_fenced_instance_is_fatal_and_the_error_says_what_to_do() -> None:
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert member.phase is Phase.FAILED
    assert member.calls() == [Lost(tps("orders-0"))]
    (failure,) = member.effects(Fail)
    assert failure.error.code == "FENCED_INSTANCE_ID"
    assert "group.instance.id" in failure.error.what
    assert "own group.instance.id" in failure.error.do


def test_an_infinite_poll_interval_fits_the_join_request() -> None:
    """edge B46 K-13126, K-12639: an endless max.poll.interval.ms overflowed the rebalance timeout."""
    member = Driven(settings={"max_poll_interval_ms": 2**63 - 1}).subscribe()
    assert member.requests(JoinRequest)[0].rebalance_timeout_ms == 2**31 - 1
    assert (member.deadline or 0) > 0


def test_a_reason_longer_than_the_wire_allows_is_cut() -> None:
    """edge B47 K-13998: a rejoin reason beyond 32,767 characters broke the frame."""
    member = Driven().stable_with("orders-0").feed(Enforce("x" * 40_000))
    assert len(member.requests(JoinRequest)[0].reason or "") <= 255


def test_the_most_advanced_common_protocol_is_selected() -> None:
    eager = PlainAssignor("range", (RebalanceProtocol.EAGER,))
    both = PlainAssignor()
    assert select_protocol([both]) is RebalanceProtocol.COOPERATIVE
    assert select_protocol([both, eager]) is RebalanceProtocol.EAGER


def test_assignors_without_a_common_protocol_are_an_error_at_start() -> None:
    with pytest.raises(HoldfastError, match="NO_COMMON_PROTOCOL"):
        select_protocol(
            [
                PlainAssignor("a", (RebalanceProtocol.EAGER,)),
                PlainAssignor("b", (RebalanceProtocol.COOPERATIVE,)),
            ]
        )


def test_the_user_data_keeps_javas_generation_in_its_first_four_bytes() -> None:
    member = Driven().stable_with("orders-0", generation=7)
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    data = member.joins()[0].user_data
    assert data is not None
    assert int.from_bytes(data[:4], "big", signed=True) == 7
