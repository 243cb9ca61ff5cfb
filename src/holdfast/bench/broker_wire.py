"""A client with one socket for `holdfast bench broker --hostile`: it sends exactly the given bytes, valid or not."""

from __future__ import annotations

import socket
import struct
from typing import Any

from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from holdfast.wire.scram import ScramClient

TIMEOUT_S = 60.0
MECHANISM = "SCRAM-SHA-256"


class Wire:
    """One connection."""

    def __init__(self, bootstrap: str, *, login: tuple[str, str] | None = None) -> None:
        host, _, port = bootstrap.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0
        if login is not None:
            self._log_in(*login)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """One frame without its size. ConnectionError when the broker has closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts, left = [], count
        while left:
            part = self.socket.recv(min(left, 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def request(self, api: Api, version: int, body: Any) -> bytes:
        self._correlation += 1
        return codec.encode_request(api, version, self._correlation, "bench", body)

    def ask(self, api: Api, version: int, body: Any) -> Any:
        self.send(self.request(api, version, body))
        return codec.decode_response(api, version, self.receive()).body

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        found = self.ask(Api.CREATE_TOPICS, 5, {"topics": [asked], "timeout_ms": 10_000}).topics[0]
        if found.error_code not in (0, 36):
            raise RuntimeError(f"{topic} can't be created: {found.error_message}")

    def join(self, group: str, metadata: bytes = b"") -> dict[str, Any]:
        """Become the only member of a group; returns the body of a heartbeat."""
        asked = {
            "group_id": group,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        joined = self.ask(Api.JOIN_GROUP, 3, asked)
        member = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        given = [{"member_id": joined.member_id, "assignment": b""}]
        if joined.error_code or self.ask(Api.SYNC_GROUP, 2, {**member, "assignments": given}).error_code:
            raise RuntimeError(f"can't join {group}: error {joined.error_code}")
        return member

    def _log_in(self, user: str, password: str) -> None:
        self.ask(Api.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
        scram = ScramClient(MECHANISM, user, password, "bench")
        challenge = self.ask(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": scram.first()})
        answer = self.ask(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": scram.respond(challenge.auth_bytes)})
        if answer.error_code:
            raise RuntimeError("the bench's own login failed")


def records(values: list[bytes], *, codec: int = 0) -> bytes:
    """A batch of records with timestamps a millisecond apart."""
    return encode_batch([Record(number, number, None, value) for number, value in enumerate(values)], codec=codec)


def produce_frame(topic: str, data: bytes, *, acks: int = -1) -> bytes:
    partition = ProducePartition(partition=0, records=data)
    request = ProduceRequest(acks=acks, topics=(ProduceTopic(topic=topic, partitions=(partition,)),))
    return join(encode_produce_request(9, 1, "bench", request))
