"""The same raw requests to two brokers, and their answers in a form that can be compared.

A case is a name and a function that asks one broker and returns what a client sees. Names of topics and groups are the
case's own, so that cases don't disturb each other. What must differ (ids, ports, texts for people) is left out here;
whatever else differs is a deviation, which the test looks up in its list.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from crc32c import crc32c
from raw_client import Closed, RawClient, batch

from holdfast.model import ErrorCode
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
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
        self.client = RawClient(self)

    def close(self) -> None:
        self.client.socket.close()

    def again(self) -> None:
        """Connect anew, after a connection was closed."""
        self.close()
        self.client = RawClient(self)

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
        frame = join(parts)
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
            "diverged": found.diverged,
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
