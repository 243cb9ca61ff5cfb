"""The whole of `net` against a real Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from holdfast.group import messages as m
from holdfast.model import Assignment, ErrorCode, Membership, Subscription, TopicPartition
from holdfast.model.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from holdfast.net.admin import EARLIEST, LATEST, Admin, NewTopic
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.connection import Connection
from holdfast.net.errors import BrokerError
from holdfast.testing.kafka import RealKafka
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from kept import KEPT
from patience import PATIENCE_S

pytestmark = pytest.mark.kafka


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


def name(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"


def cluster_of(kafka: RealKafka) -> Cluster:
    return Cluster(client_config({"bootstrap.servers": kafka.bootstrap, "client.id": "holdfast-tests"}))


async def created(admin: Admin, partitions: int = 3, settings: Mapping[str, str] = KEPT) -> str:
    topic = name("t")
    new = NewTopic(name=topic, partitions=partitions, replication_factor=1, settings=settings)
    assert await admin.create_topics([new]) == {topic: None}
    return topic


def produced(kafka: RealKafka, topic: str, count: int, partition: int = 0) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        producer.produce(topic, value=f"v{number}", key=f"k{number}", partition=partition, timestamp=1_000 + number)
    assert producer.flush(PATIENCE_S) == 0


def test_kafka_offers_every_api_in_a_version_we_know(kafka: RealKafka) -> None:
    async def scene() -> None:
        host, _, port = kafka.bootstrap.partition(":")
        connection = await Connection.open(host, int(port))
        missing = [api.schema for api in Api if not connection.offers(api)]
        # SASL is only offered by listeners that ask for it.
        assert set(missing) <= {"sasl_handshake", "sasl_authenticate"}
        assert connection.version(Api.JOIN_GROUP) == 9
        await connection.close()

    run(scene())


def test_topics_are_created_described_grown_and_deleted(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            admin = Admin(cluster)
            topic = await created(admin)
            verdict = (await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)]))[topic]
            assert verdict is not None
            assert verdict.error is ErrorCode.TOPIC_ALREADY_EXISTS
            await cluster.leader_of(TopicPartition(topic, 2))
            info = (await admin.describe_topics([topic]))[topic]
            assert sorted(info.partitions) == [0, 1, 2]
            assert info.topic_id is not None
            assert await admin.create_partitions({topic: 5}) == {topic: None}
            await cluster.leader_of(TopicPartition(topic, 4))
            assert (await cluster.view([topic])).topics[topic].partitions == 5
            assert topic in await admin.describe_topics()
            assert (await admin.delete_topics([topic]))[topic] is None
            gone = (await admin.delete_topics(["missing"]))["missing"]
            assert gone is not None
            assert gone.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scene())


async def told(admin: Admin, topic: str, value: str | None) -> None:
    """Kafka's controller takes a change before the broker tells it: ask until it does. None is the default."""
    async with asyncio.timeout(30):
        while True:
            setting = (await admin.describe_settings(topic))["retention.ms"]
            if setting.is_default if value is None else (setting.value, setting.is_default) == (value, False):
                return
            await asyncio.sleep(0.05)


def test_settings_are_read_and_changed(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            admin = Admin(cluster)
            topic = await created(admin, settings={})
            assert (await admin.describe_settings(topic))["retention.ms"].is_default
            await admin.alter_settings(topic, {"retention.ms": "1234567"})
            await told(admin, topic, "1234567")
            await admin.alter_settings(topic, {"retention.ms": None})
            await told(admin, topic, None)
            with pytest.raises(BrokerError):
                await admin.alter_settings(topic, {"no.such.setting": "1"})

    run(scene())


def test_records_and_offsets_come_from_the_leader(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            admin = Admin(cluster)
            topic = await created(admin)
            at = TopicPartition(topic, 0)
            await cluster.leader_of(at)
            await asyncio.to_thread(produced, kafka, topic, 10)
            other = TopicPartition(topic, 1)
            ends = await admin.list_offsets({at: LATEST, other: LATEST})
            assert [ends[at].offset, ends[other].offset] == [10, 0]
            assert (await admin.list_offsets({at: EARLIEST}))[at].offset == 0
            assert (await admin.list_offsets({at: 1_004}))[at].offset == 4
            assert (await admin.list_offsets({at: 99_000}))[at].offset == -1
            leader = await cluster.leader_of(at)
            connection = await cluster.broker_for(leader.node_id, "data")
            for topic_id in (cluster.info.topics[topic].topic_id, None):
                asked = FetchTopic(topic=topic, topic_id=topic_id, partitions=(FetchPartition(partition=0, offset=0),))
                answer = await connection.fetch(FetchRequest(topics=(asked,)), timeout_s=30)
                (partition,) = answer.topics[0].partitions
                assert (partition.error, partition.high_watermark) == (0, 10)
                (records,) = partition.records
                assert b"v0" in bytes(records)  # type: ignore[arg-type]
            assert await admin.delete_records({at: 4}) == {at: None}
            assert (await admin.list_offsets({at: EARLIEST}))[at].offset == 4

    run(scene())


def test_a_topic_that_does_not_exist_is_told_soon(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await Admin(cluster).list_offsets({TopicPartition(name("missing"), 0): LATEST})

    run(scene())


def test_offsets_are_committed_and_fetched_from_outside_a_group(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            admin, groups = Admin(cluster), GroupAdmin(cluster)
            topic, group = await created(admin), name("g")
            await cluster.leader_of(TopicPartition(topic, 2))
            offsets = {TopicPartition(topic, number): m.OffsetEntry(number, -1, f"n{number}") for number in range(3)}
            assert set((await admin.commit(group, offsets)).values()) == {None}
            assert await admin.committed(group) == offsets
            one = TopicPartition(topic, 1)
            assert await admin.committed(group, [one, TopicPartition(topic, 9)]) == {one: offsets[one]}
            assert group in {listed.group for listed in await groups.list_groups()}
            described = await groups.describe_group(group)
            assert (described.state, described.members) == ("Empty", ())
            assert await groups.delete_offsets(group, [one]) == {one: None}
            assert one not in await admin.committed(group)
            assert await groups.delete_groups([group]) == {group: None}
            refused = (await groups.delete_groups([group]))[group]
            assert refused is not None
            assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
            with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
                await groups.describe_group(group)

    run(scene())


def test_a_member_joins_syncs_beats_commits_and_leaves(kafka: RealKafka) -> None:
    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            admin, groups = Admin(cluster), GroupAdmin(cluster)
            topic, group = await created(admin), name("g")
            at = TopicPartition(topic, 0)
            await cluster.leader_of(at)
            channel = GroupChannel(cluster, group)
            await channel.warm()
            subscription = encode_subscription(Subscription(topics=(topic,), rack="a"))
            join = m.JoinRequest(
                group=group, membership=Membership(), protocols=(("range", subscription),), reason="a test"
            )
            first = await channel.send(join)
            assert isinstance(first, m.JoinAnswer)
            assert first.error is ErrorCode.MEMBER_ID_REQUIRED
            joined = await channel.send(
                m.JoinRequest(group=group, membership=first.membership, protocols=(("range", subscription),))
            )
            assert isinstance(joined, m.JoinAnswer)
            me = joined.membership
            assert (joined.leader, joined.protocol, joined.error) == (me.member_id, "range", ErrorCode.NONE)
            plan = encode_assignment(Assignment(partitions=frozenset({at})))
            synced = await channel.send(
                m.SyncRequest(group=group, membership=me, protocol="range", assignments={me.member_id: plan})
            )
            assert isinstance(synced, m.SyncAnswer)
            assert decode_assignment(synced.assignment).partitions == {at}
            assert await channel.send(m.HeartbeatRequest(group=group, membership=me)) == m.HeartbeatAnswer()
            commit = m.CommitRequest(group=group, membership=me, offsets={at: m.OffsetEntry(5)})
            assert await channel.send(commit) == m.CommitAnswer(errors={at: ErrorCode.NONE})
            fenced = m.CommitRequest(
                group=group, membership=Membership(me.member_id, 77), offsets={at: m.OffsetEntry(9)}
            )
            answer = await channel.send(fenced)
            assert isinstance(answer, m.CommitAnswer)
            assert answer.first_error is ErrorCode.ILLEGAL_GENERATION
            fetched = await channel.send(m.FetchOffsetsRequest(group=group, partitions=(at,)))
            assert isinstance(fetched, m.FetchOffsetsAnswer)
            assert fetched.offsets[at].offset == 5
            described = await groups.describe_group(group)
            (member,) = described.members
            assert (described.state, described.protocol, member.assigned) == ("Stable", "range", {at})
            assert (member.client_id, member.topics, member.rack) == ("holdfast-tests", (topic,), "a")
            left = await channel.send(
                m.LeaveRequest(group=group, members=(m.Leaver(member_id=me.member_id, reason="done"),))
            )
            assert isinstance(left, m.LeaveAnswer)
            assert [code for _, code in left.members] == [ErrorCode.NONE]
            await channel.close()

    run(scene())


def test_a_parked_join_does_not_hold_up_commits_and_heartbeats(kafka: RealKafka) -> None:
    """Why there are two connections: the second join waits for the first member, which must still be heard."""

    async def scene() -> None:
        async with cluster_of(kafka) as cluster:
            topic, group = await created(Admin(cluster)), name("g")
            at = TopicPartition(topic, 0)
            await cluster.leader_of(at)
            first, second = GroupChannel(cluster, group), GroupChannel(cluster, group)
            protocols = (("range", encode_subscription(Subscription(topics=(topic,)))),)

            async def join(channel: GroupChannel, who: Membership) -> m.JoinAnswer:
                answer = await channel.send(m.JoinRequest(group=group, membership=who, protocols=protocols))
                assert isinstance(answer, m.JoinAnswer)
                return answer

            known = (await join(first, Membership())).membership
            one = (await join(first, known)).membership
            await first.send(m.SyncRequest(group=group, membership=one, assignments={one.member_id: b""}))
            other = (await join(second, Membership())).membership
            parked = asyncio.create_task(join(second, other))
            beat: m.Answer = m.HeartbeatAnswer()
            while beat == m.HeartbeatAnswer():
                beat = await first.send(m.HeartbeatRequest(group=group, membership=one))
            assert beat == m.HeartbeatAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
            assert not parked.done()
            commit = m.CommitRequest(group=group, membership=one, offsets={at: m.OffsetEntry(1)})
            assert await first.send(commit) == m.CommitAnswer(errors={at: ErrorCode.NONE})
            answers = await asyncio.gather(parked, join(first, one))
            assert {answer.membership.generation for answer in answers} == {one.generation + 1}

    run(scene())
