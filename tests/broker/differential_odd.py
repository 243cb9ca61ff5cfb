"""Requests that are odd, wrong or hostile, for `differential`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from differential import NOW, ONE, THREE, Case, Peer, changed
from differential_versions import join_body, joined
from raw_client import Closed, batch

from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch
from holdfast.wire import codec
from holdfast.wire.api import Api


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
    yield "produce-behind-a-refused-batch", _behind_a_refused_one
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
    yield "fetch-behind-another-epoch", _fetch_behind_epoch
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


def _behind_a_refused_one(peer: Peer) -> Any:
    """A producer's second batch comes before its first one does again, which was refused for now."""
    first = changed(ONE, producer_id=4_100, producer_epoch=0, base_sequence=0)
    refused = peer.produce("refused-first", first)
    peer.create("refused-first")
    second = peer.produce("refused-first", changed(first, base_sequence=1))
    return refused, second, peer.produce("refused-first", first)


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


def _fetch_behind_epoch(peer: Peer) -> Any:
    """What came before, as far as the client knows: nothing that is checked, the same, what nobody has."""
    peer.create("behind")
    peer.produce("behind", THREE)
    return [
        peer.fetch("behind", offset, last_fetched_epoch=epoch) for epoch in (-1, 0, 7) for offset in (0, 2, 3, 4, 100)
    ]


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
    return _closed_or_answered(peer, struct.pack(">hhih", 9_999, 0, 5, -1))


def _future_version(peer: Peer) -> str:
    return _closed_or_answered(peer, struct.pack(">hhih", Api.METADATA.key, 99, 5, -1) + b"\0")


def _closed_or_answered(peer: Peer, frame: bytes) -> str:
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
