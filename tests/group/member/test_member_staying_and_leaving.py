"""Heartbeats, polling, closing, draining: a member's life between rounds and its ways out."""

from __future__ import annotations

import pytest
from driven import Driven, Lost, Revoked, tps

from holdfast.group.member import (
    Close,
    Closed,
    CommitAnswered,
    CountMembers,
    Drain,
    Enforce,
    Event,
    GroupSized,
    IllegalEvent,
    JoinAnswered,
    LeaveAnswered,
    Phase,
    Poke,
    Poked,
    Polled,
    RequestFailed,
    Subscribe,
    SyncAnswered,
    Tick,
    Unsubscribe,
    may_process,
)
from holdfast.group.messages import (
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from holdfast.group.user_data import Endpoint, LeaderNote
from holdfast.model import ErrorCode, Membership


def leave_answered(member: Driven) -> Driven:
    return member.feed(LeaveAnswered(member.pending, LeaveAnswer()))


def test_heartbeats_keep_the_tick_of_the_last_sync() -> None:
    member = Driven().stable_with("orders-0")
    assert member.deadline == 3_000.0
    member.feed(Tick(), after_ms=3_100).answer_heartbeat()
    assert member.deadline == 6_000.0, "a late tick does not shift the common clock"


def test_only_one_heartbeat_is_under_way_at_a_time() -> None:
    member = Driven().stable_with("orders-0").feed(Tick(), after_ms=3_000)
    assert len(member.requests(HeartbeatRequest)) == 1
    member.feed(Tick(), after_ms=3_000)
    assert member.requests(HeartbeatRequest) == []


def test_under_a_foreign_leader_a_member_asks_quickly_for_a_second_and_then_calms_down() -> None:
    member = Driven().subscribe().answer_join().answer_sync("orders-0").feed(GroupSized(3)).notified()
    asked = []
    while (deadline := member.deadline) is not None and deadline < 3_000:
        member.feed(Tick(), after_ms=deadline - member.now)
        if member.requests(HeartbeatRequest):
            asked.append(member.now)
            member.answer_heartbeat()
    assert asked[0] == 25.0
    assert 30 <= len(asked) <= 40
    assert asked[-2] <= 1_000.0
    assert asked[-1] == 2_900.0, "once more shortly before the tick"
    assert member.deadline == 3_000.0, "the normal tick stays where the sync put it"
    for tick in (3_000.0, 5_900.0, 6_000.0, 8_900.0):
        assert member.deadline == tick
        member.feed(Tick(), after_ms=tick - member.now).answer_heartbeat()


def test_quick_heartbeats_of_a_large_group_stay_within_the_coordinators_budget() -> None:
    member = Driven().subscribe().answer_join().answer_sync("orders-0")
    assert member.effects(CountMembers), "nobody else knows how many ask"
    member.feed(GroupSized(600)).notified()
    assert member.deadline == 150.0, "600 members, each of them seven times a second, are 4,000 requests"


def test_until_the_group_is_counted_a_member_asks_as_if_it_were_one_of_a_thousand() -> None:
    """Symptom: quick heartbeats of 1,000 members came to 40,000 a second. Cause: nobody ever told the member how large
    its group is. Invariant: who does not know asks slowly."""
    member = Driven().subscribe().answer_join().answer_sync("orders-0").notified()
    assert member.deadline == 250.0
    member.feed(GroupSized(4), after_ms=5)
    assert member.deadline == 25.0


def test_a_large_group_is_counted_seldom() -> None:
    member = Driven().subscribe().answer_join().answer_sync("orders-0").feed(GroupSized(200)).notified()
    member.feed(Enforce("again"), after_ms=1_900).answer_join(generation=2).answer_sync("orders-0")
    assert not member.effects(CountMembers), "its description would be read by 200 members"
    member.notified().feed(Enforce("again"), after_ms=200).answer_join(generation=3).answer_sync("orders-0")
    assert member.effects(CountMembers)


def test_what_is_owned_is_not_processed_when_the_coordinator_was_silent_for_a_session() -> None:
    """Symptom: a process that was frozen went on, on waking, with records that others were processing. Cause: it held
    on to its partitions until the coordinator answered. Invariant: after a session timeout without an answer somebody
    else may own them, so nothing is handed out until there is one."""
    member = Driven().stable_with("orders-0")
    assert may_process(member.state, 45_000.0)
    assert not may_process(member.state, 45_001.0)
    member.feed(Tick(), after_ms=46_000).answer_heartbeat()
    assert may_process(member.state, member.now)
    assert member.state.requests.heard_at == member.now


def test_a_session_counts_from_when_the_last_answered_request_was_sent() -> None:
    """Symptom: a process that was frozen for a little more than its session processed a batch on waking that others had
    by then. Cause: its session counted from the reading of an answer, the coordinator's from the request's arrival.
    Invariant: ours ends first."""
    member = Driven().stable_with("orders-0").feed(Tick(), after_ms=3_000)
    member.now += 500
    member.answer_heartbeat()
    assert may_process(member.state, 48_000.0)
    assert not may_process(member.state, 48_001.0)


def test_an_answer_to_a_join_of_long_ago_vouches_for_nothing() -> None:
    member = Driven().stable_with("orders-0").feed(Enforce("again"), after_ms=1_000)
    member.now += 60_000
    member.answer_join(generation=2)
    assert not may_process(member.state, member.now), "the round may be over, and its answer have waited for us"
    member.answer_sync("orders-0", note=LeaderNote())
    assert may_process(member.state, member.now)


def test_a_process_that_was_frozen_while_its_join_waited_waits_for_the_answer() -> None:
    """Symptom: a process that was frozen for a session inside `drain(timeout=…)`, or before a `subscribe`, handed out
    on waking what others were processing. Cause: each driver noticed by itself that it had been frozen, the consumer
    by the pauses between two polls, and these calls counted as polls. Rule: the machine's own ticks tell, and silence
    counts even before the tick that was missed."""
    member = Driven().stable_with("orders-0").feed(Enforce("again"), after_ms=1_000)
    assert may_process(member.state, 46_000.0), "a session since the last tick is not over yet"
    assert not may_process(member.state, 46_001.0)
    member.feed(Tick(), after_ms=45_001)
    assert not may_process(member.state, member.now), "the tick itself changes nothing"
    member.feed(Tick(), after_ms=11_250)
    assert not may_process(member.state, member.now), "nor do later ones"
    member.answer_join(generation=2).answer_sync("orders-0", note=LeaderNote())
    member.feed(Tick(), after_ms=3_000).answer_heartbeat()
    assert may_process(member.state, member.now)


def test_an_application_that_is_busy_for_a_session_while_its_join_waits_is_not_frozen() -> None:
    """Symptom: a consumer whose application had worked on a batch for longer than its session got no further records
    until the round was over. Cause: it took a pause between two polls for a freeze; a Spark query did not. Rule: the
    member's own clock tells, which goes on meanwhile."""
    member = Driven().stable_with("orders-0").tick_until(120_000.0, Enforce("again"))
    assert member.phase is Phase.JOINING
    assert may_process(member.state, member.now)


def test_a_join_that_is_sent_after_a_freeze_does_not_end_the_silence() -> None:
    member = Driven().stable_with("orders-0").feed(Enforce("again"), after_ms=60_000)
    assert member.phase is Phase.JOINING
    assert not may_process(member.state, member.now)


def test_a_join_needs_no_ticks_where_nothing_is_owned() -> None:
    member = Driven(settings={"session_timeout_ms": 8_000}).subscribe()
    assert member.phase is Phase.JOINING
    assert member.deadline == 300_000.0
    member.answer_join().answer_sync("orders-0", note=LeaderNote()).notified().feed(Enforce("again"))
    assert member.deadline == 2_000.0


def test_a_parked_join_is_no_silence_until_one_fails() -> None:
    member = Driven().stable_with("orders-0").tick_until(61_000.0, Enforce("again"))
    assert member.phase is Phase.JOINING
    assert may_process(member.state, member.now), "the coordinator holds the join, and with it our place"
    member.feed(RequestFailed(member.pending, "cut off"))
    assert not may_process(member.state, member.now), "by now it may have given our place away"
    member.feed(Tick(), after_ms=100).refuse_join(ErrorCode.NOT_COORDINATOR)
    assert not may_process(member.state, member.now), "a broker that is not the coordinator can't vouch for us"
    member.feed(Tick(), after_ms=200).answer_join(generation=2)
    assert may_process(member.state, member.now)


def test_what_is_lost_is_not_processed_even_before_the_listener_hears_of_it() -> None:
    member = Driven(settings={"max_poll_interval_ms": 60_000}).stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.state.owned and not may_process(member.state, member.now)
    evicted = Driven(settings={"max_poll_interval_ms": 60_000}).stable_with("orders-0").feed(Tick(), after_ms=60_000)
    assert evicted.phase is Phase.EVICTED
    assert evicted.state.owned and not may_process(evicted.state, evicted.now)


def test_a_leader_that_marks_needs_no_quick_heartbeats() -> None:
    assert Driven().stable_with("orders-0", note=LeaderNote()).deadline == 3_000.0


def test_a_poke_makes_the_member_ask_and_nothing_more() -> None:
    member = Driven().stable_with("orders-0", note=LeaderNote(token="t1"))
    member.feed(Poked("wrong"), after_ms=100)
    assert member.last == ()
    member.feed(Poked("t1"), after_ms=100)
    assert member.requests(HeartbeatRequest)
    assert member.phase is Phase.STABLE
    member.answer_heartbeat()
    member.feed(Poked("t1"), after_ms=1)
    assert member.last == (), "whoever floods us does not flood the coordinator"


@pytest.mark.parametrize("error", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_refused_commit_makes_the_member_ask_but_never_rejoin(error: ErrorCode) -> None:
    """edge B50 librdkafka 4059, 4908: a commit answered ILLEGAL_GENERATION in mid-rebalance dropped the assignment."""
    member = Driven().stable_with("orders-0")
    member.feed(CommitAnswered(member.state.membership, error), after_ms=10)
    assert member.phase is Phase.STABLE
    assert member.state.owned == tps("orders-0")
    assert len(member.requests(HeartbeatRequest)) == 1


def test_a_commit_answer_of_an_older_membership_says_nothing_about_this_one() -> None:
    member = Driven().stable_with("orders-0", generation=5)
    member.feed(CommitAnswered(Membership("m-1", 4), ErrorCode.ILLEGAL_GENERATION), after_ms=10)
    assert member.last == ()


def test_a_member_that_is_not_polled_in_time_leaves_and_names_itself() -> None:
    member = Driven(settings={"max_poll_interval_ms": 10_000}).stable_with("orders-0")
    member.feed(Tick(), after_ms=10_000)
    assert member.phase is Phase.EVICTED
    (leave,) = member.requests(LeaveRequest)
    assert leave.members[0].member_id == "m-1"
    assert "poll-expired" in member.steps()


def test_after_an_eviction_the_next_poll_loses_everything_and_joins_anew() -> None:
    member = Driven(settings={"max_poll_interval_ms": 10_000}).stable_with("orders-0").feed(Tick(), after_ms=10_000)
    member.feed(Polled(), after_ms=5_000)
    assert member.calls() == [Lost(tps("orders-0"))]
    member.notified()
    assert member.requests(JoinRequest)[0].membership == Membership("", -1)


def test_an_eviction_while_the_listener_runs_loses_what_the_listener_was_given() -> None:
    """Otherwise those partitions would be assigned and neither revoked nor lost."""
    member = Driven(settings={"max_poll_interval_ms": 10_000}).subscribe().answer_join()
    member.answer_sync("orders-0", note=LeaderNote()).feed(Tick(), after_ms=10_000)
    assert member.phase is Phase.EVICTED
    member.feed(Polled()).notified()
    assert member.calls() == [Lost(tps("orders-0"))]


def test_only_the_consumers_own_poll_resets_the_poll_clock() -> None:
    """edge B54 librdkafka 3450, 4176: heartbeats or other calls counted as polls, or a long gap as a dead session."""
    member = Driven(settings={"max_poll_interval_ms": 10_000}).stable_with("orders-0")
    member.feed(Tick(), after_ms=3_000).answer_heartbeat()
    member.feed(Polled(), after_ms=4_000)
    member.feed(Tick(), after_ms=9_999)
    assert member.phase is Phase.STABLE
    member.feed(Tick(), after_ms=1)
    assert member.phase is Phase.EVICTED


def test_a_static_member_that_is_not_polled_goes_silent_instead_of_leaving() -> None:
    member = Driven(settings={"max_poll_interval_ms": 10_000, "instance_id": "pod-0"}).stable_with("orders-0")
    member.feed(Tick(), after_ms=10_000)
    assert member.requests(LeaveRequest) == []
    assert member.deadline is None


def test_closing_revokes_first_and_then_leaves() -> None:
    member = Driven().stable_with("orders-0").feed(Close("bye"))
    assert member.calls() == [Revoked(tps("orders-0"))]
    assert member.requests(LeaveRequest) == []
    member.notified()
    assert member.requests(LeaveRequest)[0].members[0].reason == "bye"
    leave_answered(member)
    assert member.phase is Phase.CLOSED
    assert member.effects(Closed)


def test_a_static_member_does_not_leave_on_close() -> None:
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0").feed(Close("bye")).notified()
    assert member.requests(LeaveRequest) == []
    assert member.phase is Phase.CLOSED


def test_a_leave_that_is_never_answered_still_closes() -> None:
    member = Driven().stable_with("orders-0").feed(Close("bye")).notified()
    for _ in range(3):
        member.feed(RequestFailed(member.pending, "disconnected")).feed(Tick(), after_ms=1_000)
    assert member.phase is Phase.CLOSED


def test_an_assignment_that_arrives_during_close_is_ignored() -> None:
    """edge B51 librdkafka 4527, 4381: a late assignment in close was applied and never revoked."""
    member = Driven().subscribe().answer_join()
    late = member.pending
    member.feed(Close("bye"))
    member.feed(SyncAnswered(late, SyncAnswer(assignment=b"")))
    assert member.phase is Phase.LEAVING
    assert member.calls() == []


def test_closing_before_the_first_assignment_just_leaves() -> None:
    member = Driven().subscribe().answer_join().feed(Close("bye"))
    assert member.calls() == []
    assert member.requests(LeaveRequest)


def test_unsubscribing_tells_the_listener_before_the_assignment_is_cleared() -> None:
    """edge B37 K-8972: the assignment was cleared first, so the commit in on_revoke had nothing to commit."""
    member = Driven().stable_with("orders-0").feed(Unsubscribe())
    assert member.calls() == [Revoked(tps("orders-0"))]
    assert member.state.owned == tps("orders-0")
    leave_answered(member.notified())
    assert member.phase is Phase.UNSUBSCRIBED


def test_unsubscribing_with_a_lost_membership_loses() -> None:
    member = Driven(settings={"max_poll_interval_ms": 10_000}).stable_with("orders-0").feed(Tick(), after_ms=10_000)
    member.feed(Unsubscribe())
    assert member.calls() == [Lost(tps("orders-0"))]


def test_unsubscribing_in_the_middle_of_a_join_leaves_and_ignores_its_answer() -> None:
    """edge B43 K-9701: the join's answer was applied to a consumer that wanted nothing any more."""
    member = rejoining("orders-0")
    late = member.pending
    member.feed(Unsubscribe())
    assert member.calls() == [], "the round may be through in a moment"
    member.feed(Tick(), after_ms=(member.deadline or 0.0) - member.now).notified()
    before = member.state
    member.feed(JoinAnswered(late, JoinAnswer(membership=Membership("m-1", 2), protocol="cooperative-sticky")))
    assert member.state == before
    leave_answered(member)
    assert member.phase is Phase.UNSUBSCRIBED


def rejoining(*names: str) -> Driven:
    """A member that owns these and has joined the group's next round."""
    member = Driven().stable_with(*names)
    return member.feed(Tick(), after_ms=3_000).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("way_out", [Close("bye"), Unsubscribe()])
def test_whoever_leaves_between_two_generations_first_sees_the_round_through(way_out: Event) -> None:
    """Found by members coming and going: closed between join and sync, where the coordinator refuses every commit, a
    member told its listener at once. What it had done could not be committed, and the next owner did it again."""
    member = rejoining("orders-0", "orders-1").answer_join(generation=2).feed(way_out)
    assert member.calls() == []
    assert member.requests(LeaveRequest) == []
    member.answer_sync("orders-0", "orders-7")
    assert member.calls() == [Revoked(tps("orders-0", "orders-1"))], "all it had, and nothing of what is new"
    assert member.state.membership.generation == 2, "in which the listener can commit"
    member.notified()
    assert len(member.requests(LeaveRequest)) == 1
    leave_answered(member)
    assert member.phase in (Phase.CLOSED, Phase.UNSUBSCRIBED)


def test_a_leader_that_closes_still_gives_the_others_their_plan() -> None:
    member = rejoining("orders-0").feed(Close("bye")).answer_join(generation=2, leader="m-1", members=("m-1", "m-2"))
    assert member.planned(orders=2).requests(SyncRequest)[0].assignments.keys() == {"m-1", "m-2"}
    assert member.answer_sync("orders-0").calls() == [Revoked(tps("orders-0"))]


def test_a_round_that_hangs_does_not_hold_whoever_wants_to_leave() -> None:
    member = rejoining("orders-0").answer_join(generation=2).feed(Close("bye"))
    while member.phase is Phase.SYNCING:
        assert member.deadline is not None
        member.feed(Tick(), after_ms=member.deadline - member.now)
    assert member.now <= 3_000 + 3_000, "a heartbeat interval"
    assert member.calls() == [Revoked(tps("orders-0"))]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, Revoked(tps("orders-0"))),
        (ErrorCode.NOT_COORDINATOR, Revoked(tps("orders-0"))),
        (ErrorCode.UNKNOWN_MEMBER_ID, Lost(tps("orders-0"))),
    ],
)
def test_whoever_is_leaving_does_not_join_again_when_the_round_fails(error: ErrorCode, told: object) -> None:
    member = rejoining("orders-0").answer_join(generation=2).feed(Close("bye")).refuse_sync(error)
    assert member.calls() == [told]
    assert member.requests(JoinRequest) == []
    assert member.phase is Phase.LEAVING


def test_whoever_fails_while_it_waits_to_leave_wants_no_clock_any_more() -> None:
    """Symptom: a fenced member that was being closed would have been ticked without end. Cause: the moment at which it
    leaves at the latest was still counted after it had failed."""
    member = rejoining("orders-0").feed(Close("bye")).refuse_join(ErrorCode.FENCED_INSTANCE_ID)
    assert member.phase is Phase.FAILED
    assert member.deadline is None


def test_whoever_is_leaving_does_not_join_again_when_its_join_is_refused_for_now() -> None:
    member = rejoining("orders-0").feed(Close("bye")).refuse_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.calls() == [Revoked(tps("orders-0"))]
    assert member.requests(JoinRequest) == []


def test_a_static_member_that_unsubscribes_keeps_its_member_id() -> None:
    """edge B45 K-20985: the id was dropped without a LeaveGroup, and the next join fenced itself."""
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0").feed(Unsubscribe()).notified()
    assert member.phase is Phase.UNSUBSCRIBED
    member.feed(Subscribe(frozenset({"orders"})))
    assert member.requests(JoinRequest)[0].membership.member_id == "m-1"


def test_subscribing_again_while_leaving_joins_after_the_leave() -> None:
    member = Driven().stable_with("orders-0").feed(Unsubscribe())
    member.feed(Subscribe(frozenset({"pay"})))
    leave_answered(member.notified())
    assert member.phase is Phase.JOINING
    assert member.joins()[0].topics == ("pay",)


def test_an_illegal_event_changes_nothing_and_says_whose_fault_it_is() -> None:
    member = Driven().feed(Close("bye"))
    assert member.phase is Phase.CLOSED
    with pytest.raises(IllegalEvent, match="closed consumer"):
        member.subscribe()


ME = Endpoint("127.0.0.1", 5001)
OTHER = Endpoint("127.0.0.1", 5002)


def test_a_member_that_left_pokes_the_others_so_that_they_need_not_wait_for_a_heartbeat() -> None:
    member = Driven(settings={"endpoint": ME}).stable_with("orders-0", note=LeaderNote(peers=(ME, OTHER), token="t1"))
    member.feed(Close("bye")).notified()
    assert member.effects(Poke) == [], "not before the coordinator knows"
    leave_answered(member)
    assert member.effects(Poke) == [Poke((OTHER,), "t1", known=True)]


def test_a_member_that_starts_a_round_pokes_but_one_that_follows_a_mark_does_not() -> None:
    member = Driven(settings={"endpoint": ME}).subscribe().answer_join()
    member.answer_sync("orders-0", note=LeaderNote(peers=(ME, OTHER), token="t1", withheld=True)).notified()
    assert member.phase is Phase.JOINING
    assert member.effects(Poke) == []
    member.answer_join(generation=2).answer_sync("orders-0", note=LeaderNote(peers=(ME, OTHER), token="t2")).notified()
    member.feed(Drain("deploy"))
    assert member.effects(Poke) == [Poke((OTHER,), "t2", known=False)]
