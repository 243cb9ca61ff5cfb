"""JoinGroup: ids, the join barrier, the initial delay, protocols, sizes."""

from __future__ import annotations

import pytest
from coordinator_world import World, subscription

from holdfast.group.coordinator import State
from holdfast.group.messages import CommitRequest, HeartbeatRequest, LeaveRequest, OffsetEntry, SyncRequest
from holdfast.model import ErrorCode, JoinedMember, Membership, TopicPartition

RANGE = (("range", subscription()),)
MINUTE = 60_000


class TestTheBarrier:
    def test_the_first_member_leads_and_hears_of_everybody(self) -> None:
        world = World()
        answer = world.joined(world.join(client_id="a"))
        assert answer.error is ErrorCode.NONE
        assert answer.membership == Membership("a-1", 1)
        assert answer.leader == "a-1"
        assert answer.protocol == "range"
        assert answer.protocol_type == "consumer"
        assert answer.members == (JoinedMember(member_id="a-1", metadata=subscription()),)

    def test_a_second_member_waits_until_the_first_has_joined_again(self) -> None:
        world = World()
        (a,) = world.stable("a")
        waiting = world.join(client_id="b")
        assert waiting not in world.answers
        assert world.state is State.PREPARING
        assert world.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
        again = world.join(a.member_id, client_id="a")
        assert world.joined(again).membership == Membership(a.member_id, 2)
        follower = world.joined(waiting)
        assert follower.membership.generation == 2
        assert follower.leader == a.member_id
        assert follower.members == ()
        assert [each.member_id for each in world.joined(again).members] == sorted(world.member_ids)

    def test_the_leader_is_answered_first_because_the_others_wait_for_its_plan(self) -> None:
        world = World()
        a, *_ = world.stable("a", "b", "c")
        tokens = {"d": world.join(client_id="d"), "b": world.join(world.members_by_name()["b"])}
        tokens["a"] = world.join(a.member_id)
        last = world.join(world.members_by_name()["c"], client_id="c")
        assert last in world.answers
        assert world.order[-4:][0] == tokens["a"]

    def test_the_rebalance_timeout_is_the_slowest_members(self) -> None:
        world = World()
        world.stable("a", session_timeout_ms=MINUTE, rebalance_timeout_ms=20_000)
        waiting = world.join(client_id="b", session_timeout_ms=MINUTE, rebalance_timeout_ms=30_000)
        world.pass_time(29_999)
        assert waiting not in world.answers
        world.pass_time(1)
        assert world.joined(waiting).membership.generation == 2
        assert world.member_ids == ["b-2"]

    def test_a_member_that_does_not_join_again_in_time_is_expelled_and_named(self) -> None:
        world = World()
        (a,) = world.stable("a", session_timeout_ms=MINUTE, rebalance_timeout_ms=20_000)
        world.join(client_id="b", rebalance_timeout_ms=20_000)
        world.pass_time(20_000)
        assert world.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID
        (record,) = world.steps("member-expelled")
        assert record.culprit == a.member_id
        assert "did not join again within the rebalance timeout" in (record.cause or "")

    def test_when_the_leader_is_late_the_eldest_that_came_leads(self) -> None:
        world = World()
        _, b, c = world.stable("a", "b", "c", session_timeout_ms=MINUTE, rebalance_timeout_ms=20_000)
        world.join(c.member_id, session_timeout_ms=MINUTE, protocols=(("range", subscription("other")),))
        token = world.join(b.member_id, session_timeout_ms=MINUTE)
        world.pass_time(300_000)
        assert world.joined(token).leader == b.member_id

    def test_a_second_join_of_a_parked_member_takes_the_place_of_the_first(self) -> None:
        world = World()
        world.stable("a")
        first = world.join(client_id="b")
        b = world.members_by_name()["b"]
        second = world.join(b, client_id="b")
        assert world.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert second not in world.answers
        assert world.coordinator.waiting == 1

    def test_the_round_after_an_interrupted_one_needs_everybody_again(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        world.join(client_id="c")
        world.join(a.member_id)
        world.join(b.member_id)
        assert world.state is State.COMPLETING
        world.join(client_id="d")
        assert world.state is State.PREPARING
        assert len(world.group.roster.awaited) == 3


class TestTheInitialDelay:
    def test_the_first_round_waits_for_more_members(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        first = world.join(client_id="a")
        assert world.state is State.PREPARING
        world.pass_time(2_999)
        assert first not in world.answers
        world.pass_time(1)
        assert world.joined(first).membership.generation == 1

    def test_newcomers_extend_it_up_to_the_rebalance_timeout(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        world.join(client_id="m", rebalance_timeout_ms=10_000)
        for _ in range(4):
            world.pass_time(2_000)
            world.join(client_id="m", rebalance_timeout_ms=10_000)
        assert world.state is State.PREPARING
        world.pass_time(1_999)
        assert world.state is State.PREPARING
        world.pass_time(1)
        assert world.state is State.COMPLETING
        assert len(world.member_ids) == 5
        assert world.generation == 1

    def test_without_newcomers_it_ends_after_one_delay(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        world.join(client_id="a")
        world.pass_time(1_000)
        world.join(client_id="b")
        world.pass_time(2_000)
        assert world.state is State.PREPARING
        world.pass_time(3_000)
        assert world.state is State.COMPLETING

    def test_ids_given_out_do_not_hold_up_the_first_round(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        world.join(client_id="slow", requires_known_member_id=True)
        world.join(client_id="a")
        world.pass_time(3_000)
        assert world.state is State.COMPLETING

    def test_when_all_leave_during_it_the_group_is_empty_at_once(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        token = world.join(client_id="a")
        assert world.leave("a-1") == [ErrorCode.NONE]
        assert world.joined(token).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.state is State.EMPTY
        assert world.generation == 1


class TestIds:
    def test_a_stranger_is_given_an_id_and_joins_with_it(self) -> None:
        """edge C61 K-7824: the id comes before the membership, so that retries don't make ghosts."""
        world = World()
        answer = world.joined(world.join(client_id="a", requires_known_member_id=True))
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert answer.membership == Membership("a-1")
        assert world.member_ids == []
        assert world.joined(world.join("a-1", client_id="a")).membership == Membership("a-1", 1)

    def test_the_join_barrier_waits_for_an_id_given_out_and_completes_when_it_times_out(self) -> None:
        """edge C61 K-7824 K-7909: a pending member that never comes back must not hold the round for ever."""
        world = World()
        (a,) = world.stable("a")
        world.join(client_id="ghost", requires_known_member_id=True, session_timeout_ms=6_000)
        waiting = world.join(client_id="b")
        again = world.join(a.member_id)
        world.pass_time(5_999)
        assert waiting not in world.answers
        world.pass_time(1)
        assert world.joined(waiting).error is ErrorCode.NONE
        assert world.joined(again).error is ErrorCode.NONE
        assert "never came back" in (world.steps("member-expired")[-1].cause or "")

    def test_a_pending_member_that_leaves_lets_the_round_complete(self) -> None:
        """edge C61 K-7909"""
        world = World()
        (a,) = world.stable("a")
        ghost = world.joined(world.join(requires_known_member_id=True)).membership.member_id
        waiting = world.join(client_id="b")
        world.join(a.member_id)
        assert waiting not in world.answers
        assert world.leave(ghost) == [ErrorCode.NONE]
        assert world.joined(waiting).membership.generation == 2

    def test_a_pending_member_that_leaves_does_not_disturb_a_stable_group(self) -> None:
        world = World()
        world.stable("a")
        ghost = world.joined(world.join(requires_known_member_id=True)).membership.member_id
        assert world.leave(ghost) == [ErrorCode.NONE]
        assert world.state is State.STABLE
        assert world.join_error(ghost) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_static_members_and_old_clients_are_not_asked_back(self) -> None:
        world = World()
        assert world.join_error(instance_id="i", requires_known_member_id=True) is ErrorCode.NONE
        world.leave(world.member_ids[0])
        assert world.join_error(client_id="old", requires_known_member_id=False) is ErrorCode.NONE

    def test_an_unknown_id_is_refused_in_every_state(self) -> None:
        world = World()
        assert world.join_error("who") is ErrorCode.UNKNOWN_MEMBER_ID
        world.commit()
        assert world.state is State.EMPTY
        assert world.join_error("who") is ErrorCode.UNKNOWN_MEMBER_ID
        (a,) = world.stable("a")
        assert world.join_error("who") is ErrorCode.UNKNOWN_MEMBER_ID
        world.join(client_id="b")
        assert world.join_error("who") is ErrorCode.UNKNOWN_MEMBER_ID
        world.join(a.member_id)
        assert world.state is State.COMPLETING
        assert world.join_error("who") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_pending_id_with_an_instance_id_is_unknown(self) -> None:
        world = World()
        pending = world.joined(world.join(requires_known_member_id=True)).membership.member_id
        assert world.join_error(pending, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_source_that_repeats_itself_is_asked_again(self) -> None:
        """edge C64 K-8715: member ids are unique whatever the source gives."""
        source = iter(["x", "x", "x", "y"])

        class Repeats(World):
            def new_member_id(self, name: str) -> str:
                return next(source)

        world = Repeats()
        world.join(client_id="a")
        world.join(client_id="b")
        assert world.member_ids == ["x", "y"]

    def test_a_very_long_client_name_makes_an_id_of_bearable_length(self) -> None:
        world = World()
        world.join(client_id="n" * 30_000)
        assert len(world.member_ids[0]) <= 249
        assert len(world.coordinator.describe("g").members[0].client_id) <= 249


class TestNewMembersThatNeverReturn:
    def test_a_new_members_join_is_parked_for_five_minutes_at_most(self) -> None:
        """edge C60 K-7610 K-9232 K-9752

        A client gives up on its long join and tries again, as somebody new each time. The coordinator can't tell, and
        every try stayed in the group for ever. A new member's join ends after a bounded time.
        """
        world = World()
        (a,) = world.stable("a", rebalance_timeout_ms=3_600_000)
        waiting = world.join(client_id="ghost", rebalance_timeout_ms=3_600_000)
        for _ in range(29):
            world.pass_time(10_000)
            world.beat(a)
        assert waiting not in world.answers
        world.pass_time(10_000)
        assert world.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.joined(waiting).membership == Membership("")
        assert world.member_ids == [a.member_id]

    def test_retries_with_the_bound_never_hold_more_than_five_minutes_of_ghosts(self) -> None:
        """edge C60 K-7610"""
        world = World()
        (a,) = world.stable("a", rebalance_timeout_ms=3_600_000)
        for _ in range(60):
            world.join(client_id="ghost", rebalance_timeout_ms=3_600_000)
            world.pass_time(30_000)
            world.beat(a)
        assert len(world.member_ids) <= 1 + 10

    def test_a_client_that_vanishes_before_it_knows_its_id_leaves_no_ghost(self) -> None:
        """edge C60 K-7610: the connection's end tells at once what the timeout tells after five minutes."""
        world = World()
        (a,) = world.stable("a")
        lost = world.join(client_id="ghost")
        world.disconnect(lost)
        assert world.member_ids == [a.member_id]
        again = world.join(a.member_id)
        assert world.joined(again).membership.generation == 2
        assert lost not in world.answers
        assert "went away before it was told its id" in (world.steps("member-left")[-1].cause or "")

    def test_the_bound_does_not_touch_members_that_rejoin(self) -> None:
        world = World()
        a, _ = world.stable("a", "b", rebalance_timeout_ms=1_200_000)
        token = world.join(a.member_id, rebalance_timeout_ms=1_200_000)
        for _ in range(50):
            world.pass_time(10_000)
            world.beat(Membership(world.members_by_name()["b"], 2))
        assert token not in world.answers
        assert a.member_id in world.member_ids


class TestProtocols:
    def test_the_most_liked_of_the_common_protocols_wins(self) -> None:
        world = World()
        sticky_first = (("sticky", b""), ("range", b""), ("only-me", b""))
        range_first = (("range", b""), ("sticky", b""))
        (a,) = world.stable("a", protocols=range_first)
        world.join(client_id="b", protocols=sticky_first)
        world.join(client_id="c", protocols=sticky_first)
        token = world.join(a.member_id, protocols=range_first)
        assert world.joined(token).protocol == "sticky"

    def test_with_equal_votes_the_alphabet_decides(self) -> None:
        world = World()
        (a,) = world.stable("a", protocols=(("sticky", b""), ("range", b"")))
        world.join(client_id="b", protocols=(("range", b""), ("sticky", b"")))
        token = world.join(a.member_id, protocols=(("sticky", b""), ("range", b"")))
        assert world.joined(token).protocol == "range"

    def test_the_leader_gets_the_metadata_of_the_chosen_protocol(self) -> None:
        world = World()
        token = world.join(client_id="a", protocols=(("one", b"1"), ("two", b"2"), ("one", b"3")))
        assert world.joined(token).members[0].metadata == b"1"

    def test_an_empty_list_of_protocols_or_no_type_is_refused(self) -> None:
        """edge C72 K-6005: it was accepted, and the group then had nothing to choose from."""
        world = World()
        assert world.join_error(protocols=()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.join_error(protocols=(), requires_known_member_id=True) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.join_error(protocol_type="") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.coordinator.list_groups() == []

    @pytest.mark.parametrize("knows", [True, False])
    def test_no_protocol_in_common_is_refused(self, knows: bool) -> None:
        world = World()
        world.stable("a")
        for more in ({"protocols": (("other", b""),)}, {"protocol_type": "connect"}):
            assert world.join_error(requires_known_member_id=knows, **more) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.state is State.STABLE

    def test_a_member_can_not_change_to_what_the_others_lack(self) -> None:
        world = World()
        a, _ = world.stable("a", "b", protocols=(("x", b""), ("y", b"")))
        assert world.join_error(a.member_id, protocols=(("z", b""),)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.state is State.STABLE

    def test_an_emptied_group_may_take_up_another_protocol_type(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.leave(a.member_id)
        assert world.join_error(protocol_type="connect", protocols=(("v1", b""),)) is ErrorCode.NONE
        assert world.coordinator.describe("g").protocol_type == "connect"


class TestRejoining:
    def test_a_followers_rejoin_with_nothing_new_is_answered_at_once(self) -> None:
        world = World()
        _, b = world.stable("a", "b")
        answer = world.joined(world.join(b.member_id))
        assert answer.membership == b
        assert world.state is State.STABLE
        assert world.synced(world.sync(b)).assignment == b.member_id.encode()

    def test_the_leaders_rejoin_starts_a_round(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        assert world.join(a.member_id) not in world.answers
        assert world.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_changed_subscription_starts_a_round(self) -> None:
        world = World()
        _, b = world.stable("a", "b")
        assert world.join(b.member_id, protocols=(("range", subscription("other")),)) not in world.answers
        assert world.state is State.PREPARING

    def test_while_completing_the_same_join_is_answered_once_more(self) -> None:
        world = World()
        a = world.joined(world.join(client_id="a"))
        again = world.joined(world.join("a-1", client_id="a"))
        assert again == a
        assert world.generation == 1

    def test_while_completing_a_changed_join_starts_a_new_round(self) -> None:
        world = World()
        world.join(client_id="a")
        token = world.join("a-1", protocols=(("range", subscription("other")),))
        assert world.joined(token).membership == Membership("a-1", 2)


class TestSizes:
    def test_a_full_group_refuses_newcomers(self) -> None:
        """edge C62 K-9844"""
        world = World(group_max_size=2)
        world.stable("a", "b")
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.join_error(client_id="c") is full
        assert world.join_error(client_id="c", requires_known_member_id=True) is full
        assert world.join_error(instance_id="i") is full
        assert world.state is State.STABLE

    def test_ids_given_out_before_the_group_was_full_do_not_get_past_the_limit(self) -> None:
        """edge C62 K-9844 K-9885: three strangers get ids at once, two places are left; the last to come is refused."""
        world = World(group_max_size=3)
        (a,) = world.stable("a")
        ids = [world.joined(world.join(requires_known_member_id=True)).membership.member_id for _ in range(3)]
        first, second = (world.join(each) for each in ids[:2])
        again = world.join(a.member_id)
        last = world.joined(world.join(ids[2]))
        assert last.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert {world.joined(each).error for each in (first, second, again)} == {ErrorCode.NONE}
        assert len(world.member_ids) == 3

    def test_a_group_larger_than_a_lowered_limit_shrinks_by_those_who_come_last(self) -> None:
        """edge C62 K-9885"""
        world = World()
        a, b, c = world.stable("a", "b", "c")
        smaller = world.restarted(group_max_size=2)
        tokens = [smaller.join(a.member_id, protocols=(("range", subscription("new")),)), smaller.join(b.member_id)]
        last = smaller.joined(smaller.join(c.member_id))
        assert last.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert [smaller.joined(token).error for token in tokens] == [ErrorCode.NONE, ErrorCode.NONE]
        assert smaller.member_ids == sorted([a.member_id, b.member_id])

    def test_a_returning_static_member_of_a_full_group_has_its_place(self) -> None:
        world = World(group_max_size=2)
        world.stable("~x", "~y")
        assert world.join_error(instance_id="x", client_id="x") is ErrorCode.NONE
        assert world.state is State.STABLE

    def test_absent_static_members_keep_their_places_from_newcomers(self) -> None:
        """edge C62 K-9844: the absent did not count, so that a group grew past its limit when they were kept."""
        world = World(group_max_size=3)
        a, _, _ = world.stable("a", "~x", "~y", session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        token = world.join(a.member_id, session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        assert world.join_error(client_id="b") is ErrorCode.GROUP_MAX_SIZE_REACHED
        world.pass_time(20_000)
        assert len(world.joined(token).members) == 3

    def test_of_too_many_static_members_the_last_to_come_loses_its_place(self) -> None:
        """edge C62 K-9885"""
        world = World()
        x, y, _ = world.stable("~x", "~y", "~z")
        smaller = world.restarted(group_max_size=2)
        smaller.join(x.member_id, instance_id="x", protocols=(("range", subscription("new")),))
        token = smaller.join(y.member_id, instance_id="y")
        assert smaller.join_error(instance_id="z") is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert smaller.joined(token).error is ErrorCode.NONE
        assert smaller.member_ids == sorted([x.member_id, y.member_id])

    def test_ids_given_out_are_bounded(self) -> None:
        world = World(max_pending_members=3)
        errors = [world.join_error(requires_known_member_id=True) for _ in range(4)]
        assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]

    def test_groups_are_bounded_and_the_refused_one_leaves_nothing(self) -> None:
        world = World(max_groups=2)
        assert world.join_error(group="one") is ErrorCode.NONE
        assert world.commit(group="two") is ErrorCode.NONE
        assert world.join_error(group="three") is ErrorCode.POLICY_VIOLATION
        assert world.commit(group="three") is ErrorCode.POLICY_VIOLATION
        assert [listing.group for listing in world.coordinator.list_groups()] == ["one", "two"]

    def test_groups_that_came_to_nothing_do_not_count(self) -> None:
        world = World(max_groups=2)
        for number in range(20):
            world.join(group=f"g{number % 2}", requires_known_member_id=True, session_timeout_ms=6_000)
            world.pass_time(6_000)
            assert world.coordinator.list_groups() == []

    def test_metadata_is_bounded_alone_and_together(self) -> None:
        world = World(max_member_metadata_bytes=100, max_group_metadata_bytes=150)
        assert world.join_error(protocols=(("a", b"x" * 50), ("b", b"x" * 51))) is ErrorCode.MESSAGE_TOO_LARGE
        (a,) = world.stable("a", protocols=(("a", b"x" * 100),))
        assert world.join_error(protocols=(("a", b"x" * 51),)) is ErrorCode.MESSAGE_TOO_LARGE
        world.join(client_id="b", protocols=(("a", b"x" * 50),))
        again = world.join(a.member_id, protocols=(("a", b"y" * 100),))
        assert world.joined(again).error is ErrorCode.NONE


class TestShapes:
    @pytest.mark.parametrize("timeout", [5_999, 1_800_001, 0, -1])
    def test_a_session_timeout_out_of_bounds_is_refused(self, timeout: int) -> None:
        world = World()
        for knows in (True, False):
            error = world.join_error(session_timeout_ms=timeout, requires_known_member_id=knows)
            assert error is ErrorCode.INVALID_SESSION_TIMEOUT

    @pytest.mark.parametrize("group", ["", "g" * 250])
    def test_a_group_id_that_is_none_is_refused_by_everything(self, group: str) -> None:
        world = World()
        who = Membership("m", 1)
        invalid = ErrorCode.INVALID_GROUP_ID
        assert world.join_error(group=group) is invalid
        for request in (
            SyncRequest(group=group, membership=who),
            HeartbeatRequest(group=group, membership=who),
            LeaveRequest(group=group, members=()),
        ):
            assert world.answers[world.send(request)].error is invalid
        commit = CommitRequest(group=group, offsets={TopicPartition("t", 0): OffsetEntry(1)})
        assert world.answers[world.send(commit)].first_error is invalid

    @pytest.mark.parametrize("instance_id", ["", "i" * 250])
    def test_an_instance_id_that_is_none_is_refused(self, instance_id: str) -> None:
        assert World().join_error(instance_id=instance_id) is ErrorCode.INVALID_CONFIG

    def test_a_refused_join_changes_nothing(self) -> None:
        world = World()
        world.stable("a")
        before = world.coordinator.records(), world.coordinator.describe("g"), world.coordinator.next_deadline()
        world.join(protocols=(("other", b""),))
        world.join("who")
        world.join(session_timeout_ms=1)
        assert (
            world.coordinator.records(),
            world.coordinator.describe("g"),
            world.coordinator.next_deadline(),
        ) == before
