"""Why a round starts: the six triggers, each with its cause in words and its culprit; and what DescribeGroups shows."""

from __future__ import annotations

from coordinator_world import T0, World, subscription

from holdfast.group.coordinator import GroupListing, State
from holdfast.model import ErrorCode, TraceRecord


def last_start(world: World) -> TraceRecord:
    return world.steps("rebalance-started")[-1]


class TestTheSixTriggers:
    def test_1_a_new_consumer_joins(self) -> None:
        world = World()
        world.stable("a")
        world.join(client_id="b", reason="scaled out")
        record = last_start(world)
        assert record.cause == "b-2 joined (reason: scaled out)"
        assert record.culprit == "b-2"
        assert record.data == {"members": 2, "state": "Stable"}

    def test_2_a_consumer_leaves(self) -> None:
        world = World()
        _, b = world.stable("a", "b")
        world.leave(b.member_id, reason="the consumer is being closed")
        assert last_start(world).cause == "b-2 left: the consumer is being closed"
        assert last_start(world).culprit == "b-2"

    def test_3_a_consumer_crashes(self) -> None:
        world = World()
        a, b = world.stable("a", "b", session_timeout_ms=10_000)
        world.pass_time(9_000)
        world.beat(a)
        world.pass_time(1_000)
        assert last_start(world).cause == "b-2's session expired: nothing heard for 10000 ms"
        assert last_start(world).culprit == b.member_id
        (expired,) = world.steps("member-expired")
        assert expired.member == b.member_id
        assert expired.data["client_id"] == "b"

    def test_4_a_subscription_changes(self) -> None:
        world = World()
        _, b = world.stable("a", "b")
        world.join(b.member_id, client_id="b", protocols=(("range", subscription("orders", "payments")),))
        assert last_start(world).cause == "subscription of b-2 changed"
        assert last_start(world).culprit == b.member_id

    def test_5_a_topic_gains_partitions(self) -> None:
        """Only the leader sees it; it says so by joining again with nothing changed."""
        world = World()
        a, b = world.stable("a", "b")
        world.join(a.member_id, client_id="a", reason="orders has 12 partitions, had 6")
        assert last_start(world).cause == "leader a-1 asked for a round (reason: orders has 12 partitions, had 6)"
        assert world.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_6_a_consumer_does_not_poll_in_time(self) -> None:
        """Its own member notices and leaves."""
        world = World()
        _, b = world.stable("a", "b")
        world.leave(b.member_id, reason="poll interval of 300000 ms exceeded")
        assert last_start(world).cause == "b-2 left: poll interval of 300000 ms exceeded"


class TestTheTrace:
    def test_a_round_is_told_from_its_start_to_stable(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.trace.clear()
        world.join(client_id="b")
        world.pass_time(40)
        world.join(a.member_id, client_id="a")
        world.pass_time(2)
        world.plan([world.joined(token).membership for token in (3, 4)])
        assert [record.step for record in world.trace] == ["rebalance-started", "generation", "stable"]
        assert [record.source for record in world.trace] == ["coordinator"] * 3
        started, generation, stable = world.trace
        assert started.generation == 1
        assert generation.generation == stable.generation == 2
        assert generation.data == {
            "leader": "a-1",
            "protocol": "range",
            "members": ["a-1", "b-2"],
            "took_ms": 40.0,
        }
        assert stable.data == {"members": 2, "took_ms": 42.0}
        assert {record.group for record in world.trace} == {"g"}

    def test_a_returning_static_member_is_told_without_a_round(self) -> None:
        world = World()
        _, x = world.stable("a", "~x")
        world.trace.clear()
        world.join(instance_id="x", client_id="x", reason="deploy")
        (record,) = world.trace
        assert record.step == "member-replaced"
        assert record.cause == "static member x returned (reason: deploy)"
        assert record.data == {"fenced": x.member_id}

    def test_refused_joins_say_why(self) -> None:
        world = World()
        world.join(protocols=())
        (record,) = world.steps("join-refused")
        assert record.cause == "it has no protocol in common with the group"
        assert record.data == {"error": "INCONSISTENT_GROUP_PROTOCOL"}

    def test_heartbeats_and_good_commits_make_no_noise(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.trace.clear()
        world.beat(a)
        world.commit(a)
        assert world.trace == []


class TestViews:
    def test_a_stable_group_is_described_with_bytes(self) -> None:
        world = World()
        a, x = world.stable("a", "~x", client_host="/10.0.0.7")
        view = world.coordinator.describe("g")
        assert (view.state, view.protocol_type, view.protocol) == ("Stable", "consumer", "range")
        assert (view.generation, view.leader) == (a.generation, a.member_id)
        first, second = view.members
        assert (first.member_id, second.member_id) == (a.member_id, x.member_id)
        assert first.metadata == subscription()
        assert first.assignment == a.member_id.encode()
        assert (first.client_id, first.client_host, first.instance_id) == ("a", "/10.0.0.7", None)
        assert second.instance_id == "x"

    def test_in_a_round_members_are_shown_without_bytes(self) -> None:
        world = World()
        world.stable("a")
        world.join(client_id="b")
        view = world.coordinator.describe("g")
        assert view.state == "PreparingRebalance"
        assert view.protocol == ""
        assert [(each.metadata, each.assignment) for each in view.members] == [(b"", b"")] * 2

    def test_a_group_that_is_not_there_is_dead(self) -> None:
        assert World().coordinator.describe("g").state == State.DEAD.value

    def test_the_list_is_sorted(self) -> None:
        world = World()
        world.commit(group="z")
        world.stable("a")
        world.commit(group="a", offsets={T0: 1})
        assert world.coordinator.list_groups() == [
            GroupListing(group="a", state="Empty"),
            GroupListing(group="g", state="Stable", protocol_type="consumer"),
            GroupListing(group="z", state="Empty"),
        ]

    def test_groups_do_not_disturb_each_other(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.join(group="other")
        assert world.beat(a) is ErrorCode.NONE
        assert world.state is State.STABLE
