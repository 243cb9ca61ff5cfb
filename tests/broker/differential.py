"""The same raw requests to two brokers, and their answers in a form that can be compared.

A case is a name and a function that asks one broker and returns what a client sees. Names of topics and groups are the
case's own, so that cases don't disturb each other. What must differ (ids, ports, texts for people) is left out here;
whatever else differs is a deviation, which the test looks up in its list.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from crc32c import crc32c
from raw_client import Closed, RawClient, batch

from holdfast.broker.apis import SERVED
from holdfast.model import ErrorCode
from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from patience import PATIENCE_S

Case = Callable[["Peer"], Any]

LEFT_OUT = frozenset(
    {
        "throttle_time_ms",  # nobody is throttled here
        "error_message",  # for people
        "cluster_id",
        "host",
        "port",
        "producer_id",
        "client_host",
        "documentation",
        "session_id",
        "current_leader",
        "node_endpoints",
        "finalized_features_epoch",
        "supported_features",
        "finalized_features",
        "zk_migration_ready",
    }
)
NODES = frozenset({"node_id", "broker_id", "leader_id", "leader", "controller_id"})
"""Which number a broker has. A group's leader is a member's id, which `_text` deals with."""


class Peer:
    """One of the two brokers."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self.host, self.port = host, int(port)
        self.client = RawClient(self)  # type: ignore[arg-type]  # it takes a host and a port

    def close(self) -> None:
        self.client.socket.close()

    def again(self) -> None:
        """Connect anew, after a connection was closed."""
        self.close()
        self.client = RawClient(self)  # type: ignore[arg-type]

    def ask(self, api: Api, body: Any | None = None, version: int | None = None) -> Any:
        """An answer in its comparable form; "closed" if the connection was closed instead."""
        try:
            return plain(self.client.ask(api, body, version=version))
        except Closed:
            self.again()
            return "closed"

    def raw(self, api: Api, body: Any | None = None, version: int | None = None) -> Any:
        return self.client.ask(api, body, version=version)

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic and wait until it is there."""
        settings = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        answer = self.raw(Api.CREATE_TOPICS, {"topics": [asked], "timeout_ms": 10_000})
        assert answer.topics[0].error_code in (0, 36), answer
        self.settle(topic, partitions)

    def settle(self, topic: str, partitions: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = self.raw(Api.METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}).topics
            if len(found.partitions) == partitions and all(each.error_code == 0 for each in found.partitions):
                return
            assert time.monotonic() < deadline, f"{topic} is not there"
            time.sleep(0.05)

    def topic_id(self, topic: str) -> UUID:
        (found,) = self.raw(Api.METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}).topics
        assert isinstance(found.topic_id, UUID)
        return found.topic_id

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
        transactional_id: str | None = None,
    ) -> Any:
        """What a producer hears: error, base offset and log start of its partition."""
        by_id = self.topic_id(topic) if version >= 13 else None
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topics=(
                ProduceTopic(
                    topic=topic,
                    topic_id=by_id,
                    partitions=(ProducePartition(partition=partition, records=records),),
                ),
            ),
        )
        parts = encode_produce_request(version, 77, "raw", request)
        frame = b"".join(bytes(part) for part in parts)
        if acks == 0:
            self.client.send(frame)
            return self._alive()
        try:
            found = self._produced(version, frame)
        except Closed:
            self.again()
            return "closed"
        return {
            "error": codec.error_code(found.error).name,
            "base_offset": found.base_offset,
            "log_append_time": found.log_append_time_ms >= 0,
            "log_start_offset": found.log_start_offset,
            "record_errors": [index for index, _ in found.record_errors],
        }

    def _produced(self, version: int, frame: bytes) -> Any:
        """Kafka answers NOT_LEADER_OR_FOLLOWER for some moments after a topic was made, whatever its metadata say."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.client.send(frame)
            (found,) = decode_produce_response(version, self.client.receive()).topics[0].partitions
            if found.error != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def _alive(self) -> str:
        """Whether the connection is still there behind a request that has no answer."""
        try:
            self.client.ask(Api.API_VERSIONS, version=0)
        except (Closed, OSError):
            self.again()
            return "closed"
        return "open"

    def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **options: Any) -> Any:
        by_id = self.topic_id(topic) if version >= 13 else None
        asked = FetchPartition(partition=partition, offset=offset, max_bytes=1_000_000, **options)
        request = FetchRequest(max_wait_ms=100, topics=(FetchTopic(topic=topic, topic_id=by_id, partitions=(asked,)),))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.client.fetch(request, version=version)
            if not answer.topics:
                return {"error": answer.error}
            (found,) = answer.topics[0].partitions
            if found.error != ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        content = b"".join(bytes(part) for part in found.records or ())  # type: ignore[arg-type]
        return {
            "error": answer.error or found.error,
            "high_watermark": found.high_watermark,
            "last_stable_offset": found.last_stable_offset,
            "log_start_offset": found.log_start_offset,
            "records": content.hex(),
        }


def plain(value: Any, name: str = "") -> Any:
    """A message as dictionaries and lists, without what must differ."""
    if hasattr(value, "_asdict"):
        return {key: plain(part, key) for key, part in value._asdict().items() if key not in LEFT_OUT}
    if isinstance(value, UUID):
        return "an id"
    if name in NODES and isinstance(value, int):
        return "a broker" if value >= 0 else value
    if name in ("replica_nodes", "isr_nodes") and isinstance(value, tuple):
        return len(value)
    if isinstance(value, tuple | list):
        return sorted((plain(part) for part in value), key=_place)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", value)
    return value


def _place(part: Any) -> str:
    """Brokers list partitions, topics and groups in an order of their own, which means nothing."""
    names = ("partition_index", "partition", "name", "resource_name", "group_id")
    return "" if not isinstance(part, dict) else str(next((part[name] for name in names if name in part), ""))


def changed(data: bytes, *, checksum: bool = True, **fields: int) -> bytes:
    """A batch with other values in its header; the checksum fits unless told."""
    places = {
        "base_offset": (">q", 0),
        "length": (">i", 8),
        "leader_epoch": (">i", 12),
        "magic": (">b", 16),
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "base_timestamp": (">q", 27),
        "max_timestamp": (">q", 35),
        "producer_id": (">q", 43),
        "producer_epoch": (">h", 51),
        "base_sequence": (">i", 53),
        "records": (">i", 57),
    }
    out = bytearray(data)
    for field, value in fields.items():
        form, at = places[field]
        struct.pack_into(form, out, at, value)
    if checksum:
        struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


NOW = int(time.time() * 1000)
ONE = batch([b"one"], timestamp=NOW)
THREE = batch([b"one", b"two", b"three"], timestamp=NOW)


# -- every API in every version


def every_version() -> Iterator[tuple[str, Case]]:
    """One ordinary request in each version of each API that we serve."""
    for api, versions in sorted(SERVED.items(), key=lambda item: item[0].key):
        ask = ORDINARY[api]
        for version in versions:
            yield f"{api.name.lower()}-v{version}", _case(ask, version)


def _case(ask: Callable[[Peer, int, str], Any], version: int) -> Case:
    name = f"{ask.__name__.strip('_')}-{version}"
    return lambda peer: ask(peer, version, name)


def _produce(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    return [peer.produce(name, THREE, version=version), peer.produce(name, ONE, version=version)]


def _fetch(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    peer.produce(name, THREE)
    return [peer.fetch(name, offset, version=version) for offset in (0, 2, 3)]


def _list_offsets(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    peer.produce(name, THREE)
    times = [-1, -2, NOW + 1, NOW + 5, 0] + ([-3] if version >= 7 else []) + ([-4] if version >= 8 else [])
    return [
        peer.ask(
            Api.LIST_OFFSETS,
            {
                "replica_id": -1,
                "timeout_ms": 10_000,
                "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": when}]}],
            },
            version,
        )
        for when in times
    ]


def _metadata(peer: Peer, version: int, name: str) -> Any:
    peer.create(name, 2)
    asked = {"topics": [{"name": name}, {"name": name}], "allow_auto_topic_creation": False}
    return peer.ask(Api.METADATA, asked, version)


def _offset_commit(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    other = {**partition, "partition_index": 9}
    asked = {
        "group_id": name,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": name, "partitions": [partition, other]}],
    }
    return peer.ask(Api.OFFSET_COMMIT, asked, version)


def _offset_fetch(peer: Peer, version: int, name: str) -> Any:
    _offset_commit(peer, 8, name)
    topics = [{"name": name, "partition_indexes": [0, 1]}]
    if version >= 8:
        asked: Any = {"groups": [{"group_id": name, "topics": topics, "member_epoch": -1}]}
    else:
        asked = {"group_id": name, "topics": topics}
    return peer.ask(Api.OFFSET_FETCH, asked, version)


def _find_coordinator(peer: Peer, version: int, name: str) -> Any:
    if version >= 4:
        return peer.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [name, f"{name}-2"]}, version)
    return peer.ask(Api.FIND_COORDINATOR, {"key": name, "key_type": 0}, version)


def join_body(group: str, member: str = "", **changes: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\0\0\0\0\0"}],
        **changes,
    }


def joined(peer: Peer, group: str) -> tuple[str, int]:
    """A group of one member, synced: its id and generation."""
    first = peer.raw(Api.JOIN_GROUP, join_body(group), 3)
    assert first.error_code == 0, first
    sync = {
        "group_id": group,
        "generation_id": first.generation_id,
        "member_id": first.member_id,
        "assignments": [{"member_id": first.member_id, "assignment": b"\0\1\0\0\0\0\0\0\0\0"}],
    }
    assert peer.raw(Api.SYNC_GROUP, sync, 2).error_code == 0
    return first.member_id, first.generation_id


def _join_group(peer: Peer, version: int, name: str) -> Any:
    first = peer.raw(Api.JOIN_GROUP, join_body(name), version)
    second = peer.raw(Api.JOIN_GROUP, join_body(name, first.member_id), version) if first.error_code == 79 else first
    return [plain(first), plain(second)]


def _sync_group(peer: Peer, version: int, name: str) -> Any:
    first = peer.raw(Api.JOIN_GROUP, join_body(name), 3)
    body = {
        "group_id": name,
        "generation_id": first.generation_id,
        "member_id": first.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": first.member_id, "assignment": b"abc"}],
    }
    return [
        peer.ask(Api.SYNC_GROUP, body, version),
        peer.ask(Api.SYNC_GROUP, {**body, "generation_id": first.generation_id + 1}, version),
        peer.ask(Api.SYNC_GROUP, {**body, "member_id": "stranger"}, version),
    ]


def _heartbeat(peer: Peer, version: int, name: str) -> Any:
    member, generation = joined(peer, name)
    asked = {"group_id": name, "generation_id": generation, "member_id": member}
    return [
        peer.ask(Api.HEARTBEAT, asked, version),
        peer.ask(Api.HEARTBEAT, {**asked, "generation_id": generation + 1}, version),
        peer.ask(Api.HEARTBEAT, {**asked, "member_id": "stranger"}, version),
        peer.ask(Api.HEARTBEAT, {**asked, "group_id": f"{name}-absent"}, version),
    ]


def _leave_group(peer: Peer, version: int, name: str) -> Any:
    member, _ = joined(peer, name)
    if version >= 3:
        asked: Any = {"group_id": name, "members": [{"member_id": member}, {"member_id": "stranger"}]}
    else:
        asked = {"group_id": name, "member_id": member}
    return [peer.ask(Api.LEAVE_GROUP, asked, version), peer.ask(Api.LEAVE_GROUP, asked, version)]


def _describe_groups(peer: Peer, version: int, name: str) -> Any:
    joined(peer, name)
    return peer.ask(Api.DESCRIBE_GROUPS, {"groups": [name, f"{name}-absent"]}, version)


def _list_groups(peer: Peer, version: int, name: str) -> Any:
    joined(peer, name)
    answer = peer.ask(Api.LIST_GROUPS, {}, version)
    answer["groups"] = [group for group in answer["groups"] if group["group_id"] == name]
    return answer


def _sasl_handshake(peer: Peer, version: int, name: str) -> Any:
    return peer.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, version)


def _sasl_authenticate(peer: Peer, version: int, name: str) -> Any:
    return peer.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0a\0b"}, version)


def _api_versions(peer: Peer, version: int, name: str) -> Any:
    """Only that every version we say is one of Kafka's: Kafka has more."""
    asked = {"client_software_name": "raw", "client_software_version": "1"}
    answer = peer.raw(Api.API_VERSIONS, asked, version)
    found = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
    served = {api.key: (versions[0], versions[-1]) for api, versions in SERVED.items()}
    return [
        answer.error_code,
        {key: low in found[key] and high in found[key] for key, (low, high) in sorted(served.items())},
    ]


def _create_topics(peer: Peer, version: int, name: str) -> Any:
    asked = {
        "topics": [
            {"name": name, "num_partitions": 2, "replication_factor": 1},
            {"name": f"{name}-twice", "num_partitions": 1, "replication_factor": 1},
            {"name": f"{name}-twice", "num_partitions": 1, "replication_factor": 1},
            {"name": f"{name}-many", "num_partitions": 1, "replication_factor": 9},
            {"name": f"{name}-none", "num_partitions": 0, "replication_factor": 1},
            {"name": "a/b", "num_partitions": 1, "replication_factor": 1},
        ],
        "timeout_ms": 10_000,
    }
    found = [peer.ask(Api.CREATE_TOPICS, asked, version), peer.ask(Api.CREATE_TOPICS, asked, version)]
    for answer in found:
        for topic in answer["topics"]:
            topic.pop("configs", None)  # which settings there are is compared by DescribeConfigs
        answer["topics"].sort(key=lambda topic: str(topic["name"]))
    return found


def _delete_topics(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    names = [name, f"{name}-absent"]
    if version >= 6:
        asked: Any = {"topics": [{"name": each, "topic_id": None} for each in names], "timeout_ms": 10_000}
    else:
        asked = {"topic_names": names, "timeout_ms": 10_000}
    answer = peer.ask(Api.DELETE_TOPICS, asked, version)
    answer["responses"].sort(key=lambda each: str(each["name"]))
    return answer


def _delete_records(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    peer.produce(name, THREE)

    def delete(partition: int, offset: int) -> Any:
        asked = {"partition_index": partition, "offset": offset}
        body = {"topics": [{"name": name, "partitions": [asked]}], "timeout_ms": 10_000}
        return peer.ask(Api.DELETE_RECORDS, body, version)

    return [delete(0, 2), delete(0, 1), delete(0, 9), delete(5, 0), delete(0, -1), delete(0, -2)]


def _init_producer_id(peer: Peer, version: int, name: str) -> Any:
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = peer.ask(Api.INIT_PRODUCER_ID, asked, version)
        loading = answer["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # Kafka has no ids at first
        if not loading or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def _offset_for_leader_epoch(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)
    peer.produce(name, THREE)

    def end(partition: int, epoch: int, current: int = -1) -> Any:
        asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        body = {"replica_id": -2, "topics": [{"topic": name, "partitions": [asked]}]}
        return peer.ask(Api.OFFSET_FOR_LEADER_EPOCH, body, version)

    return [end(0, 0), end(0, 7), end(0, 0, 9), end(3, 0)]


TOPIC_SETTINGS = ("max.message.bytes", "message.timestamp.type", "retention.bytes", "segment.bytes", "segment.ms")


def _describe_configs(peer: Peer, version: int, name: str) -> Any:
    peer.create(name, max_message_bytes="70000")
    asked = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": list(TOPIC_SETTINGS)},
        {"resource_type": 2, "resource_name": f"{name}-absent", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "999", "configuration_keys": []},
    ]
    answer = peer.ask(Api.DESCRIBE_CONFIGS, {"resources": asked}, version)
    for result in answer["results"]:
        for entry in result["configs"]:
            entry.pop("synonyms", None)
        result["configs"].sort(key=lambda entry: str(entry["name"]))
    answer["results"].sort(key=lambda result: str(result["resource_name"]))
    return answer


def _alter_configs(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)

    def alter(value: str, setting: str = "segment.bytes", topic: str = name) -> Any:
        entry = {"name": setting, "value": value}
        body = {"resources": [{"resource_type": 2, "resource_name": topic, "configs": [entry]}], "validate_only": False}
        return peer.ask(Api.ALTER_CONFIGS, body, version)

    return [alter("2000000"), alter("nonsense"), alter("1", "no.such.setting"), alter("2000000", topic=f"{name}-no")]


def _incremental_alter_configs(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)

    def alter(value: str | None, operation: int = 0, setting: str = "segment.bytes", topic: str = name) -> Any:
        entry = {"name": setting, "config_operation": operation, "value": value}
        body = {"resources": [{"resource_type": 2, "resource_name": topic, "configs": [entry]}], "validate_only": False}
        return peer.ask(Api.INCREMENTAL_ALTER_CONFIGS, body, version)

    return [
        alter("2000000"),
        alter(None, 1),
        alter("nonsense"),
        alter(None),
        alter("1", setting="no.such.setting"),
        alter("2000000", topic=f"{name}-no"),
        alter("2000000", 9),
    ]


def _create_partitions(peer: Peer, version: int, name: str) -> Any:
    peer.create(name)

    def grow(topic: str, count: int) -> Any:
        asked = {"name": topic, "count": count, "assignments": None}
        body = {"topics": [asked], "timeout_ms": 10_000, "validate_only": False}
        return peer.ask(Api.CREATE_PARTITIONS, body, version)

    return [grow(name, 3), grow(name, 3), grow(name, 2), grow(name, 0), grow(f"{name}-absent", 3)]


def _delete_groups(peer: Peer, version: int, name: str) -> Any:
    joined(peer, name)
    _offset_commit(peer, 8, f"{name}-empty")
    asked = {"groups_names": [name, f"{name}-empty", f"{name}-absent"]}
    answer = peer.ask(Api.DELETE_GROUPS, asked, version)
    answer["results"].sort(key=lambda each: str(each["group_id"]))
    return answer


def _offset_delete(peer: Peer, version: int, name: str) -> Any:
    _offset_commit(peer, 8, name)

    def delete(group: str, topic: str, partition: int) -> Any:
        body = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": partition}]}]}
        return peer.ask(Api.OFFSET_DELETE, body, version)

    return [delete(name, name, 0), delete(name, name, 9), delete(name, "absent", 0), delete(f"{name}-absent", name, 0)]


def _describe_cluster(peer: Peer, version: int, name: str) -> Any:
    return peer.ask(Api.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}, version)


ORDINARY: dict[Api, Callable[[Peer, int, str], Any]] = {
    Api.PRODUCE: _produce,
    Api.FETCH: _fetch,
    Api.LIST_OFFSETS: _list_offsets,
    Api.METADATA: _metadata,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.OFFSET_FETCH: _offset_fetch,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.JOIN_GROUP: _join_group,
    Api.HEARTBEAT: _heartbeat,
    Api.LEAVE_GROUP: _leave_group,
    Api.SYNC_GROUP: _sync_group,
    Api.DESCRIBE_GROUPS: _describe_groups,
    Api.LIST_GROUPS: _list_groups,
    Api.SASL_HANDSHAKE: _sasl_handshake,
    Api.API_VERSIONS: _api_versions,
    Api.CREATE_TOPICS: _create_topics,
    Api.DELETE_TOPICS: _delete_topics,
    Api.DELETE_RECORDS: _delete_records,
    Api.INIT_PRODUCER_ID: _init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    Api.DESCRIBE_CONFIGS: _describe_configs,
    Api.ALTER_CONFIGS: _alter_configs,
    Api.SASL_AUTHENTICATE: _sasl_authenticate,
    Api.CREATE_PARTITIONS: _create_partitions,
    Api.DELETE_GROUPS: _delete_groups,
    Api.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    Api.OFFSET_DELETE: _offset_delete,
    Api.DESCRIBE_CLUSTER: _describe_cluster,
}


# -- what is odd, wrong or hostile


def odd_cases() -> Iterator[tuple[str, Case]]:
    yield from _odd_batches()
    yield from _odd_requests()


def _odd_batches() -> Iterator[tuple[str, Case]]:
    gzip, zstd = batch([b"one", b"two", b"three"], timestamp=NOW, codec=1), batch([b"one"], timestamp=NOW, codec=4)
    idempotent = changed(ONE, producer_id=4_000, producer_epoch=0, base_sequence=0)
    two_ends_of_time = [Record(number, when, None, b"") for number, when in enumerate((0, 2**63 - 1))]
    batches: dict[str, bytes] = {
        "good": THREE,
        "good-gzip": gzip,
        "good-zstd": zstd,
        "empty": b"",
        "two-batches": ONE + ONE,
        "cut": THREE[:-1],
        "short": THREE[:30],
        "bad-checksum": changed(THREE, checksum=False, records=2),
        "base-offset": changed(THREE, base_offset=5),
        "magic-0": changed(THREE, magic=0),
        "magic-1": changed(THREE, magic=1),
        "magic-3": changed(THREE, magic=3),
        "unknown-codec": changed(THREE, attributes=7),
        "gzip-flag-over-plain": changed(THREE, attributes=1),
        "snappy-flag-over-plain": changed(THREE, attributes=2),
        "lz4-flag-over-plain": changed(THREE, attributes=3),
        "zstd-flag-over-plain": changed(THREE, attributes=4),
        "plain-flag-over-gzip": changed(gzip, attributes=0),
        "more-records-than-there-are": changed(THREE, records=4, last_offset_delta=3),
        "fewer-records-than-there-are": changed(THREE, records=2, last_offset_delta=1),
        "no-records": changed(THREE, records=0, last_offset_delta=-1),
        "negative-records": changed(THREE, records=-1),
        "count-is-not-span": changed(THREE, last_offset_delta=9),
        "more-records-than-there-are-gzip": changed(gzip, records=4, last_offset_delta=3),
        "fewer-records-than-there-are-gzip": changed(gzip, records=2, last_offset_delta=1),
        "append-time": changed(THREE, attributes=8),
        "transactional": changed(idempotent, attributes=16),
        "transactional-without-a-producer": changed(THREE, attributes=16),
        "control": changed(THREE, attributes=32),
        "idempotent": idempotent,
        "idempotent-from-5": changed(idempotent, base_sequence=5),
        "idempotent-without-sequence": changed(idempotent, base_sequence=-1),
        "idempotent-without-epoch": changed(idempotent, producer_epoch=-1),
        "far-future": batch([b"one"], timestamp=NOW + 10 * 86_400_000),
        "long-ago": changed(THREE, base_timestamp=-(2**62) - 5, max_timestamp=-1),
        "time-that-runs-over": changed(encode_batch(two_ends_of_time), base_timestamp=NOW, max_timestamp=NOW),
        "false-latest-time": changed(THREE, max_timestamp=NOW - 86_400_000),
        "leader-epoch": changed(THREE, leader_epoch=77),
        "record-with-a-false-length": changed(bytes(bytearray(ONE[:61]) + bytes([ONE[61] + 2]) + ONE[62:])),
        "record-with-a-false-offset": changed(bytes(bytearray(ONE[:64]) + b"\x04" + ONE[65:])),
        "record-with-a-false-key": changed(bytes(bytearray(ONE[:65]) + b"\x40" + ONE[66:])),
    }
    for name, data in batches.items():
        yield f"batch-{name}", _batch_case(f"batch-{name}", data)
    yield "batch-append-time-to-append-time", _append_time


def _batch_case(name: str, data: bytes) -> Case:
    """What the producer hears, and what a reader then gets."""

    def ask(peer: Peer) -> Any:
        peer.create(name)
        return [peer.produce(name, data), peer.fetch(name, 0)]

    return ask


def _append_time(peer: Peer) -> Any:
    peer.create("append-time", message_timestamp_type="LogAppendTime")
    return [peer.produce("append-time", data) for data in (THREE, changed(THREE, attributes=8))]


def _odd_requests() -> Iterator[tuple[str, Case]]:
    yield "create-a_b-beside-a.b", _collision
    yield "auto-create-a_b-beside-a.b", _auto_collision
    yield "auto-create", _auto_create
    yield (
        "metadata-of-an-impossible-name",
        lambda peer: peer.ask(Api.METADATA, {"topics": [{"name": "a/b"}], "allow_auto_topic_creation": True}),
    )
    yield "acks-0-to-a-missing-partition", lambda peer: _acks_0(peer, "acks-0-missing", 5)
    yield "acks-0-to-a-missing-topic", lambda peer: peer.produce("acks-0-nowhere", ONE, acks=0)
    yield "acks-0", lambda peer: _acks_0(peer, "acks-0", 0)
    yield "acks-7", lambda peer: _acks(peer, "acks-7", 7)
    yield "produce-to-a-missing-topic", lambda peer: peer.produce("nowhere", ONE)
    yield "produce-to-a-missing-partition", _to_missing
    yield "produce-with-a-transaction", _transactional
    yield (
        "init-producer-id-with-a-transaction",
        lambda peer: peer.ask(Api.INIT_PRODUCER_ID, {"transactional_id": "t", "transaction_timeout_ms": 60_000}),
    )
    yield (
        "find-coordinator-of-a-transaction",
        lambda peer: peer.ask(Api.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["t"]}, 4),
    )
    yield (
        "find-coordinator-of-an-unknown-kind",
        lambda peer: peer.ask(Api.FIND_COORDINATOR, {"key_type": 9, "coordinator_keys": ["t"]}, 4),
    )
    yield (
        "find-coordinator-of-nobody",
        lambda peer: peer.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [""]}, 4),
    )
    yield "fetch-out-of-range", _out_of_range
    yield "fetch-a-missing-topic", lambda peer: peer.fetch("nowhere", 0)
    yield "fetch-with-another-epoch", _fetch_epoch
    yield "list-offsets-twice", _list_twice
    yield "list-offsets-of-an-unknown-kind", _list_kind
    yield "describe-groups-twice", _describe_twice
    yield "describe-configs-twice", _configs_twice
    yield "alter-configs-twice", _alter_twice
    yield "commit-by-a-stranger", _commit_stranger
    yield "commit-in-a-generation-of-an-empty-group", _commit_generation
    yield (
        "join-with-a-short-session",
        lambda peer: peer.ask(Api.JOIN_GROUP, join_body("short-session", session_timeout_ms=10), 5),
    )
    yield "join-without-protocols", lambda peer: peer.ask(Api.JOIN_GROUP, join_body("no-protocols", protocols=[]), 5)
    yield "join-without-a-group", lambda peer: peer.ask(Api.JOIN_GROUP, join_body(""), 5)
    yield "join-as-an-unknown-member", lambda peer: peer.ask(Api.JOIN_GROUP, join_body("unknown", "stranger"), 5)
    yield "describe-acls-is-served", lambda peer: _is_served(peer, Api.DESCRIBE_ACLS.key)
    yield "describe-user-scram-credentials-is-served", lambda peer: _is_served(peer, 50)
    yield "add-partitions-to-a-transaction-is-served", lambda peer: _is_served(peer, 24)
    yield "an-unknown-api", _unknown_api
    yield "a-version-from-the-future", _future_version
    yield "api-versions-from-the-future", _future_api_versions


def _collision(peer: Peer) -> Any:
    peer.create("dots.and_bars")
    asked = [
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("dots_and.bars", "dots.and_bars")
    ]
    answer = peer.ask(Api.CREATE_TOPICS, {"topics": asked, "timeout_ms": 10_000})
    return sorted((topic["name"], topic["error_code"]) for topic in answer["topics"])


def _auto_collision(peer: Peer) -> Any:
    peer.create("auto.dots_x")
    answer = peer.ask(Api.METADATA, {"topics": [{"name": "auto_dots.x"}], "allow_auto_topic_creation": True})
    return [(topic["name"], topic["error_code"]) for topic in answer["topics"]]


def _auto_create(peer: Peer) -> Any:
    answer = peer.ask(Api.METADATA, {"topics": [{"name": "made-on-demand"}], "allow_auto_topic_creation": True})
    return [(topic["name"], topic["error_code"]) for topic in answer["topics"]]


def _acks_0(peer: Peer, topic: str, partition: int) -> Any:
    peer.create(topic)
    return peer.produce(topic, ONE, partition=partition, acks=0)


def _acks(peer: Peer, topic: str, acks: int) -> Any:
    peer.create(topic)
    return peer.produce(topic, ONE, acks=acks)


def _to_missing(peer: Peer) -> Any:
    peer.create("one-partition")
    return peer.produce("one-partition", ONE, partition=5)


def _transactional(peer: Peer) -> Any:
    peer.create("transactional")
    data = changed(ONE, producer_id=4_000, producer_epoch=0, base_sequence=0)
    return peer.produce("transactional", changed(data, attributes=16), transactional_id="t")


def _out_of_range(peer: Peer) -> Any:
    peer.create("range")
    peer.produce("range", THREE)
    body = {"topics": [{"name": "range", "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 10_000}
    peer.raw(Api.DELETE_RECORDS, body)
    return [peer.fetch("range", offset) for offset in (0, 2, 3, 4, -1)]


def _fetch_epoch(peer: Peer) -> Any:
    peer.create("epochs")
    peer.produce("epochs", THREE)
    return [peer.fetch("epochs", 0, leader_epoch=epoch) for epoch in (-1, 0, 7)]


def _list_twice(peer: Peer) -> Any:
    peer.create("twice")
    peer.produce("twice", THREE)
    asked = [{"partition_index": 0, "timestamp": when} for when in (-1, -2)]
    return peer.ask(
        Api.LIST_OFFSETS,
        {"replica_id": -1, "timeout_ms": 10_000, "topics": [{"name": "twice", "partitions": asked}]},
        7,
    )


def _list_kind(peer: Peer) -> Any:
    peer.create("kinds")
    peer.produce("kinds", THREE)
    asked = [{"partition_index": 0, "timestamp": -77}]
    return peer.ask(
        Api.LIST_OFFSETS,
        {"replica_id": -1, "timeout_ms": 10_000, "topics": [{"name": "kinds", "partitions": asked}]},
        7,
    )


def _describe_twice(peer: Peer) -> Any:
    joined(peer, "described-twice")
    return peer.ask(Api.DESCRIBE_GROUPS, {"groups": ["described-twice"] * 2}, 5)


def _configs_twice(peer: Peer) -> Any:
    peer.create("configured-twice")
    asked = {"resource_type": 2, "resource_name": "configured-twice", "configuration_keys": ["segment.bytes"]}
    answer = peer.ask(Api.DESCRIBE_CONFIGS, {"resources": [asked, asked]})
    return [(each["resource_name"], len(each["configs"])) for each in answer["results"]]


def _alter_twice(peer: Peer) -> Any:
    peer.create("altered-twice")
    asked = {
        "resource_type": 2,
        "resource_name": "altered-twice",
        "configs": [{"name": "segment.bytes", "config_operation": 0, "value": "2000000"}],
    }
    return peer.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked, asked], "validate_only": False})


def _commit_stranger(peer: Peer) -> Any:
    peer.create("strange")
    _, generation = joined(peer, "strange-group")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": "strange", "partitions": [partition]}]
    asked = {"group_id": "strange-group", "topics": topics}
    return [
        peer.ask(Api.OFFSET_COMMIT, {**asked, "generation_id_or_member_epoch": number, "member_id": member}, 8)
        for number, member in ((generation, "stranger"), (-1, ""), (generation, ""))
    ]


def _commit_generation(peer: Peer) -> Any:
    peer.create("generations")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": "generations", "partitions": [partition]}]
    asked = {"group_id": "nobody-there", "generation_id_or_member_epoch": 3, "member_id": "m", "topics": topics}
    return peer.ask(Api.OFFSET_COMMIT, asked, 8)


def _is_served(peer: Peer, key: int) -> bool:
    return key in {each.api_key for each in peer.raw(Api.API_VERSIONS, version=0).api_keys}


def _unknown_api(peer: Peer) -> str:
    frame = struct.pack(">hhih", 9_999, 0, 5, -1)
    peer.client.send(struct.pack(">i", len(frame)) + frame)
    try:
        peer.client.receive()
    except Closed:
        peer.again()
        return "closed"
    return "answered"


def _future_version(peer: Peer) -> str:
    frame = struct.pack(">hhih", Api.METADATA.key, 99, 5, -1) + b"\0"
    peer.client.send(struct.pack(">i", len(frame)) + frame)
    try:
        peer.client.receive()
    except Closed:
        peer.again()
        return "closed"
    return "answered"


def _future_api_versions(peer: Peer) -> Any:
    frame = struct.pack(">hhih", Api.API_VERSIONS.key, 99, 5, -1) + b"\0\1\1\0"
    peer.client.send(struct.pack(">i", len(frame)) + frame)
    answer = codec.decode_response(Api.API_VERSIONS, 0, peer.client.receive()).body
    return [answer.error_code, bool(answer.api_keys)]
