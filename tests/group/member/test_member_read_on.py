"""What a round takes from a member of a large group is read on until the others have joined the next one.

Symptom: a join into a group of 400 paused what it moved for a third of a second and more. Cause: the partition's owner
revoked it at once, and the next round begins when the last of the 400 has joined it. Rule: where the leader says that
nobody else can have it before we join again, we come last, and revoke just before.
"""

from __future__ import annotations

from driven import Driven, tps

from holdfast.group.member import Close, CommitAnswered, Enforce, Phase, Revoked, SyncAnswered, Tick
from holdfast.group.messages import HeartbeatRequest, SyncAnswer
from holdfast.group.short_notes import encode_short_note
from holdfast.group.user_data import LeaderNote
from holdfast.model import Assignment, ErrorCode
from holdfast.model.consumer_protocol import encode_assignment

TAKEN = LeaderNote(withheld=True, read_on=True, all_read=True)


def takes_one(note: LeaderNote, *, half_ms: float = 100.0) -> Driven:
    """A member with two partitions, of which this round takes one; from its join's answer to its sync's: `half_ms`."""
    member = Driven().stable_with("orders-0", "orders-1")
    member.feed(Enforce("test")).answer_join(generation=2)
    given = Assignment(partitions=tps("orders-0"), user_data=encode_short_note(note))
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=encode_assignment(given))), after_ms=half_ms)
    return member


def test_what_was_taken_is_read_on_and_given_up_just_before_the_join() -> None:
    member = takes_one(TAKEN)
    assert not any(isinstance(call, Revoked) for call in member.calls())
    member.notified()
    assert member.phase is Phase.STABLE
    assert member.state.owned == tps("orders-0", "orders-1")
    assert member.joins() == []
    assert member.deadline == member.now + 200.0, "twice as long as half a round, after the sync"
    member.feed(Tick(), after_ms=200.0)
    assert member.phase is Phase.PREPARING
    assert Revoked(tps("orders-1")) in member.calls()
    member.notified(orders_1=7)
    assert member.state.owned == tps("orders-0")
    assert [join.owned for join in member.joins()] == [tps("orders-0")]


def test_the_round_that_the_others_have_begun_does_not_hurry_it() -> None:
    member = takes_one(TAKEN, half_ms=1_400.0).notified()
    member.feed(CommitAnswered(member.state.membership, ErrorCode.REBALANCE_IN_PROGRESS), after_ms=10.0)
    assert member.requests(HeartbeatRequest), "a doubtful answer makes it ask"
    member.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.phase is Phase.STABLE
    assert member.state.owned == tps("orders-0", "orders-1")
    member.feed(Tick(), after_ms=2_790.0)
    assert Revoked(tps("orders-1")) in member.calls()


def test_it_is_not_longer_than_a_heartbeat_interval() -> None:
    member = takes_one(TAKEN, half_ms=60_000.0).notified()
    member.feed(Tick(), after_ms=3_000.0)
    assert Revoked(tps("orders-1")) in member.calls()


def test_without_the_leaders_word_it_is_given_up_at_once() -> None:
    member = takes_one(LeaderNote(withheld=True, all_read=True))
    assert Revoked(tps("orders-1")) in member.calls()


def test_whoever_closes_meanwhile_gives_up_everything() -> None:
    member = takes_one(TAKEN).notified()
    member.feed(Close("done"))
    assert Revoked(tps("orders-0", "orders-1")) in member.calls()
