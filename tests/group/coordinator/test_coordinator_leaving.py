"""How members and groups go: LeaveGroup, silence, lost connections, deletion, the coordinator's own end."""

from __future__ import annotations

from coordinator_world import T0, World, subscription

from holdfast.group.coordinator import (
    AdminRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    GroupTombstone,
    Reply,
    State,
)
from holdfast.group.coordinator.events import PendingExpired, SessionExpired
from holdfast.group.messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    Leaver,
    LeaveRequest,
    OffsetEntry,
    Request,
    SyncRequest,
)
from holdfast.model import ErrorCode, Membership

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestLeaving:
    def test_a_member_that_leaves_starts_a_round_in_its_name(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        assert world.leave(b.member_id, reason="the consumer is being closed") == [NONE]
        assert world.state is State.PREPARING
        assert world.beat(b) is UNKNOWN
        assert world.causes()[-1] == f"{b.member_id} left: the consumer is being closed"
        assert world.joined(world.join(a.member_id)).membership.generation == a.generation + 1

    def test_several_leave_in_one_request_with_one_verdict_each(self) -> None:
        world = World()
        a, b, c, x = world.stable("a", "b", "c", "~x")
        verdicts = world.leave_as(
            Leaver(member_id=b.member_id),
            Leaver(member_id="who"),
            Leaver(member_id=b.member_id),
            Leaver(instance_id="x"),
            Leaver(instance_id="nobody"),
            Leaver(member_id=c.member_id, instance_id="x"),
            Leaver(),
        )
        assert verdicts == [NONE, UNKNOWN, UNKNOWN, NONE, UNKNOWN, UNKNOWN, UNKNOWN]
        assert world.member_ids == sorted([a.member_id, c.member_id])
        assert len(world.causes()) == 2 + 1
        assert x.member_id not in world.member_ids

    def test_a_static_member_named_with_a_wrong_id_is_fenced(self) -> None:
        world = World()
        world.stable("~x")
        verdict = world.leave_as(Leaver(member_id="old", instance_id="x"))
        assert verdict == [ErrorCode.FENCED_INSTANCE_ID]
        assert world.state is State.STABLE

    def test_the_last_to_leave_leaves_an_empty_group_with_a_new_generation(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a)
        assert world.leave(a.member_id) == [NONE]
        assert world.state is State.EMPTY
        assert world.generation == a.generation + 1
        assert world.committed() == {T0: 1}

    def test_a_parked_join_of_somebody_removed_is_answered(self) -> None:
        world = World()
        a, _ = world.stable("a", "~x")
        parked = world.join(a.member_id)
        assert world.leave(a.member_id) == [NONE]
        assert world.joined(parked).error is UNKNOWN
        assert world.joined(parked).membership == Membership("")

    def test_a_parked_sync_of_somebody_removed_is_answered(self) -> None:
        world = World()
        a, x = world.stable("a", "~x")
        world.join(a.member_id)
        world.join(x.member_id, instance_id="x", client_id="x")
        parked = world.sync(Membership(x.member_id, world.generation))
        assert world.leave_as(Leaver(instance_id="x")) == [NONE]
        assert world.synced(parked).error is UNKNOWN

    def test_the_barrier_no_longer_waits_for_those_who_left(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        token = world.join(a.member_id)
        assert token not in world.answers
        world.leave(b.member_id)
        assert world.joined(token).error is NONE

    def test_the_eldest_leads_when_the_leader_has_left(self) -> None:
        world = World()
        a, b, c = world.stable("a", "b", "c")
        world.leave(a.member_id)
        world.join(c.member_id)
        assert world.joined(world.join(b.member_id)).leader == b.member_id

    def test_leaving_a_group_that_is_not_there_is_unknown(self) -> None:
        assert World().leave("who", "whom") == [UNKNOWN, UNKNOWN]

    def test_a_very_long_reason_is_cut(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.leave(a.member_id, reason="r" * 40_000)
        assert len(world.causes()[-1]) < 400


class TestConnectionsThatEnd:
    def test_the_member_stays_and_its_word_stands(self) -> None:
        """It has joined: the round need not wait for it. It may still fetch the answer it missed."""
        world = World()
        a, b = world.stable("a", "b")
        lost = world.join(a.member_id)
        world.disconnect(lost)
        token = world.join(b.member_id)
        assert world.joined(token).error is NONE
        assert lost not in world.answers
        again = world.joined(world.join(a.member_id))
        assert again.membership == Membership(a.member_id, world.generation)
        assert len(again.members) == 2

    def test_if_it_does_not_come_back_its_session_ends(self) -> None:
        world = World()
        a, b = world.stable("a", "b", rebalance_timeout_ms=600_000)
        world.disconnect(world.join(a.member_id, rebalance_timeout_ms=600_000))
        world.pass_time(30_000)
        world.beat(b)
        world.pass_time(15_000)
        assert world.member_ids == [b.member_id]

    def test_a_lost_sync_can_be_sent_again(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        world.join(a.member_id)
        world.join(b.member_id)
        now = [Membership(each.member_id, world.generation) for each in (a, b)]
        lost = world.sync(now[1])
        world.disconnect(lost)
        world.plan([now[0]])
        assert lost not in world.answers
        assert world.synced(world.sync(now[1])).error is NONE

    def test_a_new_member_that_knows_its_id_has_a_session_to_come_back(self) -> None:
        world = World()
        (a,) = world.stable("a")
        known = world.joined(world.join(requires_known_member_id=True)).membership.member_id
        world.disconnect(world.join(known))
        assert known in world.member_ids
        back = world.join(known)
        world.join(a.member_id)
        assert world.joined(back).error is NONE

    def test_coming_back_gives_a_new_member_its_whole_time_to_wait(self) -> None:
        world = World()
        (a,) = world.stable("a", rebalance_timeout_ms=600_000)
        known = world.joined(world.join(requires_known_member_id=True)).membership.member_id
        world.disconnect(world.join(known, rebalance_timeout_ms=600_000))
        back = world.join(known, rebalance_timeout_ms=600_000)
        for _ in range(6):
            world.pass_time(40_000)
            world.beat(a)
        assert back not in world.answers
        assert known in world.member_ids

    def test_somebody_who_did_not_wait_is_nobodys_loss(self) -> None:
        world = World()
        world.stable("a")
        assert world.coordinator.disconnected(12345, world.now) == []


class TestDeleting:
    def delete(self, world: World, group: str = "g") -> ErrorCode:
        answer = world.answers[world.send(DeleteGroupRequest(group=group))]
        error = answer.error
        assert isinstance(error, ErrorCode)
        return error

    def test_only_an_empty_group_is_deleted(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a)
        assert self.delete(world) is ErrorCode.NON_EMPTY_GROUP
        world.leave(a.member_id)
        assert self.delete(world) is NONE
        assert world.committed() == {}
        assert world.coordinator.list_groups() == []
        assert world.log[-1] == GroupTombstone("g")
        assert self.delete(world) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_name_used_again_starts_from_nothing(self) -> None:
        """edge C69 K-4704 K-5600: what was deleted came back with the new group of the same name."""
        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 42})
        world.leave(a.member_id)
        self.delete(world)
        (b,) = world.stable("b")
        assert b.generation == 1
        assert world.committed() == {}
        after = world.restarted()
        assert after.committed() == {}
        assert after.generation == 1
        assert after.member_ids == [b.member_id]

    def test_a_dead_group_answers_that_the_coordinator_is_not_available(self) -> None:
        """edge C66 K-8386 K-7196

        A group is deleted or unloaded while a request for it is already at the door. Told "unknown member", the client
        gave up its place; it must look the coordinator up again instead.
        """
        world = World()
        (a,) = world.stable("a")
        group = world.group
        group.unload(world.now)
        assert group.roster.state is State.DEAD
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        protocols = (("range", subscription()),)
        requests: list[tuple[Request | AdminRequest, ErrorCode]] = [
            (JoinRequest(group="g", membership=Membership(), protocols=protocols), GONE),
            (JoinRequest(group="g", membership=Membership(), instance_id="i", protocols=protocols), GONE),
            (JoinRequest(group="g", membership=a, protocols=protocols), GONE),
            (SyncRequest(group="g", membership=a), GONE),
            (HeartbeatRequest(group="g", membership=a), GONE),
            (LeaveRequest(group="g", members=(Leaver(member_id=a.member_id),)), GONE),
            (FetchOffsetsRequest(group="g"), NONE),
            (DeleteGroupRequest(group="g"), not_found),
            (DeleteOffsetsRequest(group="g", partitions=(T0,)), not_found),
        ]
        for request, error in requests:
            (reply,) = group.handle("token", request, world.now)
            assert isinstance(reply, Reply)
            assert getattr(reply.answer, "error") is error  # noqa: B009  (answers of many kinds, one field)
        (reply,) = group.handle("token", CommitRequest(group="g", offsets={T0: OffsetEntry(1)}), world.now)
        assert isinstance(reply, Reply)
        assert isinstance(reply.answer, CommitAnswer)
        assert reply.answer.first_error is GONE

    def test_timers_of_members_gone_do_nothing(self) -> None:
        """edge C66 K-8896: a heartbeat timer fired for a member that had left, and failed the whole tick."""
        world = World()
        a, b = world.stable("a", "b")
        world.leave(a.member_id, b.member_id)
        self.delete(world)
        assert world.coordinator.next_deadline() is None
        assert world.coordinator.tick(world.now + 1e9) == []

    def test_a_timer_that_meets_somebody_gone_is_harmless_in_itself(self) -> None:
        """edge C66 K-8896"""
        world = World()
        world.stable("a")
        assert world.group.happen(SessionExpired("gone"), world.now) == []
        assert world.group.happen(PendingExpired("gone"), world.now) == []
        assert world.state is State.STABLE


class TestClosing:
    def test_whoever_waits_is_sent_away_and_nobody_is_left_waiting(self) -> None:
        """edge C71 K-10614: unloading answers what is parked, and nothing of the group stays behind."""
        world = World()
        a, b = world.stable("a", "b")
        parked = world.join(a.member_id)
        world.perform(world.coordinator.close(world.now))
        assert world.joined(parked).error is ErrorCode.NOT_COORDINATOR
        assert world.coordinator.waiting == 0
        assert world.coordinator.next_deadline() is None
        assert world.beat(b) is GONE
        assert world.join_error() is GONE

    def test_parked_syncs_too(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        world.join(a.member_id)
        world.join(b.member_id, protocols=(("range", subscription("new")),))
        parked = world.sync(Membership(b.member_id, world.generation))
        world.perform(world.coordinator.close(world.now))
        assert world.synced(parked).error is ErrorCode.NOT_COORDINATOR

    def test_what_was_written_is_there_for_the_next(self) -> None:
        """edge C71 K-10614"""
        world = World()
        (a,) = world.stable("a")
        world.commit(a)
        world.perform(world.coordinator.close(world.now))
        after = world.restarted()
        assert after.beat(a) is NONE
        assert after.committed() == {T0: 1}
