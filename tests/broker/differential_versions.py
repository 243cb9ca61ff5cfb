"""One ordinary request in every version of every API, for `differential`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from differential import NOW, ONE, THREE, Case, Peer, plain

from holdfast.broker.apis import SERVED
from holdfast.model import ErrorCode
from holdfast.wire.api import Api
from patience import PATIENCE_S


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
