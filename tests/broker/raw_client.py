"""A client of one socket, for tests that need to say exactly what goes over the wire."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any, Protocol

from holdfast.broker.server import Server
from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch
from holdfast.testing import Broker
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.fetch import FetchRequest, FetchResponse, decode_fetch_response, encode_fetch_request
from holdfast.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)


def server_of(broker: Broker) -> Server:
    """What counts a broker's connections and bytes. Its methods belong to the broker's thread: see `Broker.call`."""
    return broker._running.server


class Closed(Exception):
    """The broker closed the connection."""


class Address(Protocol):
    """Where a broker is: all that is asked of it here."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class RawClient:
    def __init__(self, broker: Address, *, tls: ssl.SSLContext | None = None, port: int | None = None) -> None:
        plain = socket.create_connection((broker.host, port or broker.port), timeout=20)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._correlation = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """One frame without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            try:
                more = self.socket.recv(count - len(found))
            except ConnectionError:
                raise Closed from None
            if not more:
                raise Closed
            found += more
        return found

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False if an answer comes instead."""
        try:
            self.receive()
        except Closed:
            return True
        return False

    def request(self, api: Api, version: int, body: Any, *, client_id: str = "raw") -> bytes:
        self._correlation += 1
        return codec.encode_request(api, version, self._correlation, client_id, body)

    def ask(self, api: Api, body: Any | None = None, *, version: int | None = None) -> Any:
        """Send one request and return the answer's body."""
        chosen = api.highest if version is None else version
        self.send(self.request(api, chosen, body or {}))
        answer = codec.decode_response(api, chosen, self.receive())
        assert answer.correlation_id == self._correlation
        return answer.body

    def produce(
        self,
        topic: str,
        records: bytes | list[bytes],
        *,
        partition: int = 0,
        version: int = 12,
        acks: int = -1,
        topic_id: Any = None,
    ) -> ProduceResponse | None:
        self.send_produce(topic, records, partition=partition, version=version, acks=acks, topic_id=topic_id)
        return None if acks == 0 else self.receive_produced(version=version)

    def send_produce(
        self,
        topic: str,
        records: bytes | list[bytes],
        *,
        partition: int = 0,
        version: int = 12,
        acks: int = -1,
        topic_id: Any = None,
    ) -> None:
        data = records if isinstance(records, bytes) else batch(records)
        request = ProduceRequest(
            acks=acks,
            topics=(
                ProduceTopic(
                    topic=topic, topic_id=topic_id, partitions=(ProducePartition(partition=partition, records=data),)
                ),
            ),
        )
        self._correlation += 1
        parts = encode_produce_request(version, self._correlation, "raw", request)
        self.send(join(parts))

    def receive_produced(self, *, version: int = 12) -> ProduceResponse:
        return decode_produce_response(version, self.receive())

    def send_fetch(self, request: FetchRequest, *, version: int = 12) -> None:
        self._correlation += 1
        self.send(encode_fetch_request(version, self._correlation, "raw", request))

    def fetch(self, request: FetchRequest, *, version: int = 12) -> FetchResponse:
        self.send_fetch(request, version=version)
        return decode_fetch_response(version, self.receive())


def batch(values: list[bytes], *, timestamp: int = 1_000, **options: Any) -> bytes:
    """A record batch as a producer sends it."""
    records = [
        Record(offset=number, timestamp=timestamp + number, key=None, value=value)
        for number, value in enumerate(values)
    ]
    return encode_batch(records, **options)
