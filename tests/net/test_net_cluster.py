"""A cluster of scripted brokers: look-ups that end, are shared, and survive whoever gives up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from net_server import Handler, ScriptedBroker, Talk, answering, coordinating, until

from holdfast.group import messages as m
from holdfast.model import ErrorCode, Membership, TopicPartition, TopicView
from holdfast.net import cluster as cluster_module
from holdfast.net.admin import LATEST, Admin, NewTopic
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Cluster
from holdfast.net.config import ClientConfig, client_config
from holdfast.net.errors import RETRIABLE, BrokerError, NetError
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.coordinators import Coordinator, coordinators_body

ME = Membership("m", 3)
BEAT = m.HeartbeatRequest(group="g", membership=ME)
JOIN = m.JoinRequest(group="g", membership=ME, protocols=(("range", b""),))
T0 = TopicPartition("t", 0)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def config(*brokers: ScriptedBroker, **changes: float) -> ClientConfig:
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    quick = replace(client_config({"bootstrap.servers": servers}), backoff_s=0.001, backoff_max_s=0.002)
    return replace(quick, **changes)  # type: ignore[arg-type]


def metadata(*brokers: ScriptedBroker, leader: int = 1, error: int = 0, racks: tuple[str, ...] = ()) -> Handler:
    async def handler(talk: Talk, request: codec.RequestFrame) -> Any:
        return {
            "brokers": [
                {
                    "node_id": number,
                    "host": "127.0.0.1",
                    "port": broker.port,
                    "rack": racks[number - 1] if racks else None,
                }
                for number, broker in enumerate(brokers, 1)
            ],
            "controller_id": len(brokers),
            "cluster_id": "c",
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": UUID(int=5),
                    "error_code": error,
                    "partitions": [
                        {"partition_index": n, "leader_id": leader, "replica_nodes": [1, 2], "isr_nodes": [1]}
                        for n in range(2)
                    ],
                }
                for topic in request.body.topics or ()
            ],
        }

    return handler


# -- coordinators


def test_requests_reach_the_coordinator_and_slots_are_connections_of_their_own() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as seed, ScriptedBroker() as there:
            seed.handlers[Api.FIND_COORDINATOR] = coordinating(lambda: there.port)
            release = asyncio.Event()

            async def park(talk: Talk, request: codec.RequestFrame) -> Any:
                await release.wait()
                return {"error_code": 0, "member_id": "m", "generation_id": 4}

            there.handlers = {Api.JOIN_GROUP: park, Api.HEARTBEAT: answering({"error_code": 27})}
            async with Cluster(config(seed)) as cluster:
                channel = GroupChannel(cluster, "g")
                parked = asyncio.create_task(channel.send(JOIN))
                await until(lambda: there.count(Api.JOIN_GROUP) == 1)
                assert await channel.send(BEAT) == m.HeartbeatAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
                assert not parked.done()
                release.set()
                joined = await parked
                assert isinstance(joined, m.JoinAnswer)
                assert joined.membership == Membership("m", 4)
                assert (there.connections, seed.count(Api.FIND_COORDINATOR)) == (2, 1)
                await channel.close()

    run(scene())


def test_a_broker_that_serves_nobody_without_a_login_counts_as_unreachable_until_it_serves() -> None:
    """It lets everybody connect, so a command said nothing for 10 s and a consumer for ever."""

    async def scene() -> None:
        async def hang_up(talk: Talk, request: codec.RequestFrame) -> Any:
            talk.writer.close()

        heard: list[str] = []
        async with ScriptedBroker({Api.HEARTBEAT: hang_up}) as broker, Cluster(config(broker)) as cluster:
            cluster.watchers.append(lambda _, error: heard.append("" if error is None else error.what))
            beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
            address = ("127.0.0.1", broker.port)
            for _ in range(2):
                with pytest.raises(NetError, match="expects a login"):
                    await (await cluster.connection(address)).request(Api.HEARTBEAT, beat, timeout_s=30.0)
            assert heard[0] == "" and "expects a login" in heard[1] and len(heard) == 2

            broker.handlers[Api.HEARTBEAT] = answering({"error_code": 27})
            await (await cluster.connection(address)).request(Api.HEARTBEAT, beat, timeout_s=30.0)
            assert len(heard) == 4 and "expects a login" in heard[2] and heard[3] == ""

    run(scene())


def test_two_members_of_one_group_do_not_wait_for_each_others_joins() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            arrived: list[str] = []
            both = asyncio.Event()

            async def park(talk: Talk, request: codec.RequestFrame) -> Any:
                arrived.append(request.body.member_id)
                if len(arrived) == 2:
                    both.set()
                await both.wait()
                return {"error_code": 0, "member_id": request.body.member_id, "generation_id": 4}

            broker.handlers = {Api.FIND_COORDINATOR: coordinating(lambda: broker.port), Api.JOIN_GROUP: park}
            async with Cluster(config(broker)) as cluster:
                joins = [
                    GroupChannel(cluster, "g").send(replace(JOIN, membership=Membership(name))) for name in ("a", "b")
                ]
                answers = await asyncio.gather(*joins)
                assert [answer.membership.member_id for answer in answers] == ["a", "b"]  # type: ignore[union-attr]

    run(scene())


def test_the_coordinator_is_looked_up_again_only_when_told_to_forget() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            where = [first]
            for broker in (first, second):
                broker.handlers[Api.FIND_COORDINATOR] = coordinating(lambda: where[0].port)
            first.handlers[Api.HEARTBEAT] = answering({"error_code": ErrorCode.NOT_COORDINATOR})
            second.handlers[Api.HEARTBEAT] = answering({"error_code": 0})
            async with Cluster(config(first)) as cluster:
                channel = GroupChannel(cluster, "g")
                for _ in range(3):
                    assert await channel.send(BEAT) == m.HeartbeatAnswer(error=ErrorCode.NOT_COORDINATOR)
                assert first.count(Api.FIND_COORDINATOR) == 1
                where[0] = second
                channel.forget()
                assert await channel.send(BEAT) == m.HeartbeatAnswer()

    run(scene())


def test_a_coordinator_that_loads_is_asked_for_until_it_is_there() -> None:
    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: answering({"error_code": 0})}) as broker:
            answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

            async def find(talk: Talk, request: codec.RequestFrame) -> Any:
                found = Coordinator(key="g", error=answers.pop(0), node_id=1, host="127.0.0.1", port=broker.port)
                return coordinators_body([found], request.version)

            broker.handlers[Api.FIND_COORDINATOR] = find
            async with Cluster(config(broker)) as cluster:
                assert await GroupChannel(cluster, "g").send(BEAT) == m.HeartbeatAnswer()
                assert answers == []

    run(scene())


def test_a_look_up_that_never_succeeds_ends_and_says_why() -> None:
    """edge B35 K-10793: a failed look-up was awaited for ever."""

    async def scene() -> None:
        async with ScriptedBroker() as broker:
            found = Coordinator(key="g", error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="no leader for partition 7")

            async def find(talk: Talk, request: codec.RequestFrame) -> Any:
                return coordinators_body([found], request.version)

            broker.handlers[Api.FIND_COORDINATOR] = find
            async with Cluster(config(broker, lookup_timeout_s=0.05)) as cluster:
                with pytest.raises(NetError, match=r"LOOKUP_TIMED_OUT.*no leader for partition 7") as failed:
                    await GroupChannel(cluster, "g").send(BEAT)
                assert failed.value.retriable

    run(scene())


def test_a_look_up_that_can_not_succeed_is_not_tried_again() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:

            async def find(talk: Talk, request: codec.RequestFrame) -> Any:
                found = Coordinator(key="g", error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
                return coordinators_body([found], request.version)

            broker.handlers[Api.FIND_COORDINATOR] = find
            async with Cluster(config(broker)) as cluster:
                with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED") as failed:
                    await GroupChannel(cluster, "g").send(BEAT)
                assert not failed.value.retriable
                assert broker.count(Api.FIND_COORDINATOR) == 1

    run(scene())


def test_a_commit_that_gives_up_does_not_cancel_the_look_up_for_others() -> None:
    """edge B55 franz-go 1.15.4: overlapping commits cancelled the coordinator look-up they shared."""

    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: answering({"error_code": 0})}) as broker:
            release = asyncio.Event()

            async def find(talk: Talk, request: codec.RequestFrame) -> Any:
                await release.wait()
                return await coordinating(lambda: broker.port)(talk, request)

            broker.handlers[Api.FIND_COORDINATOR] = find
            async with Cluster(config(broker)) as cluster:
                channel = GroupChannel(cluster, "g")
                hasty, patient = (asyncio.create_task(channel.send(BEAT)) for _ in range(2))
                await until(lambda: broker.count(Api.FIND_COORDINATOR) == 1)
                hasty.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await hasty
                release.set()
                assert await patient == m.HeartbeatAnswer()
                assert broker.count(Api.FIND_COORDINATOR) == 1

    run(scene())


def test_a_disconnect_is_retriable_and_the_next_request_opens_another_connection() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            beats = 0

            async def beat(talk: Talk, request: codec.RequestFrame) -> Any:
                nonlocal beats
                beats += 1
                if beats == 1:
                    talk.writer.transport.abort()
                    return None
                return {"error_code": 0}

            broker.handlers = {Api.FIND_COORDINATOR: coordinating(lambda: broker.port), Api.HEARTBEAT: beat}
            async with Cluster(config(broker)) as cluster:
                channel = GroupChannel(cluster, "g")
                with pytest.raises(NetError, match="DISCONNECTED") as failed:
                    await channel.send(BEAT)
                assert failed.value.retriable
                assert await channel.send(BEAT) == m.HeartbeatAnswer()

    run(scene())


@pytest.mark.parametrize("request_", [JOIN, BEAT], ids=["join", "heartbeat"])
def test_a_request_that_times_out_takes_its_connection_with_it(request_: m.Request) -> None:
    """A half-open connection looks alive for many minutes; whoever got no answer once asks on a fresh one."""

    async def scene() -> None:
        async with ScriptedBroker() as broker:
            answers: list[Any] = [None, {"error_code": 0}]

            async def slow(talk: Talk, request: codec.RequestFrame) -> Any:
                return answers.pop(0)

            find = coordinating(lambda: broker.port)
            broker.handlers = {Api.FIND_COORDINATOR: find, Api.HEARTBEAT: slow, Api.JOIN_GROUP: slow}
            async with Cluster(config(broker)) as cluster:
                channel = GroupChannel(cluster, "g")
                await channel.warm()
                opened = broker.connections
                with pytest.raises(NetError, match="REQUEST_TIMED_OUT") as late:
                    await channel.send(request_, timeout_ms=20)
                assert "request.timeout.ms" not in late.value.do, "it does not set this limit"
                await channel.send(request_)
                assert broker.connections == opened + 1

    run(scene())


def test_a_join_that_was_given_up_does_not_stand_in_front_of_the_next() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            answers: list[Any] = [None, {"error_code": 0, "member_id": "second"}]

            async def park(talk: Talk, request: codec.RequestFrame) -> Any:
                body = answers.pop(0)
                if body is None:
                    await asyncio.Event().wait()
                return body

            broker.handlers = {Api.FIND_COORDINATOR: coordinating(lambda: broker.port), Api.JOIN_GROUP: park}
            async with Cluster(config(broker)) as cluster:
                channel = GroupChannel(cluster, "g")
                parked = asyncio.create_task(channel.send(JOIN))
                await until(lambda: broker.count(Api.JOIN_GROUP) == 1)
                parked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await parked
                answer = await channel.send(JOIN)
                assert isinstance(answer, m.JoinAnswer)
                assert answer.membership.member_id == "second"

    run(scene())


def test_closing_ends_what_is_under_way_and_refuses_the_rest() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:

            async def never(talk: Talk, request: codec.RequestFrame) -> Any:
                return None

            broker.handlers = {Api.FIND_COORDINATOR: never}
            cluster = Cluster(config(broker))
            waiting = asyncio.create_task(GroupChannel(cluster, "g").send(BEAT))
            await until(lambda: broker.count(Api.FIND_COORDINATOR) == 1)
            await cluster.close()
            with pytest.raises(NetError):
                await waiting
            with pytest.raises(NetError, match="CLUSTER_CLOSED"):
                await GroupChannel(cluster, "g").send(BEAT)

    run(scene())


# -- metadata


def test_any_bootstrap_server_that_answers_is_enough() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as gone:
            dead = gone.port
        async with ScriptedBroker() as broker:
            broker.handlers[Api.METADATA] = metadata(broker)
            settings = replace(config(broker), bootstrap=(("127.0.0.1", dead), ("127.0.0.1", broker.port)))
            async with Cluster(settings) as cluster:
                info = await cluster.refresh(["t"])
                assert (info.cluster_id, sorted(info.topics)) == ("c", ["t"])
                assert await cluster.leader_of(T0) == info.brokers[1]

    run(scene())


def test_when_nobody_answers_the_error_names_somebody() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as gone:
            pass
        async with Cluster(config(gone, lookup_timeout_s=0.03)) as cluster:
            with pytest.raises(NetError, match=rf"LOOKUP_TIMED_OUT.*127\.0\.0\.1:{gone.port}"):
                await cluster.refresh()

    run(scene())


def test_a_topic_that_some_looks_miss_is_believed_for_a_while() -> None:
    """One look at a broker that had just started and knew no topics yet took all partitions from everybody. Memory has
    patience (topic.metadata.propagation.max.ms), from the first look that misses it on."""

    async def scene() -> None:
        async with ScriptedBroker() as one, Cluster(config(one, topic_patience_s=0.2)) as cluster:
            one.handlers[Api.METADATA] = metadata(one)
            first = await cluster.view(["t"])
            await asyncio.sleep(0.25)
            one.handlers[Api.METADATA] = metadata(one, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert await cluster.view(["t"]) == first
            assert cluster.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            one.handlers[Api.METADATA] = metadata(one)
            assert await cluster.view(["t"]) == first and cluster.topic_error("t") is ErrorCode.NONE
            one.handlers[Api.METADATA] = metadata(one, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert await cluster.view(["t"]) == first
            await asyncio.sleep(0.25)
            assert (await cluster.view(["t"])).topics == {}, "it is really gone"
            assert cluster.last_view(["t"]).topics == {}

    run(scene())


def test_what_was_seen_a_moment_ago_is_good_enough_for_who_says_so() -> None:
    """A handover's second round is planned by what its first one saw: asking again kept partitions dark for 8 ms."""

    async def scene() -> None:
        async with ScriptedBroker() as one, Cluster(config(one, topic_patience_s=0.0)) as cluster:
            one.handlers[Api.METADATA] = metadata(one)
            first = await cluster.view(["t"], within_s=60)
            one.handlers[Api.METADATA] = metadata(one, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            assert await cluster.view(["t"], within_s=60) == first
            assert (await cluster.view(["t"])).topics == {}, "fresh unless told otherwise"
            cluster.forget_leaders(["t"])
            one.handlers[Api.METADATA] = metadata(one)
            assert await cluster.view(["t"], within_s=60) == first

    run(scene())


def test_planning_sees_racks_when_a_broker_has_one() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            one.handlers[Api.METADATA] = metadata(one, two, racks=("a", "b"))
            async with Cluster(config(one)) as cluster:
                view = await cluster.view(["t"])
                assert view.topics == {"t": TopicView(2, (frozenset("ab"), frozenset("ab")))}
            one.handlers[Api.METADATA] = metadata(one, two)
            async with Cluster(config(one)) as cluster:
                assert (await cluster.view(["t"])).topics == {"t": TopicView(2)}
            one.handlers[Api.METADATA] = metadata(one, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            async with Cluster(config(one)) as cluster:
                assert (await cluster.view(["t"])).topics == {}

    run(scene())


def test_a_partition_without_a_leader_is_asked_for_until_it_has_one() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            leaders = [-1, -1, 1]

            async def asked(talk: Talk, request: codec.RequestFrame) -> Any:
                return await metadata(broker, leader=leaders.pop(0))(talk, request)

            broker.handlers[Api.METADATA] = asked
            async with Cluster(config(broker)) as cluster:
                assert (await cluster.leader_of(T0)).port == broker.port
                cluster.forget_leaders(["t"])
                leaders.append(1)
                await cluster.leader_of(T0)
                assert leaders == []

    run(scene())


def test_a_topic_that_stays_unknown_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "UNKNOWN_TOPIC_PATIENCE_S", 0.01)

    async def scene() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[Api.METADATA] = metadata(broker, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            async with Cluster(config(broker)) as cluster:
                with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await cluster.leader_of(T0)

    run(scene())


def test_a_broker_nobody_knows_is_retriable() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[Api.METADATA] = metadata(broker)
            async with Cluster(config(broker)) as cluster:
                assert (await cluster.broker_for(1)).where.endswith(str(broker.port))
                with pytest.raises(NetError, match="BROKER_UNKNOWN") as failed:
                    await cluster.broker_for(9)
                assert failed.value.retriable

    run(scene())


def test_metadata_asked_for_by_several_at_once_is_fetched_once() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[Api.METADATA] = metadata(broker)
            async with Cluster(config(broker)) as cluster:
                await asyncio.gather(*(cluster.refresh(["t", "u"]) for _ in range(20)))
                assert broker.count(Api.METADATA) == 1
                assert broker.connections == 1

    run(scene())


# -- admin


def test_offsets_are_asked_again_from_the_new_leader() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            leader = [1]

            async def asked(talk: Talk, request: codec.RequestFrame) -> Any:
                return await metadata(old, new, leader=leader[0])(talk, request)

            def offsets(error: ErrorCode) -> Handler:
                one = {"partition_index": 0, "error_code": error, "offset": 7}
                return answering({"topics": [{"name": "t", "partitions": [one]}]})

            async def moved(talk: Talk, request: codec.RequestFrame) -> Any:
                leader[0] = 2
                return await offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER)(talk, request)

            for broker in (old, new):
                broker.handlers[Api.METADATA] = asked
            old.handlers[Api.LIST_OFFSETS] = moved
            new.handlers[Api.LIST_OFFSETS] = offsets(ErrorCode.NONE)
            async with Cluster(config(old)) as cluster:
                found = await Admin(cluster).list_offsets({T0: LATEST})
                assert found[T0].offset == 7

    run(scene())


def test_topics_are_created_at_the_controller_even_when_it_moves() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            verdicts = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

            async def create(talk: Talk, request: codec.RequestFrame) -> Any:
                return {"topics": [{"name": "t", "error_code": verdicts.pop(0)}]}

            for broker in (one, two):
                broker.handlers[Api.METADATA] = metadata(one, two)
            two.handlers[Api.CREATE_TOPICS] = create
            async with Cluster(config(one)) as cluster:
                assert await Admin(cluster).create_topics([NewTopic(name="t")]) == {"t": None}
                assert verdicts == []

    run(scene())


def test_an_admin_finds_the_coordinator_again_when_it_moved() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]

            async def committed(talk: Talk, request: codec.RequestFrame) -> Any:
                return {"groups": [{"group_id": "g", "error_code": codes.pop(0)}]}

            find = coordinating(lambda: broker.port)
            broker.handlers = {Api.FIND_COORDINATOR: find, Api.OFFSET_FETCH: committed}
            async with Cluster(config(broker)) as cluster:
                assert await Admin(cluster).committed("g") == {}
                assert broker.count(Api.FIND_COORDINATOR) == 2

    run(scene())


def test_groups_of_the_new_protocol_are_described_in_the_same_words() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            held = {"topic_partitions": [{"topic_name": "t", "partitions": [0, 2]}]}
            newer = {
                "group_id": "g",
                "group_state": "Stable",
                "assignor_name": "uniform",
                "members": [{"member_id": "m", "subscribed_topic_names": ["t"], "assignment": held, "rack_id": "a"}],
            }
            broker.handlers = {
                Api.FIND_COORDINATOR: coordinating(lambda: broker.port),
                Api.DESCRIBE_GROUPS: answering({"groups": [{"group_id": "g", "group_state": "Dead"}]}),
                Api.CONSUMER_GROUP_DESCRIBE: answering({"groups": [newer]}),
            }
            async with Cluster(config(broker)) as cluster:
                described = await GroupAdmin(cluster).describe_group("g")
                (member,) = described.members
                assert (described.kind, described.protocol, member.rack) == ("consumer", "uniform", "a")
                assert member.assigned == {T0, TopicPartition("t", 2)}

    run(scene())


def test_a_member_of_another_dialect_is_shown_and_not_read() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            members = [{"member_id": "m", "member_metadata": b"\x00", "member_assignment": b"\xff\xff\xff"}]
            group = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "members": members}
            broker.handlers = {
                Api.FIND_COORDINATOR: coordinating(lambda: broker.port),
                Api.DESCRIBE_GROUPS: answering({"groups": [group]}),
            }
            async with Cluster(config(broker)) as cluster:
                (member,) = (await GroupAdmin(cluster).describe_group("g")).members
                assert (member.subscription, member.assigned) == (None, frozenset())
                assert member.assignment_bytes == b"\xff\xff\xff"

    run(scene())


def test_what_we_hold_for_retriable_is_what_kafka_does() -> None:
    from kio.schema.errors import ErrorCode as Theirs

    # KIP-447's REBALANCE_IN_PROGRESS and friends are decided by the member, not by a retry of the same request.
    theirs = {code.value for code in Theirs if code.retriable}
    assert {code.value for code in RETRIABLE} <= theirs
    ours = {code.value for code in ErrorCode}
    left_out = {code for code in theirs & ours if code not in {mine.value for mine in RETRIABLE}}
    assert {ErrorCode(code).name for code in left_out} <= {"CONCURRENT_TRANSACTIONS"}
