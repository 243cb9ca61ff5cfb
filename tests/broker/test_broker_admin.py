"""Topics, their settings, and the simulated racks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient

from holdfast.model import ErrorCode, HoldfastError
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from patience import PATIENCE_S

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def client(holdfast_broker: Broker) -> Iterator[RawClient]:
    with RawClient(holdfast_broker) as connected:
        yield connected


def create(client: RawClient, name: str, **fields: Any) -> Any:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
    return client.ask(Api.CREATE_TOPICS, {"topics": [topic]}).topics[0]


def test_a_topic_is_created_with_its_settings_and_shown(client: RawClient) -> None:
    made = create(client, "orders", num_partitions=3, configs=[{"name": "retention.ms", "value": "5"}])
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    settings = {entry.name: (entry.value, entry.config_source) for entry in made.configs}
    assert settings["retention.ms"] == ("5", 1)
    assert settings["cleanup.policy"] == ("delete", 5)

    shown = client.ask(Api.METADATA, {"topics": [{"topic_id": made.topic_id, "name": None}]}).topics[0]
    assert (shown.name, shown.topic_id, len(shown.partitions)) == ("orders", made.topic_id, 3)
    assert {each.leader_epoch for each in shown.partitions} == {0}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 10_001}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "cleanup.policy", "value": "compact"}]}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [{"partition_index": 0, "broker_ids": [0]}]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused_with_a_message(
    holdfast_broker: Broker, client: RawClient, fields: dict[str, Any], error: ErrorCode
) -> None:
    made = create(client, "orders", **fields)

    assert made.error_code == error
    assert made.error_message
    assert holdfast_broker.topics.names() == []


def test_names_are_taken_once_and_validation_creates_nothing(holdfast_broker: Broker, client: RawClient) -> None:
    topic = {"name": "orders", "num_partitions": -1, "replication_factor": -1}
    assert client.ask(Api.CREATE_TOPICS, {"topics": [topic], "validate_only": True}).topics[0].error_code == 0
    assert holdfast_broker.topics.names() == []
    twice = client.ask(Api.CREATE_TOPICS, {"topics": [topic, topic]}).topics
    assert [each.error_code for each in twice] == [ErrorCode.INVALID_REQUEST]
    assert create(client, "orders").error_code == 0
    assert create(client, "orders").error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topics_are_made_when_asked_for_where_both_sides_want_it() -> None:
    asked = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}
    with Broker(auto_create_topics=False) as closed, RawClient(closed) as client:
        assert client.ask(Api.METADATA, asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Broker(default_partitions=4) as open_, RawClient(open_) as client:
        unwanted = {**asked, "allow_auto_topic_creation": False}
        assert client.ask(Api.METADATA, unwanted).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(client.ask(Api.METADATA, asked).topics[0].partitions) == 4


def test_partitions_can_be_added_and_not_taken_away(holdfast_broker: Broker, client: RawClient) -> None:
    holdfast_broker.topics.create("orders", 2)

    def grow(count: int, name: str = "orders", **fields: Any) -> int:
        topic = {"name": name, "count": count, "assignments": None}
        return int(client.ask(Api.CREATE_PARTITIONS, {"topics": [topic], **fields}).results[0].error_code)

    assert grow(4, validate_only=True) == 0
    assert len(holdfast_broker.topics.offsets("orders")) == 2
    assert grow(4) == 0
    assert len(holdfast_broker.topics.offsets("orders")) == 4
    assert grow(3) == ErrorCode.INVALID_PARTITIONS
    assert grow(4) == ErrorCode.INVALID_PARTITIONS
    assert grow(4, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_number_of_partitions_there_are_is_told_to_whoever_wants_fewer(client: RawClient) -> None:
    """`kafka-topics --alter --partitions 2` said "2 is not a possible number of partitions. Use 7 to 10000."."""
    create(client, "orders", num_partitions=6)
    topic = {"name": "orders", "count": 2, "assignments": None}
    message = client.ask(Api.CREATE_PARTITIONS, {"topics": [topic]}).results[0].error_message

    assert message == "The topic has 6 partitions already, and 2 would not be more. Use 7 to 10000."


def leaders(broker: Broker, topic: str) -> list[tuple[int, ...]]:
    """Each partition's brokers, its leader first, as clients are told."""
    with RawClient(broker) as client:
        shown = client.ask(Api.METADATA, {"topics": [{"name": topic, "topic_id": None}]})
        there = {node.node_id for node in shown.brokers}
        found = sorted(shown.topics[0].partitions, key=lambda each: int(each.partition_index))
        assert all(each.leader_id in there for each in found), "somebody to ask"
        return [tuple(each.replica_nodes) for each in found]


def test_topics_made_with_racks_are_served_without_them(tmp_path: Path) -> None:
    """Symptom: a folder that was used with three racks once had partitions without a leader when it was used without
    them, and nobody could read or write there; one more partition made the topic unreadable for everybody. Cause: a
    topic keeps the brokers that it was made for. Rule: whoever is not there is left out, since all are this process."""
    folder = tmp_path / "data"
    with Broker(data=folder, racks=["a", "b", "c"]) as broker:
        broker.topics.create("orders", 3, replication=2)
        assert leaders(broker, "orders") == [(0, 1), (1, 2), (2, 0)]
    with Broker(data=folder) as broker:
        assert leaders(broker, "orders") == [(0,), (0,), (0,)]
        with RawClient(broker) as client:
            grown = {"topics": [{"name": "orders", "count": 4, "assignments": None}]}
            assert client.ask(Api.CREATE_PARTITIONS, grown).results[0].error_code == 0
        assert leaders(broker, "orders") == [(0,)] * 4
    with Broker(data=folder, racks=["a", "b", "c"]) as broker:
        with RawClient(broker) as client:
            placed = [{"broker_ids": [2, 1]}]
            grown = {"topics": [{"name": "orders", "count": 5, "assignments": placed}]}
            assert client.ask(Api.CREATE_PARTITIONS, grown).results[0].error_code == 0
        assert leaders(broker, "orders") == [(0, 1), (1, 2), (2, 0), (0,), (2, 1)]


def test_topics_are_deleted_by_name_or_id(holdfast_broker: Broker, client: RawClient) -> None:
    first, second = create(client, "a"), create(client, "b")
    asked = [
        {"name": "a", "topic_id": None},
        {"name": None, "topic_id": second.topic_id},
        {"name": "missing", "topic_id": None},
        {"name": "b", "topic_id": second.topic_id},
    ]
    answers = client.ask(Api.DELETE_TOPICS, {"topics": asked}).responses

    assert [each.error_code for each in answers] == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert (answers[0].topic_id, answers[1].name) == (first.topic_id, "b")
    assert holdfast_broker.topics.names() == []


def describe(client: RawClient, kind: int, name: str, keys: list[str] | None = None) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    return client.ask(Api.DESCRIBE_CONFIGS, asked).results[0]


def change(client: RawClient, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "orders") -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return client.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses[0]


def test_settings_are_changed_one_by_one_or_all_at_once(client: RawClient) -> None:
    create(client, "orders")
    assert change(client, ("retention.ms", SET, "5"), ("segment.ms", SET, "9")).error_code == 0
    assert change(client, ("segment.ms", DELETE, None), ("cleanup.policy", APPEND, "delete")).error_code == 0
    shown = {entry.name: entry for entry in describe(client, TOPIC, "orders").configs}
    assert (shown["retention.ms"].value, shown["segment.ms"].config_source) == ("5", 5)
    assert shown["retention.ms"].documentation and len(shown["retention.ms"].synonyms) == 2
    assert [entry.name for entry in describe(client, TOPIC, "orders", ["segment.ms"]).configs] == ["segment.ms"]

    resource = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "configs": [{"name": "segment.ms", "value": "7"}],
    }
    assert client.ask(Api.ALTER_CONFIGS, {"resources": [resource]}).responses[0].error_code == 0
    shown = {entry.name: entry.value for entry in describe(client, TOPIC, "orders").configs}
    assert (shown["retention.ms"], shown["segment.ms"]) == ("604800000", "7")


def test_settings_that_make_no_sense_change_nothing(client: RawClient) -> None:
    create(client, "orders")
    assert change(client, ("retention.ms", SET, "5"), ("no.such", SET, "1")).error_code == ErrorCode.INVALID_CONFIG
    assert change(client, ("retention.ms", 9, "5")).error_code == ErrorCode.INVALID_REQUEST
    assert change(client, ("retention.ms", SET, None)).error_code == ErrorCode.INVALID_REQUEST
    twice = change(client, ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    assert change(client, name="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(client, ("num.partitions", SET, "3"), kind=BROKER, name="0").error_code == ErrorCode.INVALID_REQUEST
    shown = {entry.name: entry.value for entry in describe(client, TOPIC, "orders").configs}
    assert shown["retention.ms"] == "604800000"


def test_the_broker_shows_its_own_settings_read_only(client: RawClient) -> None:
    shown = {entry.name: entry for entry in describe(client, BROKER, "0").configs}

    assert shown["num.partitions"].value == "1"
    assert all(entry.read_only for entry in shown.values())
    assert describe(client, TOPIC, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(client, 32, "some-group").error_code == ErrorCode.INVALID_REQUEST


def test_the_cluster_describes_itself_the_same_way_twice(client: RawClient) -> None:
    metadata, cluster = client.ask(Api.METADATA, {"topics": []}), client.ask(Api.DESCRIBE_CLUSTER)

    assert metadata.cluster_id == cluster.cluster_id and len(cluster.cluster_id) == 22
    assert metadata.controller_id == cluster.controller_id == 0
    assert [(each.node_id, each.port) for each in metadata.brokers] == [
        (each.broker_id, each.port) for each in cluster.brokers
    ]


# -- racks


@pytest.fixture
def racked() -> Iterator[Broker]:
    with Broker(racks=("a", "b", "c")) as running:
        yield running


def test_every_rack_is_a_broker_with_a_port_of_its_own(racked: Broker) -> None:
    with RawClient(racked) as client:
        brokers = client.ask(Api.METADATA, {"topics": []}).brokers

    assert [(each.node_id, each.rack) for each in brokers] == [(0, "a"), (1, "b"), (2, "c")]
    assert len({each.port for each in brokers}) == 3
    assert racked.bootstrap.count(":") == 3


def test_replicas_go_round_the_racks_or_where_they_are_put(racked: Broker) -> None:
    racked.topics.create("spread", 4, replication=2)
    racked.topics.create("placed", assignments=[[2], [0, 1]])
    with RawClient(racked) as client:
        found = {
            topic.name: [each.replica_nodes for each in topic.partitions]
            for topic in client.ask(Api.METADATA, {"topics": None}).topics
        }
        grow = {"name": "spread", "count": 5, "assignments": None}
        client.ask(Api.CREATE_PARTITIONS, {"topics": [grow]})
        grown = client.ask(Api.METADATA, {"topics": [{"name": "spread"}]}, version=9).topics[0].partitions[4]

    assert found == {"spread": [(0, 1), (1, 2), (2, 0), (0, 1)], "placed": [(2,), (0, 1)]}
    assert grown.replica_nodes == (1, 2)


@pytest.mark.parametrize("assignment", [[[3]], [[0, 0]], [[]]])
def test_replicas_can_only_be_where_there_are_brokers(racked: Broker, assignment: list[list[int]]) -> None:
    with pytest.raises(HoldfastError, match="INVALID_REPLICA_ASSIGNMENT"):
        racked.topics.create("placed", assignments=assignment)


def test_a_consumer_is_sent_to_the_replica_in_its_rack(racked: Broker) -> None:
    """KIP-392: the leader names the replica, and the replica, another port of the same process, serves."""
    racked.topics.create("orders", assignments=[[0, 1]])
    asked = FetchTopic(topic="orders", partitions=(FetchPartition(partition=0, offset=0),))
    with RawClient(racked) as client:
        client.produce("orders", [b"x"])
        ports = {each.node_id: each.port for each in client.ask(Api.METADATA, {"topics": []}).brokers}

        def fetch(node: int, rack: str) -> tuple[int, bool]:
            with RawClient(racked, port=ports[node]) as there:
                request = FetchRequest(max_wait_ms=0, rack=rack, topics=(asked,))
                found = there.fetch(request).topics[0].partitions[0]
                return found.preferred_read_replica, len(found.records) > 0

        assert fetch(0, "b") == (1, False)
        assert fetch(1, "b") == (-1, True)
        assert fetch(0, "a") == (-1, True)
        assert fetch(0, "c") == (-1, True), "no replica in that rack"
        assert fetch(0, "") == (-1, True)


def test_confluent_kafka_works_with_several_brokers_at_once(racked: Broker) -> None:
    """librdkafka takes two brokers at one address for one, so that each needs a port of its own."""
    from confluent_kafka import Consumer, Producer

    racked.topics.create("orders", 6, replication=2)
    producer = Producer({"bootstrap.servers": racked.bootstrap})
    for number in range(60):
        producer.produce("orders", str(number).encode(), partition=number % 6)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": racked.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "client.rack": "b",
        }
    )
    consumer.subscribe(["orders"])
    found: set[int] = set()
    while len(found) < 60:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        value = message.value()
        assert value is not None
        found.add(int(value))
    consumer.close()
