"""Faults of the member's machine that random worlds found. Each test tells its story: symptom, cause, invariant."""

from __future__ import annotations

from driven import Driven, Lost, Revoked, tps

from holdfast.group.member import (
    Assigned,
    Close,
    CommitAnswered,
    JoinAnswered,
    MetadataChanged,
    Phase,
    Plan,
    Planned,
    Poke,
    Polled,
    Tick,
)
from holdfast.group.messages import JoinAnswer, JoinRequest, LeaveRequest, OffsetEntry
from holdfast.group.user_data import Endpoint, LeaderNote, MemberNote, read_member_note
from holdfast.model import ClusterView, ErrorCode, Membership, RebalanceProtocol, TopicPartition, TopicView

LISTED = ("cooperative-sticky",)


def beat(member: Driven) -> Driven:
    """Let the next heartbeat be sent."""
    return member.feed(Tick(), after_ms=member.state.config.heartbeat_interval_ms)


def test_a_close_while_the_listener_gives_up_partitions_does_not_revoke_them_twice() -> None:
    """Symptom: the listener was told "revoked" twice for one partition. Cause: a close that came while the
    revoke before a join was still with the listener asked for a revoke of its own, of everything still on the books.
    Invariant I6: assigned, then exactly one of revoked or lost.
    """
    member = Driven(RebalanceProtocol.EAGER).stable_with("orders-0", "orders-1")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.calls() == [Revoked(tps("orders-0", "orders-1"))]
    member.feed(Close("bye"))
    assert member.phase is Phase.LEAVING
    assert member.calls() == []
    member.notified()
    assert member.calls() == []
    assert len(member.requests(LeaveRequest)) == 1


def test_a_close_while_the_listener_takes_up_partitions_revokes_them_afterwards() -> None:
    """The same cause seen from the other side: what the listener was just being given was forgotten by the close, and
    never revoked. Invariant I6.
    """
    member = Driven().stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.answer_join(generation=2).answer_sync("orders-0", "orders-1")
    assert Assigned(tps("orders-1")) in member.calls()
    member.feed(Close("bye"))
    assert member.calls() == []
    member.notified()
    assert member.calls() == [Revoked(tps("orders-0", "orders-1"))]
    member.notified()
    assert len(member.requests(LeaveRequest)) == 1


def test_a_fatal_error_while_the_listener_gives_up_partitions_does_not_lose_them_too() -> None:
    """Symptom: partitions were revoked and then lost. Cause: the commit in a revoke was answered
    FENCED_INSTANCE_ID; the member failed and declared lost what it was revoking. Invariant I6.
    """
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0")
    member.feed(Close("restarting"))
    assert member.calls() == [Revoked(tps("orders-0"))]
    member.feed(CommitAnswered(member.state.membership, ErrorCode.FENCED_INSTANCE_ID))
    assert member.phase is Phase.FAILED
    assert member.calls() == []


def test_a_fatal_error_while_the_listener_takes_up_partitions_loses_those_too() -> None:
    """The other side of the same cause: what was being assigned is lost as well, once the listener knows it. I6."""
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.answer_join(generation=2).answer_sync("orders-0", "orders-1")
    member.feed(CommitAnswered(member.state.membership, ErrorCode.FENCED_INSTANCE_ID))
    assert member.calls() == [Lost(tps("orders-0", "orders-1"))]


def test_a_static_member_that_returns_does_not_trust_positions_from_before_its_restart() -> None:
    """Symptom: a committed offset went back from 2352 to 460. Cause: a static member that restarts gets the
    assignment of the last round once more, however old, and with it the position that had been handed over in that
    round; it started there and committed it at once. Invariant I3: committed offsets go back only by a reset.
    """
    note = LeaderNote(positions={TopicPartition("orders", 3): OffsetEntry(460)})
    returned = Driven(settings={"instance_id": "pod-0"}).subscribe().answer_join(generation=2)
    returned.answer_sync("orders-3", note=note)
    assert Assigned(tps("orders-3"), {}) in returned.calls()

    running = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0")
    beat(running).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    running.answer_join(generation=2).answer_sync("orders-0", "orders-3", note=note)
    assert Assigned(tps("orders-3"), {TopicPartition("orders", 3): OffsetEntry(460)}) in running.calls()


def returning_leader(note: LeaderNote | None) -> Driven:
    """A static leader that restarts finds `orders` with 8 partitions, and is told to skip planning."""
    member = Driven(settings={"instance_id": "pod-0"})
    member.feed(MetadataChanged(ClusterView({"orders": TopicView(8)}))).subscribe()
    answer = JoinAnswer(
        membership=Membership("m-2", 5), protocol="cooperative-sticky", leader="m-2", skip_assignment=True
    )
    member.feed(JoinAnswered(member.pending, answer)).answer_sync("orders-0", note=note).notified()
    return member


def test_a_returning_leader_notices_that_a_topic_grew_while_it_was_away() -> None:
    """Symptom: new partitions were never processed. Cause: a static leader that restarts is told to skip
    planning (KIP-814); it took the topics as it found them for those the plan was made for, so the growth during its
    absence went unnoticed. Invariant I4. Its plan now carries a note to itself.
    """
    assert len(returning_leader(LeaderNote(planned_for={"orders": 2})).joins()) == 1
    assert len(returning_leader(LeaderNote()).joins()) == 1, "a plan of another make tells nothing: ask for a round"


def test_a_returning_leader_disturbs_nobody_when_nothing_changed() -> None:
    """The other side: with its topics as planned there is no round, which is what static membership is for."""
    member = returning_leader(LeaderNote(planned_for={"orders": 8}))
    assert member.joins() == []
    assert member.phase is Phase.STABLE
    member.feed(MetadataChanged(ClusterView({"orders": TopicView(9)})))
    assert len(member.joins()) == 1


def test_a_member_that_lost_its_membership_meanwhile_hands_no_positions_over() -> None:
    """Symptom: a committed offset went back from 1233 to 1203. Cause: the application hung in a revoke, the
    group went on without it, and the join that followed the revoke still carried the positions of before. Invariant I3.
    """
    member = Driven(RebalanceProtocol.EAGER).stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    beat(member).answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    member.notified(orders_0=1203)
    (join,) = member.joins()
    assert read_member_note(join.user_data) == MemberNote(assignors=LISTED)


def test_positions_are_forgotten_when_the_join_that_carries_them_is_refused() -> None:
    """The same danger a moment later: the join was on its way when the membership was lost. Invariant I3."""
    member = Driven(RebalanceProtocol.EAGER).stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.notified(orders_0=1203)
    carried = MemberNote(positions={TopicPartition("orders", 0): OffsetEntry(1203)}, assignors=LISTED)
    assert read_member_note(member.joins()[0].user_data) == carried
    member.refuse_join(ErrorCode.UNKNOWN_MEMBER_ID)
    assert read_member_note(member.joins()[0].user_data) == MemberNote(assignors=LISTED)


def test_a_member_that_evicts_itself_pokes_the_others() -> None:
    """Symptom: after an application had hung for max.poll.interval.ms, its partitions stayed dark for another heartbeat
    interval although everybody could be poked. Cause: the leave of an eviction, which nobody waits for, poked nobody.
    """
    mine, theirs = Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2)
    note = LeaderNote(peers=(mine, theirs), token="t1")
    member = Driven(settings={"endpoint": mine, "max_poll_interval_ms": 30_000}).stable_with("orders-0", note=note)
    member.feed(Tick(), after_ms=30_000)
    assert member.phase is Phase.EVICTED
    assert [(poke.peers, poke.token) for poke in member.effects(Poke)] == [((theirs,), "t1")]


def test_a_static_member_that_missed_a_round_gives_up_what_it_had_before_it_goes_on() -> None:
    """Symptom: two members in good standing processed one partition. Cause: a static member was cut off
    while a round completed without it; static members are not expelled, so its next join was let in, and it went on
    with partitions that others had been given meanwhile, and would have committed them with its new generation.
    Invariants I1 and I3.
    """
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0", generation=3)
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.answer_join(generation=5)
    assert member.calls() == [Lost(tps("orders-0"))]
    member.notified()
    (join,) = member.joins()
    assert (join.owned, join.generation) == (frozenset(), 3)
    member.answer_join(generation=6)
    assert member.phase is Phase.SYNCING


def test_a_static_member_that_missed_nothing_keeps_what_it_has() -> None:
    """The other side: a round in which it took part is the next generation, and kept partitions see no gap (I5)."""
    member = Driven(settings={"instance_id": "pod-0"}).stable_with("orders-0", generation=3)
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.answer_join(generation=4)
    assert member.phase is Phase.SYNCING
    assert member.calls() == []


def test_a_member_whose_application_does_not_poll_waits_with_its_join() -> None:
    """Symptom: healthy members' partitions stood still for as long as another one's application hung. Cause: its member
    took part in the first half of a round, for which others revoked, and could not finish the second without its
    listener. With `responsive_ms` it joins when the application polls; until then nobody has revoked anything.
    """
    member = Driven(settings={"responsive_ms": 1_000.0, "max_poll_interval_ms": 30_000}).stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.phase is Phase.STABLE and member.joins() == []
    assert member.deadline == member.now, "the driver is asked for news of polls at once"
    member.feed(Tick())
    assert member.joins() == [] and member.deadline == member.now + 50.0
    member.feed(Polled(), after_ms=20.0)
    assert member.deadline == member.now
    member.feed(Tick())
    assert len(member.joins()) == 1


def test_a_member_that_waits_for_a_poll_is_still_evicted_in_time() -> None:
    member = Driven(settings={"responsive_ms": 1_000.0, "max_poll_interval_ms": 30_000}).stable_with("orders-0")
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.feed(Tick(), after_ms=27_000.0)
    assert member.phase is Phase.EVICTED


def test_a_member_whose_application_polls_joins_at_once() -> None:
    member = Driven(settings={"responsive_ms": 1_000.0}).stable_with("orders-0")
    member.feed(Polled(), after_ms=2_500.0)
    member.feed(Tick(), after_ms=500.0).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert len(member.joins()) == 1


def test_a_leader_that_keeps_partitions_back_sees_to_the_round_that_gives_them_away() -> None:
    """World 7571: a static member was away while the leader planned one of its partitions for somebody else and kept it
    back. It returned as a new process that owned nothing and had nothing to revoke, so nobody asked for the next
    round: the partition was nobody's for good. The leader knows what it keeps back, and asks if nobody else does.
    """
    member = Driven(settings={"heartbeat_interval_ms": 1_000}).subscribe()
    member.answer_join(leader="m-1", members=("m-1", "away"))
    (plan,) = member.effects(Plan)
    member.feed(Planned(plan.serial, {"m-1": b"", "away": b""}, {"orders": 3}, withheld=True))
    member.answer_sync().notified()
    assert member.phase is Phase.STABLE
    while not member.requests(JoinRequest):
        assert member.deadline is not None and member.deadline <= 2_000.0, "two heartbeat intervals at the latest"
        member.feed(Tick(), after_ms=member.deadline - member.now)
        if member.state.requests.heartbeat is not None:
            member.answer_heartbeat()
    assert member.now == 2_000.0


def test_a_leader_that_keeps_nothing_back_asks_for_nothing() -> None:
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1",)).planned(orders=1).answer_sync("orders-0")
    assert member.notified().state.planning.again_at is None
