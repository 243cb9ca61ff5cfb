"""SyncGroup and Heartbeat: the sync barrier, who counts as alive, what each state answers."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator_world import World, subscription

from holdfast.group.coordinator import State
from holdfast.model import ErrorCode, Membership

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def completing(world: World, **more: Any) -> tuple[Membership, Membership]:
    """Two members with a generation and no plan."""
    a, b = world.stable("a", "b", **more)
    world.join(a.member_id, **more)
    world.join(b.member_id, **more)
    assert world.state is State.COMPLETING
    return Membership(a.member_id, world.generation), Membership(b.member_id, world.generation)


class TestSync:
    def test_everybody_waits_for_the_leaders_plan(self) -> None:
        world = World()
        a, b = completing(world)
        waiting = world.sync(b)
        assert waiting not in world.answers
        plan = world.sync(a, {a.member_id: b"for a", b.member_id: b"for b"})
        assert world.synced(plan).assignment == b"for a"
        assert world.synced(waiting).assignment == b"for b"
        assert world.synced(waiting).protocol == "range"
        assert world.synced(waiting).protocol_type == "consumer"
        assert world.state is State.STABLE

    def test_only_the_leaders_plan_counts(self) -> None:
        world = World()
        a, b = completing(world)
        impostor = world.sync(b, {a.member_id: b"nothing", b.member_id: b"everything"})
        world.sync(a, {b.member_id: b"a little"})
        assert world.synced(impostor).assignment == b"a little"

    def test_whoever_the_leader_leaves_out_gets_no_bytes(self) -> None:
        world = World()
        a, b = completing(world)
        world.sync(a, {a.member_id: b"all", "stranger": b"none"})
        answer = world.synced(world.sync(b))
        assert answer.error is ErrorCode.NONE
        assert answer.assignment == b""

    def test_a_stable_group_answers_the_stored_part(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        assert world.synced(world.sync(b)).assignment == b.member_id.encode()
        assert world.synced(world.sync(a, {a.member_id: b"new"})).assignment == a.member_id.encode()

    def test_the_plan_is_durable_before_it_is_answered(self) -> None:
        world = World()
        a, b = completing(world)
        world.sync(a, {b.member_id: b"for b"})
        after = world.restarted()
        assert after.state is State.STABLE
        assert after.synced(after.sync(b)).assignment == b"for b"

    def test_what_each_state_answers(self) -> None:
        world = World()
        who = Membership("a-1", 1)
        assert world.sync_error(who) is UNKNOWN
        world.commit()
        assert world.sync_error(who) is UNKNOWN
        (a,) = world.stable("a")
        assert world.sync_error(a) is ErrorCode.NONE
        assert world.sync_error(Membership(a.member_id, a.generation - 1)) is STALE
        assert world.sync_error(Membership("who", a.generation)) is UNKNOWN
        world.join(client_id="b")
        assert world.sync_error(a) is REBALANCING
        assert world.sync_error(Membership("who", a.generation)) is UNKNOWN

    @pytest.mark.parametrize("wrong", [{"protocol": "sticky"}, {"protocol_type": "connect"}])
    def test_a_protocol_that_is_not_the_groups_is_inconsistent(self, wrong: dict[str, str]) -> None:
        world = World()
        (a,) = world.stable("a")
        assert world.sync_error(a, **wrong) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.sync_error(a, protocol="range", protocol_type="consumer") is ErrorCode.NONE
        assert world.sync_error(a, protocol=None, protocol_type=None) is ErrorCode.NONE

    def test_a_new_round_sends_parked_syncs_back_to_join(self) -> None:
        world = World()
        _, b = completing(world)
        waiting = world.sync(b)
        world.join(client_id="c")
        assert world.synced(waiting).error is REBALANCING
        assert world.beat(b) is REBALANCING

    def test_a_second_sync_of_a_parked_member_takes_the_place_of_the_first(self) -> None:
        world = World()
        a, b = completing(world)
        first, second = world.sync(b), world.sync(b)
        assert world.synced(first).error is REBALANCING
        world.sync(a, {b.member_id: b"b"})
        assert world.synced(second).assignment == b"b"


class TestMembersThatNeverSync:
    def test_they_are_expelled_at_the_rebalance_timeout(self) -> None:
        """edge C59 K-12890

        A member takes its generation, heartbeats, and never syncs: it owned nothing and was kept for ever, together
        with the partitions planned for it. The sync barrier has a deadline, in Stable too.
        """
        world = World()
        a, b = completing(world, rebalance_timeout_ms=60_000)
        world.sync(a, {a.member_id: b"a", b.member_id: b"b"})
        assert world.state is State.STABLE
        for _ in range(6):
            world.pass_time(9_999)
            world.beat(a)
            world.beat(b)
        world.pass_time(6)
        assert world.member_ids == [a.member_id]
        assert world.beat(a) is REBALANCING
        assert f"{b.member_id} joined and did not sync" in world.causes()[-1]
        assert world.steps("member-expelled")[-1].culprit == b.member_id

    def test_a_leader_that_never_syncs_is_expelled_and_the_others_join_again(self) -> None:
        """edge C59 K-12890"""
        world = World()
        a, b = completing(world, rebalance_timeout_ms=60_000)
        waiting = world.sync(b)
        for _ in range(6):
            world.pass_time(10_000)
            world.beat(a)
        assert world.synced(waiting).error is REBALANCING
        assert world.member_ids == [b.member_id]
        assert world.joined(world.join(b.member_id)).leader == b.member_id

    def test_when_nobody_syncs_the_group_is_empty(self) -> None:
        world = World()
        a, _ = completing(world, session_timeout_ms=600_000, rebalance_timeout_ms=60_000)
        world.pass_time(60_000)
        assert world.state is State.EMPTY
        assert world.beat(a) is UNKNOWN

    def test_once_all_have_synced_nobody_is_expelled(self) -> None:
        world = World()
        a, b = world.stable("a", "b", rebalance_timeout_ms=60_000)
        for _ in range(20):
            world.pass_time(10_000)
            world.beat(a)
            world.beat(b)
        assert world.state is State.STABLE


class TestHeartbeat:
    def test_what_each_state_answers(self) -> None:
        world = World()
        assert world.beat(Membership("who", 1)) is UNKNOWN
        world.commit()
        assert world.beat(Membership("who", 1)) is UNKNOWN
        a, b = completing(world)
        assert world.beat(a) is ErrorCode.NONE
        assert world.beat(Membership(a.member_id, a.generation - 1)) is STALE
        world.plan([a, b])
        assert world.beat(a) is ErrorCode.NONE
        world.join(client_id="c")
        assert world.beat(a) is REBALANCING
        assert world.beat(Membership(a.member_id, a.generation - 1)) is STALE

    def test_it_keeps_the_session(self) -> None:
        world = World()
        (a,) = world.stable("a")
        for _ in range(5):
            world.pass_time(44_999)
            assert world.beat(a) is ErrorCode.NONE
        world.pass_time(45_000)
        assert world.beat(a) is UNKNOWN

    def test_a_refused_one_does_not_keep_the_session(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.pass_time(44_999)
        world.beat(Membership(a.member_id, 99))
        world.pass_time(1)
        assert world.state is State.EMPTY

    def test_a_parked_member_does_not_expire_and_gets_a_whole_session_afterwards(self) -> None:
        world = World()
        a, b = world.stable("a", "b", rebalance_timeout_ms=600_000)
        token = world.join(a.member_id, rebalance_timeout_ms=600_000)
        for _ in range(10):
            world.pass_time(30_000)
            world.beat(b)
        world.join(b.member_id, rebalance_timeout_ms=600_000)
        assert world.joined(token).error is ErrorCode.NONE
        world.pass_time(44_999)
        assert len(world.member_ids) == 2
        world.pass_time(1)
        assert world.member_ids == []

    def test_a_member_parked_in_sync_does_not_expire(self) -> None:
        world = World()
        a, b = completing(world)
        waiting = world.sync(b)
        for _ in range(4):
            world.pass_time(30_000)
            world.beat(a)
        world.sync(a, {b.member_id: b"b"})
        assert world.synced(waiting).assignment == b"b"

    def test_a_commit_counts_as_one(self) -> None:
        """edge C72 K-3470: a member busy committing was thrown out for not heartbeating."""
        world = World()
        (a,) = world.stable("a")
        for _ in range(5):
            world.pass_time(44_999)
            assert world.commit(a) is ErrorCode.NONE
        world.join(client_id="b", protocols=(("range", subscription()),))
        for _ in range(3):
            world.pass_time(44_999)
            assert world.commit(a) is ErrorCode.NONE
        assert a.member_id in world.member_ids
