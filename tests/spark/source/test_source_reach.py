"""Reaching the records: TLS and logins, the nearest replica, transactions, and a real Kafka that sees a real group."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import confluent_kafka as ck
import pytest
from source_engine import Engine, every, produce

from holdfast.broker.exchange import Exchange
from holdfast.broker.settings import Security
from holdfast.model import TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.reading import Fetching, RangeReader
from holdfast.testing import Broker
from holdfast.testing.kafka import RealKafka
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for

CERTIFICATES = Path(__file__).parents[2] / "net" / "certificates"


def test_tls_and_a_login_reach_the_member_and_its_readers() -> None:
    security = Security(certificate=CERTIFICATES / "broker.pem", key=CERTIFICATES / "broker.key")
    login = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(CERTIFICATES / "ca.pem")}
    login |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "open sesame"}
    with Broker(security=security, users={"alice": ("open sesame", ["all"])}) as broker:
        broker.topics.create("orders", partitions=4)
        produce(broker, 5, login=login)
        query = Engine(broker.bootstrap, **{f"kafka__{key.replace('.', '__')}": v for key, v in login.items()})
        query.run_until(lambda: len(query.seen) == 20)
        assert sorted(query.seen) == every(5)
        assert "open sesame" not in repr(query.member.report())
        query.stop()


def test_the_nearest_replica_is_read_and_the_leader_when_that_one_fails() -> None:
    """Symptom: with client.rack set, a read never ended. Cause: the leader answers without records and names a
    follower, which was not asked. Invariant: a preferred replica is read, until it fails."""
    with Broker(racks=("a", "b")) as broker:
        broker.topics.create("orders", assignments=[[0, 1]])
        produce(broker, 5, partitions=1)
        reader = RangeReader(client_config({"bootstrap.servers": broker.bootstrap}))
        fetching = Fetching(partition=TopicPartition("orders", 0), rack="b")
        asked: list[int] = []

        def nearest(exchange: Exchange) -> bool:
            asked.append(exchange.client.node_id)
            return exchange.client.node_id == 1

        near = broker.faults.call(Api.FETCH, lambda _: None, when=nearest)
        assert reader.pull(fetching, 0).answer().records
        assert asked[-1] == 1
        near.clear()
        asked.clear()
        broker.faults.disconnect(Api.FETCH, when=nearest)
        assert reader.pull(fetching, 0).answer().records
        assert (asked[0], asked[-1]) == (1, 0)
        broker.faults.clear()
        reader.close()
        query = Engine(broker.bootstrap, kafka__client__rack="b")
        query.run_until(lambda: len(query.seen) == 5)
        query.stop()


@pytest.mark.kafka
def test_a_real_kafka_shows_a_stable_group_and_aborted_records_stay_out(kafka: RealKafka) -> None:
    topic, group = f"paid-{uuid.uuid4().hex[:8]}", f"spark-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=2)
    producer = ck.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "compression.type": "zstd"}
    )
    producer.init_transactions(30)
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        for partition in range(2):
            for _ in range(10):
                producer.produce(topic, f"{number}", partition=partition)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    options = {"subscribe": topic, "kafka__group__id": group}
    query = Engine(kafka.bootstrap, **options, kafka__isolation__level="read_committed")
    values: list[bytes] = []
    planned = query.plan()
    assert planned is not None
    values += [row["value"] for row in query.read(planned)]
    query.commit()
    assert query.plan() is None
    assert sorted(values) == [b"0"] * 20 + [b"2"] * 20

    async def look() -> tuple[str, int, dict[int, int]]:
        async with Cluster(client_config({"bootstrap.servers": kafka.bootstrap})) as cluster:
            view = await GroupAdmin(cluster).describe_group(group)
            offsets = await Admin(cluster).committed(group)
            owned = sum(len(member.assigned) for member in view.members)
            return view.state, owned, {p.partition: entry.offset for p, entry in offsets.items()}

    # 30 records and three markers in each partition: the markers are behind us too
    wait_for(lambda: asyncio.run(look()) == ("Stable", 2, {0: 33, 1: 33}))
    everything = Engine(kafka.bootstrap, subscribe=topic, kafka__group__id=f"{group}-all")
    everything.run_until(lambda: len(everything.seen) == 60)
    everything.stop()
    query.stop()
