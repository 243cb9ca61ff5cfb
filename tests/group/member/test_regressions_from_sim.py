"""Faults of the member's machine that random worlds found. Each test tells its story: symptom, cause, invariant."""

from __future__ import annotations

from driven import Driven, Revoked, tps

from holdfast.group.member import Assigned, Close, Phase, Tick
from holdfast.group.messages import LeaveRequest
from holdfast.model import ErrorCode, RebalanceProtocol


def beat(member: Driven) -> Driven:
    """Let the next heartbeat be sent."""
    return member.feed(Tick(), after_ms=member.state.config.heartbeat_interval_ms)


def test_a_close_while_the_listener_gives_up_partitions_does_not_revoke_them_twice() -> None:
    """World 107. Symptom: the listener was told "revoked" twice for one partition. Cause: a close that came while the
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
