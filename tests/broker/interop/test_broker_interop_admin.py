"""The admin clients of confluent-kafka and kafka-python, on everything they can ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from holdfast.testing.broker import Broker
from patience import PATIENCE_S


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def one(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def test_confluent_s_admin_client_does_all_it_can(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    one(admin.create_topics([NewTopic("a", 2, 1, config={"retention.ms": "100000"})]))
    one(admin.create_partitions([NewPartitions("a", 3)]))
    assert len(admin.list_topics("a", timeout=PATIENCE_S).topics["a"].partitions) == 3
    topic = ConfigResource(ResourceType.TOPIC, "a")
    changed = ConfigEntry("max.message.bytes", "9999", incremental_operation=AlterConfigOpType.SET)
    topic.add_incremental_config(changed)
    one(admin.incremental_alter_configs([topic]))
    settings = one(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "a")]))
    assert (settings["retention.ms"].value, settings["max.message.bytes"].value) == ("100000", "9999")
    assert admin.describe_cluster().result(PATIENCE_S).controller.id == 0

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5):
        producer.produce("a", b"x", partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(PATIENCE_S) == 0
    place = TopicPartition("a", 0)
    spec: Any = OffsetSpec  # confluent-kafka has no types for what its methods return
    assert one(admin.list_offsets({place: spec.latest()})).offset == 5
    assert one(admin.list_offsets({place: spec.max_timestamp()})).offset == 4
    assert one(admin.list_offsets({place: OffsetSpec.for_timestamp(1_700_000_000_002)})).offset == 2
    one(admin.delete_records([TopicPartition("a", 0, 2)]))
    assert one(admin.list_offsets({place: spec.earliest()})).offset == 2

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["a"])
    assert consumer.poll(PATIENCE_S) is not None
    consumer.commit(asynchronous=False)
    described = one(admin.describe_consumer_groups(["g"]))
    assert described.state == ConsumerGroupState.STABLE
    assert len(described.members[0].assignment.topic_partitions) == 3
    assert [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid] == ["g"]
    consumer.close()
    asked = [ConsumerGroupTopicPartitions("g", [place])]
    assert one(admin.list_consumer_group_offsets(asked)).topic_partitions[0].offset == 3
    moved = [ConsumerGroupTopicPartitions("g", [TopicPartition("a", 0, 4)])]
    one(admin.alter_consumer_group_offsets(moved))
    assert one(admin.list_consumer_group_offsets(asked)).topic_partitions[0].offset == 4
    one(admin.delete_consumer_groups(["g"]))
    one(admin.delete_topics(["a"]))
    assert broker.topics.names() == []


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
def test_kafka_python_s_admin_client_does_all_it_can(broker: Broker) -> None:
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as Topic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([Topic("b", 2, 1)])
    assert "b" in admin.list_topics()
    assert admin.describe_cluster()["controller_id"] == 0
    described = admin.describe_topics(["b"])[0]
    assert len(described["partitions"]) == 2
    admin.delete_topics(["b"])
    assert "b" not in admin.list_topics()
    admin.close()
