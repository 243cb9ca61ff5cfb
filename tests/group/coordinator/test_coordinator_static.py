"""Static members: they come back under their instance id, and there is only ever one of each (KIP-345)."""

from __future__ import annotations

import pytest
from coordinator_world import World, subscription

from holdfast.group.coordinator import DeleteOffsetsRequest, State
from holdfast.group.messages import Leaver
from holdfast.model import ErrorCode, Membership, TopicPartition, consumer_protocol

FENCED = ErrorCode.FENCED_INSTANCE_ID
MINUTE = 60_000


class TestReturningToAStableGroup:
    def test_a_restart_within_the_session_starts_no_round(self) -> None:
        world = World()
        a, x = world.stable("a", "~x")
        world.pass_time(30_000)
        world.beat(a)
        answer = world.joined(world.join(instance_id="x", client_id="x"))
        assert answer.error is ErrorCode.NONE
        assert answer.membership.generation == x.generation
        assert answer.membership.member_id != x.member_id
        assert answer.leader == a.member_id
        assert world.state is State.STABLE
        assert world.synced(world.sync(answer.membership)).assignment == x.member_id.encode()
        assert world.beat(a) is ErrorCode.NONE
        assert len(world.causes()) == 2  # those of the beginning

    def test_a_rolling_deploy_of_three_is_no_rebalance_at_all(self) -> None:
        """The three-pod rolling deploy: 0 rebalances with static membership."""
        world = World()
        world.stable("~p0", "~p1", "~p2")
        generation, rounds = world.generation, len(world.causes())
        for pod in ("p0", "p1", "p2"):
            world.pass_time(20_000)
            for name, member_id in world.members_by_name().items():
                if name != f"~{pod}":
                    world.beat(Membership(member_id, generation), instance_id=name[1:])
            world.join(instance_id=pod, client_id=pod)
        assert world.generation == generation
        assert len(world.causes()) == rounds

    def test_owned_partitions_and_generation_in_its_subscription_are_not_a_change(self) -> None:
        """A cooperative member joins with what it owns; after its restart it owns nothing. Its topics are the same."""
        world = World()
        owning = subscription(owned=frozenset({TopicPartition("orders", 0)}), generation=4, user_data=b"\0\0\0\4")
        _, x = world.stable("a", "~x", protocols=(("cooperative-sticky", owning),))
        token = world.join(instance_id="x", client_id="x", protocols=(("cooperative-sticky", subscription()),))
        assert world.joined(token).membership.generation == x.generation
        assert world.state is State.STABLE

    def test_what_members_own_is_not_read_to_learn_their_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Symptom: a static member that came back with a megabyte of claims held up every client of the broker for a
        second, and deleting offsets of a group of many such members for longer. Cause: to learn its topics the whole
        subscription was read, an object for each of a quarter of a million partitions; nor had the list of topics a
        bound. Invariant: the coordinator reads topics, and no more of them than a cluster may have."""
        world = World()
        owning = subscription(owned=frozenset({TopicPartition("orders", 0)}), generation=4)
        _, x = world.stable("a", "~x", protocols=(("range", owning),))

        def never(_reader: object) -> None:
            raise AssertionError("nobody asked for it")

        monkeypatch.setattr(consumer_protocol.FieldReader, "partitions", never)
        token = world.join(instance_id="x", client_id="x", protocols=(("range", owning),))
        assert world.joined(token).membership.generation == x.generation
        other = TopicPartition("payments", 0)
        deleted = world.answers[world.send(DeleteOffsetsRequest(group="g", partitions=(other,)))]
        assert deleted.errors[other] is ErrorCode.NONE
        endless = subscription(*(f"t{number}" for number in range(10_001)))
        world.join(instance_id="x", client_id="x", protocols=(("range", endless),))
        deleted = world.answers[world.send(DeleteOffsetsRequest(group="g", partitions=(other,)))]
        assert deleted.errors[other] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "what is not read may be anything"

    def test_another_subscription_starts_a_round_and_says_why(self) -> None:
        world = World()
        world.stable("a", "~x")
        token = world.join(instance_id="x", client_id="x", protocols=(("range", subscription("payments")),))
        assert token not in world.answers
        assert world.state is State.PREPARING
        assert "static member x returned with another subscription" in world.causes()[-1]

    def test_a_change_of_the_chosen_protocol_starts_a_round(self) -> None:
        world = World()
        both = (("range", subscription()), ("sticky", subscription()))
        world.stable("a", "~x", protocols=both)
        token = world.join(instance_id="x", client_id="x", protocols=(("sticky", subscription()),))
        assert token not in world.answers
        assert world.state is State.PREPARING

    def test_what_can_not_be_read_is_no_change(self) -> None:
        """Other kinds of group (Connect's) have bytes of their own; only the choice of protocol counts, as in Kafka."""
        world = World()
        world.stable("~x", protocol_type="connect", protocols=(("v1", b"one"),))
        assert world.join_error(instance_id="x", protocol_type="connect", protocols=(("v1", b"two"),)) == 0
        assert world.state is State.STABLE

    def test_the_leader_returns_as_the_leader_and_is_told_to_skip_planning(self) -> None:
        """edge C65 K-13435: told nothing, it planned from a blank memory, and the group moved for no reason."""
        world = World()
        world.stable("~x", "b")
        answer = world.joined(world.join(instance_id="x", client_id="x"))
        assert answer.leader == answer.membership.member_id
        assert answer.skip_assignment
        assert len(answer.members) == 2

    def test_a_leader_too_old_to_skip_is_not_told_that_it_leads(self) -> None:
        """edge C65 K-13435"""
        world = World()
        x, _ = world.stable("~x", "b")
        answer = world.joined(world.join(instance_id="x", client_id="x", supports_skipping_assignment=False))
        assert answer.leader == x.member_id != answer.membership.member_id
        assert not answer.skip_assignment
        assert answer.members == ()
        # It leads all the same: its next join is heard as the leader's.
        assert world.join(answer.membership.member_id, instance_id="x", client_id="x") not in world.answers
        assert world.state is State.PREPARING

    def test_new_timeouts_apply_at_once(self) -> None:
        """edge C64 K-14009: the successor's session timeout was ignored until the next round."""
        world = World()
        a, x = world.stable("a", "~x", session_timeout_ms=45_000)
        world.join(instance_id="x", client_id="x", session_timeout_ms=10_000)
        world.pass_time(10_000)
        assert world.member_ids == [a.member_id]
        assert x.member_id not in world.member_ids

    def test_the_replacement_is_durable_before_it_is_answered(self) -> None:
        """edge C64 K-18263 K-10284: after a restart the old id was back, and fenced the new one."""
        world = World()
        _, x = world.stable("a", "~x")
        answer = world.joined(world.join(instance_id="x", client_id="x"))
        after = world.restarted()
        assert after.coordinator.records() == world.coordinator.records()
        assert after.beat(answer.membership, instance_id="x") is ErrorCode.NONE
        assert after.beat(x, instance_id="x") is FENCED
        assert after.synced(after.sync(answer.membership)).assignment == x.member_id.encode()


class TestFencing:
    def everything(self, world: World, who: Membership) -> set[ErrorCode]:
        return {
            world.beat(who, instance_id="x"),
            world.sync_error(who, instance_id="x"),
            world.commit(who, instance_id="x"),
            world.join_error(who.member_id, instance_id="x"),
            *world.leave_as(Leaver(member_id=who.member_id, instance_id="x")),
        }

    def test_the_former_holder_is_fenced_by_every_request(self) -> None:
        """edge C63 K-8500 K-9801"""
        world = World()
        _, x = world.stable("a", "~x")
        world.join(instance_id="x", client_id="x")
        assert self.everything(world, x) == {FENCED}
        assert {record.step for record in world.trace[-5:]} >= {"fenced"}
        record = world.steps("fenced")[-1]
        assert record.member == x.member_id
        assert record.culprit == world.members_by_name()["~x"]

    def test_without_its_instance_id_the_former_holder_is_unknown(self) -> None:
        world = World()
        _, x = world.stable("a", "~x")
        world.join(instance_id="x", client_id="x")
        assert world.beat(x) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.commit(x) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_unknown_instance_id_is_an_unknown_member(self) -> None:
        world = World()
        (a,) = world.stable("a")
        assert world.beat(a, instance_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_instance_ids_have_one_holder_whatever_happens(self) -> None:
        """edge C64 K-8715"""
        world = World()
        for _ in range(5):
            world.join(instance_id="x", client_id="x")
        assert len(world.member_ids) == 1


class TestReplacementInEveryState:
    def test_while_preparing_the_parked_join_is_fenced(self) -> None:
        """edge C63 K-9801: the old process's parked join got the new one's answer."""
        world = World()
        a, x = world.stable("a", "~x")
        old = world.join(x.member_id, instance_id="x", client_id="x", protocols=(("range", subscription("new")),))
        assert world.state is State.PREPARING
        new = world.join(instance_id="x", client_id="x")
        assert world.joined(old).error is FENCED
        assert world.joined(old).membership.member_id == x.member_id
        world.join(a.member_id)
        assert world.joined(new).error is ErrorCode.NONE
        assert len(world.member_ids) == 2

    def test_while_preparing_a_member_awaited_counts_as_come(self) -> None:
        world = World()
        a, x = world.stable("a", "~x")
        world.join(a.member_id)
        new = world.join(instance_id="x", client_id="x")
        assert world.joined(new).membership.generation == x.generation + 1
        assert world.state is State.COMPLETING

    def test_during_the_initial_delay_the_place_is_kept(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3_000.0)
        old = world.join(instance_id="x", client_id="x")
        new = world.join(instance_id="x", client_id="x")
        assert world.joined(old).error is FENCED
        world.pass_time(3_000)
        assert world.joined(new).leader == world.joined(new).membership.member_id

    def test_while_completing_the_parked_sync_is_fenced_and_a_new_round_starts(self) -> None:
        """edge C63 K-8500: the plan under way names the old id; the new process would get nothing from it."""
        world = World()
        a, x = world.stable("a", "~x")
        world.join(a.member_id)
        world.join(x.member_id, instance_id="x", client_id="x")
        assert world.state is State.COMPLETING
        parked = world.sync(Membership(x.member_id, world.generation), instance_id="x")
        new = world.join(instance_id="x", client_id="x")
        assert world.synced(parked).error is FENCED
        assert world.state is State.PREPARING
        world.join(a.member_id)
        assert world.joined(new).membership.generation == world.generation

    def test_while_empty_there_is_nobody_to_replace(self) -> None:
        world = World()
        (x,) = world.stable("~x")
        assert world.leave_as(Leaver(instance_id="x")) == [ErrorCode.NONE]
        assert world.state is State.EMPTY
        token = world.join(instance_id="x", client_id="x")
        assert world.joined(token).membership.member_id != x.member_id

    @pytest.mark.parametrize("leads", [True, False])
    def test_the_lead_passes_to_the_successor_in_a_round_too(self, leads: bool) -> None:
        world = World()
        names = ("~x", "b") if leads else ("b", "~x")
        world.stable(*names)
        b = world.members_by_name()["b"]
        world.join(b, protocols=(("range", subscription("new")),))
        new = world.join(instance_id="x", client_id="x")
        if leads:
            assert world.joined(new).leader == world.joined(new).membership.member_id
        else:
            assert world.joined(new).leader == b


class TestPatience:
    def test_the_rebalance_timeout_does_not_expel_static_members(self) -> None:
        """edge C65 K-8220: a static member that restarts during a round lost its place and its partitions."""
        world = World()
        a, x = world.stable("a", "~x", session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        token = world.join(a.member_id, session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        world.pass_time(20_000)
        assert world.joined(token).error is ErrorCode.NONE
        assert {each.member_id for each in world.joined(token).members} == {a.member_id, x.member_id}
        world.sync(world.joined(token).membership, {a.member_id: b"1", x.member_id: b"2"})
        returned = world.joined(world.join(instance_id="x", client_id="x"))
        assert world.synced(world.sync(returned.membership)).assignment == b"2"

    def test_nor_does_the_sync_timeout_because_it_never_had_that_generation(self) -> None:
        world = World()
        a, x = world.stable("a", "~x", session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        token = world.join(a.member_id, session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
        world.pass_time(20_000)
        world.sync(world.joined(token).membership, {})
        world.pass_time(60_000)
        assert x.member_id in world.member_ids
        assert world.state is State.STABLE

    def test_with_only_absent_static_members_the_round_waits_for_their_sessions(self) -> None:
        """edge C65 K-8220"""
        world = World()
        a, _, _ = world.stable("a", "~x", "~y", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        world.leave(a.member_id)
        world.pass_time(99_999)
        assert world.state is State.PREPARING
        assert len(world.member_ids) == 2
        world.pass_time(1)
        assert world.state is State.EMPTY

    def test_the_first_to_return_then_leads(self) -> None:
        world = World()
        a, _, _ = world.stable("a", "~x", "~y", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        world.leave(a.member_id)
        world.pass_time(30_000)
        token = world.join(instance_id="y", client_id="y", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        world.pass_time(10_000)
        assert world.joined(token).leader == world.joined(token).membership.member_id

    def test_a_silent_static_member_is_gone_after_its_session(self) -> None:
        world = World()
        a, x = world.stable("a", "~x")
        world.pass_time(30_000)
        world.beat(a)
        world.pass_time(15_000)
        assert world.member_ids == [a.member_id]
        assert f"{x.member_id} (static x)'s session expired" in world.causes()[-1]
