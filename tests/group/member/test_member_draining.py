"""A drain: everything is handed over while the member works on, and then it leaves, sooner or later."""

from __future__ import annotations

import pytest
from driven import Driven, Revoked, tps

from holdfast.group.member import Drain, Emit, Enforce, LeaveAnswered, Phase, Plan, PlanFailed, Planned, Polled, Tick
from holdfast.group.member.leaving import MAX_STAYED
from holdfast.group.messages import JoinRequest, LeaveAnswer, LeaveRequest, OffsetEntry
from holdfast.group.user_data import LeaderNote, read_member_note
from holdfast.model import ErrorCode, HoldfastError, RebalanceProtocol, TopicPartition


def why_overdue(member: Driven) -> list[str | None]:
    return [each.record.cause for each in member.effects(Emit) if each.record.step == "leave-overdue"]


def test_draining_keeps_working_while_the_leader_plans_the_partitions_away() -> None:
    member = Driven().stable_with("orders-0", "orders-1").feed(Drain("deploy"))
    assert member.calls() == []
    assert member.state.owned == tps("orders-0", "orders-1")
    note = read_member_note(member.joins()[0].user_data)
    assert note is not None
    assert note.draining
    assert member.joins()[0].topics == ("orders",), "never an empty topic list: a foreign leader would hand them on"
    member.answer_join(generation=2).answer_sync(note=LeaderNote(withheld=True))
    assert member.calls()[0] == Revoked(tps("orders-0", "orders-1"))
    member.notified()
    assert member.requests(LeaveRequest)
    assert member.requests(JoinRequest) == []


def test_whoever_drains_hands_its_positions_over_in_one_more_round_and_then_leaves() -> None:
    """The next owners start without asking the coordinator, and nobody waits for the last commit."""
    reaches = LeaderNote(knows_drain=True, all_read=True)
    member = Driven().stable_with("orders-0", note=reaches).feed(Drain("deploy")).answer_join(generation=2)
    member.answer_sync(note=LeaderNote(knows_drain=True, all_read=True, withheld=True))
    assert member.calls()[0] == Revoked(tps("orders-0"))
    member.notified(orders_0=17)
    (join,) = member.joins()
    note = read_member_note(join.user_data)
    assert note is not None
    assert (note.draining, note.positions) == (True, {TopicPartition("orders", 0): OffsetEntry(17)})
    member.answer_join(generation=3).answer_sync(note=reaches).notified()
    assert len(member.requests(LeaveRequest)) == 1


def test_whoever_drains_with_nothing_to_hand_over_leaves_at_once() -> None:
    reaches = LeaderNote(knows_drain=True, all_read=True)
    member = Driven().stable_with("orders-0", note=reaches).feed(Drain("deploy")).answer_join(generation=2)
    member.answer_sync(note=LeaderNote(knows_drain=True, all_read=True, withheld=True)).notified()
    assert len(member.requests(LeaveRequest)) == 1


def test_a_drain_asked_for_in_the_middle_of_a_round_waits_for_a_round_that_carries_the_flag() -> None:
    member = Driven().subscribe().answer_join().feed(Drain("deploy"))
    member.answer_sync("orders-0", note=LeaderNote()).notified()
    assert member.phase is Phase.JOINING
    note = read_member_note(member.joins()[0].user_data)
    assert note is not None
    assert note.draining


def test_the_last_member_drains_by_leaving_with_what_nobody_else_can_take() -> None:
    member = Driven().stable_with("orders-0").feed(Drain("deploy"))
    member.answer_join(generation=2).answer_sync("orders-0", note=LeaderNote()).notified()
    assert member.calls() == [Revoked(tps("orders-0"))]
    member.notified()
    member.feed(LeaveAnswered(member.pending, LeaveAnswer()))
    assert member.phase is Phase.CLOSED


def test_a_draining_static_member_does_leave() -> None:
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0").feed(Drain("scale-in"))
    member.answer_join(generation=2).answer_sync(note=LeaderNote()).notified()
    assert member.requests(LeaveRequest)[0].members[0].instance_id == "pod-0"


def test_an_eager_member_drains_by_leaving() -> None:
    member = Driven(RebalanceProtocol.EAGER).stable_with("orders-0").feed(Drain("deploy"))
    assert member.calls() == [Revoked(tps("orders-0"))]


def leads_and_drains() -> Driven:
    """A leader that has promised to hand positions over, and is told to drain."""
    promise = LeaderNote(all_read=True, withheld=True)
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1", "m-2")).planned(orders=1)
    return member.answer_sync(note=promise).feed(Drain("scaled down")).notified()


def lead_round(member: Driven, *, hands_over: bool) -> None:
    member.answer_join(generation=member.state.membership.generation + 1, leader="m-1", members=("m-1", "m-2"))
    (plan,) = member.effects(Plan)
    member.feed(Planned(plan.serial, {"m-1": b"", "m-2": b""}, {"orders": 1}, hands_over=hands_over))
    member.answer_sync(note=LeaderNote()).notified()


def test_a_leader_that_drains_joins_once_more_while_it_hands_over_what_was_promised() -> None:
    """Its leave would cut the round, and only a leader that has handed positions over can hand them over again."""
    member = leads_and_drains()
    for hands_over in (True, False):
        assert member.phase is Phase.JOINING
        lead_round(member, hands_over=hands_over)
    assert member.phase is Phase.LEAVING


@pytest.mark.parametrize("waits", [True, False], ids=["positions wait", "none wait"])
def test_a_leader_that_drains_stays_for_positions_that_wait_because_its_assignor_failed(waits: bool) -> None:
    """Symptom: a leader that drained left in a round without a plan, and the next owner did work again that had been
    handed over. Cause: whether the leader still has something to hand over was known of the last plan only, not of a
    round whose assignor had failed. Rule: as after a round that was cut."""
    member = leads_and_drains()
    member.answer_join(generation=2, leader="m-1", members=("m-1", "m-2"))
    failed = HoldfastError("ASSIGNOR_FAILED", "it raised.", "Correct it.")
    member.feed(PlanFailed(member.pending, failed, {"m-1": b"", "m-2": b""}, hands_over=waits))
    member.answer_sync(note=LeaderNote()).notified()
    assert member.phase is (Phase.JOINING if waits else Phase.LEAVING)


def test_a_leader_that_drains_gives_a_slow_member_time_to_get_its_result() -> None:
    """Symptom: a leader was told to drain, and stayed for good, with hundreds of rebalances a second. Cause: a member
    was slower than the leader's next join. So each round was cut before that member had its result, and the next one
    had to hand over the same again. Rule: if that happens twice, the leader waits for a heartbeat interval."""
    member = leads_and_drains()
    lead_round(member, hands_over=True)
    assert member.phase is Phase.JOINING, "usually everybody has got it by now"
    lead_round(member, hands_over=True)
    assert member.phase is Phase.STABLE
    assert member.deadline == member.now + 3_000.0
    member.feed(Tick(), after_ms=3_000.0)
    lead_round(member, hands_over=False)
    assert member.phase is Phase.LEAVING


def test_a_leader_that_drains_does_not_stay_for_a_member_that_misses_every_round() -> None:
    """Others may also join all the time, so that each round hands something over. It stays for a few rounds only."""
    member = leads_and_drains()
    for stays in range(MAX_STAYED):
        lead_round(member, hands_over=True)
        if stays:
            member.feed(Polled()).feed(Tick(), after_ms=3_000.0)
        assert member.phase is Phase.JOINING
    lead_round(member, hands_over=True)
    assert member.phase is Phase.LEAVING
    assert member.requests(LeaveRequest)
    assert why_overdue(member) == ["in 8 more rounds some members may not have got what we hand over"]


def test_a_leader_that_drains_leaves_although_every_round_is_cut() -> None:
    """Symptom: as above, and the leader never even got a round's result, because others joined all the time. Rule: a
    drain ends when the longest round would be over."""
    member = leads_and_drains()
    for generation in range(2, 300):
        member.feed(Polled(), after_ms=1_000.0).answer_join(generation=generation)
        assert member.phase is Phase.SYNCING
        member.feed(Tick()).refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        assert member.phase is Phase.JOINING
    member.feed(Polled(), after_ms=2_000.0).feed(Tick())
    assert member.phase is Phase.LEAVING
    assert why_overdue(member) == ["the drain was not done within 300000 ms"]


def test_a_drain_that_takes_too_long_commits_and_gives_up_what_is_left() -> None:
    """The owner that was to take its partitions has died, and the round waits for it."""
    member = Driven(settings={"max_poll_interval_ms": 30_000}).stable_with("orders-0").feed(Drain("deploy"))
    assert member.phase is Phase.JOINING
    member.feed(Polled(), after_ms=29_000.0).feed(Tick())
    assert member.deadline == 30_000.0
    member.feed(Drain("once more"), after_ms=500.0)
    member.feed(Tick(), after_ms=500.0)
    assert why_overdue(member) == ["the drain was not done within 30000 ms"]
    assert member.phase is Phase.JOINING, "it may be the very moment in which the round completes"
    member.feed(Tick(), after_ms=250.0)
    assert member.calls() == [Revoked(tps("orders-0"))]
    member.notified()
    assert member.requests(LeaveRequest)


def test_a_drain_among_foreign_members_that_join_all_the_time_ends_too() -> None:
    member = Driven(settings={"max_poll_interval_ms": 30_000}).stable_with("orders-0").feed(Drain("deploy"))
    for generation in range(2, 31):
        member.feed(Polled(), after_ms=1_000.0).answer_join(generation=generation).answer_sync("orders-0")
        member.feed(Enforce("another one has joined")).notified()
        assert member.phase is Phase.JOINING
    member.feed(Polled(), after_ms=1_000.0).feed(Tick())
    assert why_overdue(member) == ["the drain was not done within 30000 ms"]
