"""KIP-429, 3a–3d: what a member does with its assignment, the order of the calls, and when it rejoins."""

from __future__ import annotations

import pytest
from driven import Assigned, Driven, Lost, OnAssignment, Revoked, tps

from holdfast.group.member import (
    Enforce,
    HeartbeatAnswered,
    Notified,
    Phase,
    Plan,
    RequestFailed,
    Subscribe,
    SyncAnswered,
    Tick,
)
from holdfast.group.messages import (
    CommitAnswer,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinRequest,
    OffsetEntry,
    SyncAnswer,
    SyncRequest,
)
from holdfast.group.offsets import (
    MembershipGone,
    NotOwned,
    RebalanceInProgress,
    commit_request,
    coordinator_moved,
    worth_another_try,
)
from holdfast.group.user_data import LeaderNote, read_member_note
from holdfast.model import ErrorCode, Membership, RebalanceProtocol, TopicPartition


def rejoining(member: Driven) -> Driven:
    """Told by a heartbeat that the group is rebalancing."""
    return member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)


def kinds(calls: list[object]) -> list[type]:
    return [type(call) for call in calls]


def test_the_first_assignment_is_announced_and_nothing_is_revoked() -> None:
    member = Driven().subscribe().answer_join().answer_sync("orders-0", "orders-1", note=LeaderNote())
    assert member.phase is Phase.APPLYING
    assert kinds(member.calls()) == [OnAssignment, Assigned]
    assert member.calls()[1] == Assigned(tps("orders-0", "orders-1"))
    assert member.state.owned == frozenset(), "owned changes after the listener has returned"
    member.notified()
    assert member.state.owned == tps("orders-0", "orders-1")
    assert member.phase is Phase.STABLE


def test_cooperative_calls_come_in_the_order_revoked_on_assignment_assigned() -> None:
    member = rejoining(Driven().stable_with("orders-0", "orders-1"))
    member.answer_join(generation=2).answer_sync("orders-1", "orders-2", note=LeaderNote())
    assert kinds(member.calls()) == [Revoked, OnAssignment, Assigned]
    assert member.calls()[0] == Revoked(tps("orders-0"))
    assert member.calls()[2] == Assigned(tps("orders-2"))


def test_assigned_is_called_even_when_nothing_was_added() -> None:
    member = rejoining(Driven().stable_with("orders-0"))
    member.answer_join(generation=2).answer_sync("orders-0", note=LeaderNote())
    assert kinds(member.calls()) == [OnAssignment, Assigned]
    assert member.calls()[1] == Assigned(frozenset())


def test_eager_calls_come_in_the_order_revoked_then_on_assignment_assigned_with_everything() -> None:
    member = rejoining(Driven(RebalanceProtocol.EAGER).stable_with("orders-0", "orders-1"))
    assert member.calls() == [Revoked(tps("orders-0", "orders-1"))]
    member.notified().answer_join(generation=2).answer_sync("orders-0", "orders-2", note=LeaderNote())
    assert kinds(member.calls()) == [OnAssignment, Assigned]
    assert member.calls()[1] == Assigned(tps("orders-0", "orders-2"))


def test_the_new_generation_is_visible_before_the_revoke_callback() -> None:
    """edge B39 K-9741: a commit inside on_revoke went out with the generation before and was refused."""
    member = rejoining(Driven().stable_with("orders-0", "orders-1"))
    member.answer_join(generation=2).answer_sync("orders-1", note=LeaderNote())
    request = commit_request(member.state, {TopicPartition("orders", 0): OffsetEntry(5)})
    assert request.membership == Membership("m-1", 2)


def test_3c_a_member_that_revoked_rejoins_at_once_and_says_why() -> None:
    member = rejoining(Driven().stable_with("orders-0", "orders-1"))
    member.answer_join(generation=2).answer_sync("orders-1", note=LeaderNote(withheld=True)).notified()
    (join,) = member.requests(JoinRequest)
    assert "revoked" in (join.reason or "")
    assert member.joins()[0].owned == tps("orders-1")
    assert member.joins()[0].generation == 2


def test_a_marked_assignment_makes_everybody_rejoin_without_a_heartbeat() -> None:
    member = Driven().subscribe().answer_join().answer_sync("orders-0", note=LeaderNote(withheld=True)).notified()
    assert member.phase is Phase.JOINING
    assert member.requests(HeartbeatRequest) == []


def test_without_the_instant_rejoin_the_mark_is_left_to_the_heartbeat() -> None:
    member = Driven(settings={"instant_rejoin": False}).subscribe().answer_join()
    member.answer_sync("orders-0", note=LeaderNote(withheld=True)).notified()
    assert member.phase is Phase.STABLE


def test_a_leader_that_marks_for_ever_does_not_spin_the_group() -> None:
    member = Driven().subscribe()
    for generation in range(1, 30):
        if member.phase is not Phase.JOINING:
            break
        member.answer_join(generation=generation).answer_sync("orders-0", note=LeaderNote(withheld=True)).notified()
    assert member.phase is Phase.STABLE
    assert member.state.membership.generation == 9


def test_final_positions_ride_in_the_join_after_the_revoke_and_in_no_later_one() -> None:
    member = rejoining(Driven().stable_with("orders-0", "orders-1"))
    member.answer_join(generation=2).answer_sync("orders-1", note=LeaderNote()).notified(orders_0=17)
    note = read_member_note(member.joins()[0].user_data)
    assert note is not None
    assert note.positions == {TopicPartition("orders", 0): OffsetEntry(17)}
    member.answer_join(generation=3).refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
    later = read_member_note(member.joins()[0].user_data)
    assert later is not None
    assert later.positions == {}, "by then somebody else may have moved on from there"


def test_handed_over_positions_reach_the_new_owner() -> None:
    offered, stray = OffsetEntry(40, leader_epoch=3), OffsetEntry(1)
    note = LeaderNote(positions={TopicPartition("orders", 2): offered, TopicPartition("orders", 9): stray})
    member = Driven().subscribe().answer_join().answer_sync("orders-2", note=note)
    assert member.calls()[1] == Assigned(tps("orders-2"), {TopicPartition("orders", 2): offered})


def test_a_leader_plans_before_it_syncs() -> None:
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1", "m-2"))
    assert member.phase is Phase.PLANNING
    (plan,) = member.effects(Plan)
    assert [m.member_id for m in plan.members] == ["m-1", "m-2"]
    member.planned()
    assert set(member.requests(SyncRequest)[0].assignments) == {"m-1", "m-2"}


def test_rebalance_in_progress_on_sync_rejoins_at_once_and_keeps_the_generation() -> None:
    """edge B28 K-13891: the generation was reset, so what the member owned was lost for nothing."""
    member = rejoining(Driven().stable_with("orders-0"))
    member.answer_join(generation=2).refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.calls() == []
    assert member.requests(JoinRequest)[0].membership == Membership("m-1", 2)
    assert member.joins()[0].owned == tps("orders-0")


def test_claims_carry_the_generation_they_were_held_in_not_the_one_just_joined() -> None:
    """edge A4 K-14639: a member that missed a round's sync claimed its old partitions under the new generation, and so
    tied with their rightful new owner."""
    member = rejoining(Driven().stable_with("orders-0", generation=4))
    member.answer_join(generation=5).refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.joins()[0].generation == 4


def test_heartbeats_run_from_the_join_answer_on_and_rebalance_in_progress_waits_for_the_sync() -> None:
    """edge B33 K-10134, K-10122: no heartbeats while completing, or a rejoin in the middle of it."""
    member = Driven().subscribe().answer_join()
    assert member.phase is Phase.SYNCING
    member.feed(Tick(), after_ms=3_000)
    assert member.requests(HeartbeatRequest)
    member.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.phase is Phase.SYNCING


def test_a_membership_lost_between_join_and_listener_is_lost_after_the_listener() -> None:
    """edge B34 K-8104: the heartbeat cleared the generation while the join completed; the result was half applied."""
    member = Driven().subscribe().answer_join().answer_sync("orders-0", note=LeaderNote())
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.phase is Phase.APPLYING
    member.notified()
    assert member.calls() == [Lost(tps("orders-0"))]
    member.notified()
    assert member.joins()[0].owned == frozenset()


def test_an_assignment_for_an_older_subscription_is_ignored_and_the_member_rejoins() -> None:
    """edge B40 K-7961: partitions of a topic no longer subscribed were assigned, and poll raised for ever."""
    member = Driven().subscribe("orders")
    member.feed(Subscribe(frozenset({"pay"})))
    member.answer_join().answer_sync("orders-0", note=LeaderNote())
    assert member.phase is Phase.JOINING
    assert member.joins()[0].topics == ("pay",)
    assert member.state.owned == frozenset()


def test_nothing_says_settled_before_the_sync_succeeded() -> None:
    """edge B42 K-5154: "no rejoin needed" was set at the join's answer, so a failed sync left the member idle."""
    member = Driven().subscribe().answer_join()
    member.feed(RequestFailed(member.pending, "disconnected"))
    assert member.phase is Phase.JOINING
    assert member.requests(JoinRequest)


def test_finishing_a_join_is_done_once_however_often_the_listener_reports() -> None:
    """edge B41 K-7194, K-5611: an interrupted callback left the join half done, and the second try did it twice."""
    member = Driven().subscribe().answer_join().answer_sync("orders-0", note=LeaderNote())
    serial = member.pending
    member.notified()
    before = member.state
    member.feed(Notified(serial))
    assert member.state == before


def test_a_wish_for_a_round_in_the_middle_of_one_is_granted_afterwards() -> None:
    member = Driven().subscribe().answer_join().feed(Enforce("asked for"))
    member.answer_sync("orders-0", note=LeaderNote()).notified()
    assert member.requests(JoinRequest)[0].reason == "asked for"


def test_a_member_left_out_by_the_leader_owns_nothing_and_stays() -> None:
    """edge A23 sarama 2290: no bytes at all is an empty assignment, not an error."""
    member = Driven().subscribe().answer_join()
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=b""))).notified()
    assert member.phase is Phase.STABLE
    assert member.state.owned == frozenset()


def test_a_commit_between_two_generations_is_refused_and_costs_nothing() -> None:
    member = rejoining(Driven().stable_with("orders-0")).answer_join(generation=2)
    with pytest.raises(RebalanceInProgress):
        commit_request(member.state, {TopicPartition("orders", 0): OffsetEntry(5)})
    member.answer_sync("orders-0", note=LeaderNote()).notified()
    assert commit_request(member.state, {TopicPartition("orders", 0): OffsetEntry(5)}).membership.generation == 2


def test_a_commit_while_the_join_is_parked_goes_out_with_the_current_generation() -> None:
    """The coordinator accepts it until the round completes, and what is kept goes on being worked on meanwhile."""
    member = rejoining(Driven().stable_with("orders-0"))
    request = commit_request(member.state, {TopicPartition("orders", 0): OffsetEntry(5)})
    assert request.membership == Membership("m-1", 1)


def test_offsets_of_partitions_no_longer_owned_cannot_be_committed() -> None:
    """edge B53 librdkafka 3340: storing an offset of a revoked partition rewound the group."""
    member = Driven().stable_with("orders-0")
    with pytest.raises(NotOwned, match="orders-7"):
        commit_request(member.state, {TopicPartition("orders", 7): OffsetEntry(5)})


def test_of_what_is_not_owned_only_what_the_group_took_is_refused() -> None:
    """librdkafka commits what it is told to, also of partitions that were never assigned; what was taken from us has
    another owner, who may be further."""
    member = Driven().stable_with("orders-0")
    theirs, taken = TopicPartition("orders", 7), TopicPartition("orders", 8)
    request = commit_request(member.state, {theirs: OffsetEntry(5)}, given_up=frozenset({taken}))
    assert request.membership == member.state.membership
    with pytest.raises(NotOwned, match="orders-8"):
        commit_request(member.state, {theirs: OffsetEntry(5), taken: OffsetEntry(5)}, given_up=frozenset({taken}))


def test_who_has_not_joined_yet_commits_from_outside() -> None:
    member = Driven().subscribe()
    offsets = {TopicPartition("orders", 0): OffsetEntry(5)}
    assert not commit_request(member.state, offsets, given_up=frozenset()).membership.joined
    with pytest.raises(MembershipGone):
        commit_request(member.state, offsets)


def test_a_commit_is_tried_again_where_that_may_help() -> None:
    """What passes by itself is asked again for ever; what the coordinator does not know, three times in all; what it
    refuses, never."""
    codes = {
        0: ErrorCode.NONE,
        1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        2: ErrorCode.NOT_COORDINATOR,
        3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        4: ErrorCode.REBALANCE_IN_PROGRESS,
        5: ErrorCode.ILLEGAL_GENERATION,
        6: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        7: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    answer = CommitAnswer(errors={TopicPartition("orders", number): code for number, code in codes.items()})
    assert {p.partition for p in worth_another_try(answer, tries=1)} == {1, 2, 3}
    assert {p.partition for p in worth_another_try(answer, tries=3)} == {1, 2}
    assert coordinator_moved(answer)
    assert not coordinator_moved(CommitAnswer(errors={TopicPartition("orders", 1): codes[1]}))


def test_a_member_that_lost_its_membership_cannot_commit() -> None:
    member = Driven().stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(MembershipGone):
        commit_request(member.state, {TopicPartition("orders", 0): OffsetEntry(5)})


def test_a_heartbeat_answer_from_before_the_rejoin_is_stale() -> None:
    member = Driven().stable_with("orders-0").feed(Tick(), after_ms=3_000)
    old = member.state.requests.heartbeat
    assert old is not None
    member.feed(Enforce("now"))
    before = member.state
    member.feed(HeartbeatAnswered(old, HeartbeatAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)))
    assert member.state == before
