"""Mutated frames into every API: no crash, no hang, no answer in the wrong place, memory within bounds.

Frames go through a real `Connection` and the real dispatcher, over a transport that only counts. The seed is in the
test's name; a failure prints the frame.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import struct
import time
from collections.abc import Callable

import pytest
from test_broker_apis import frame_of

from holdfast.broker.apis import SERVED
from holdfast.broker.broker import Broker
from holdfast.broker.connection import Connection
from holdfast.broker.limits import MIB, Limits
from holdfast.broker.security.users import Users
from holdfast.broker.settings import BrokerSettings
from holdfast.wire import codec
from holdfast.wire.api import Api

QUICK_FRAMES = 500
FRAMES = 5_000
NIGHTLY_FRAMES = 200_000
SEED = 20261116
SLOWEST_SECONDS = 2.0
"""Of the thread's own time: one frame takes microseconds, and a busy machine may take the processor away for long."""
GROWTH_BYTES = 300 * MIB

EXTREMES = [b"\x00" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\x00\x01"]


class CountingTransport(asyncio.Transport):
    """Takes what is written, remembers whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        size = struct.unpack_from(">i", data)[0]
        assert size == len(data) - 4, "an answer is one frame of the size it says"
        self.written += 1

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def mutate(frame: bytes, rng: random.Random) -> bytes:
    """The frame with one to four things wrong. Its announced size is right: what is inside it is under test."""
    body = bytearray(frame[4:])
    for _ in range(rng.randint(1, 4)):
        rng.choice(MUTATIONS)(body, rng)
    return struct.pack(">i", len(body)) + bytes(body)


def _flip(body: bytearray, rng: random.Random) -> None:
    if body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _overwrite(body: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(body))
    extreme = rng.choice(EXTREMES)
    body[at : at + len(extreme)] = extreme


def _insert(body: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(body))
    body[at:at] = rng.choice(EXTREMES) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 40))


def _cut(body: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(body))
    del body[at : at + rng.randint(1, 12)]


def _truncate(body: bytearray, rng: random.Random) -> None:
    del body[rng.randint(0, len(body)) :]


def _repeat(body: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(body))
    piece = body[at : at + rng.randint(1, 40)]
    body[at:at] = piece * rng.randint(1, 20)


def _version(body: bytearray, rng: random.Random) -> None:
    if len(body) >= 4:
        body[2:4] = rng.choice([rng.randint(-2, 20), -32_768, 32_767]).to_bytes(2, "big", signed=True)


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    _flip,
    _flip,
    _flip,
    _overwrite,
    _overwrite,
    _insert,
    _cut,
    _truncate,
    _repeat,
    _version,
]


async def fuzz(api: Api, count: int, seed: int) -> None:
    rng = random.Random(f"{seed}-{api.name}")
    originals = [frame_of(api, version) for version in SERVED[api]]
    limits = Limits(max_topics=200, max_partitions=2_000)
    async with Broker(BrokerSettings(port=0, limits=limits)) as broker:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connection = _connect(broker)
        for number in range(count):
            frame = mutate(rng.choice(originals), rng)
            began = time.thread_time()
            try:
                _feed(connection, frame)
            except BaseException:
                print(f"frame {number} of {api.name}: {frame.hex()}")
                raise
            assert time.thread_time() - began < SLOWEST_SECONDS, frame.hex()
            if connection.closed or connection.busy:
                connection.connection_lost(None)
                connection = _connect(broker)
            if number % 64 == 0:
                await asyncio.sleep(0)
        connection.connection_lost(None)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < GROWTH_BYTES
        assert broker.server.connection_count == 0
        await _still_serves(broker)


def _connect(broker: Broker) -> Connection:
    connection = Connection(broker.server, host="fuzz", node_id=0, login_required=False)
    connection.connection_made(CountingTransport())
    return connection


def _feed(connection: Connection, data: bytes) -> None:
    while data and not (connection.closed or connection.busy):
        room = connection.get_buffer(-1)
        piece = data[: len(room)]
        room[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        data = data[len(piece) :]


async def _still_serves(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.state.nodes[0].port)
    writer.write(frame_of(Api.API_VERSIONS, 0))
    assert await asyncio.wait_for(reader.readexactly(8), 20)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("api", [pytest.param(api, id=f"{api.schema}-seed-{SEED}") for api in SERVED])
@pytest.mark.parametrize("count", [QUICK_FRAMES, pytest.param(FRAMES, marks=pytest.mark.slow)])
def test_mutated_frames_harm_nobody(api: Api, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    asyncio.run(fuzz(api, count, SEED))
    assert caplog.records == [], "a handler failed"


@pytest.mark.parametrize("count", [QUICK_FRAMES, pytest.param(FRAMES, marks=pytest.mark.slow)])
def test_mutated_frames_never_log_a_stranger_in(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """Before the login every API is tried, SASL's own most of all."""
    caplog.set_level(logging.ERROR)
    asyncio.run(knock(count, SEED))
    assert caplog.records == [], "a handler failed"


async def knock(count: int, seed: int) -> None:
    rng = random.Random(seed)
    users = Users().with_user("alice", "open sesame", allow=["all"], iterations=4_096)
    opening = [frame_of(api, version) for api in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE) for version in SERVED[api]]
    opening.append(_handshake("SCRAM-SHA-256"))
    others = [frame_of(api, versions[-1]) for api, versions in SERVED.items()]
    async with Broker(BrokerSettings(port=0), users=users) as broker:
        for _ in range(count):
            connection = Connection(broker.server, host="fuzz", node_id=0, login_required=True)
            connection.connection_made(CountingTransport())
            if rng.random() < 0.5:
                _feed(connection, _handshake("SCRAM-SHA-256"))
            _feed(connection, mutate(rng.choice(opening), rng))
            _feed(connection, mutate(rng.choice(others), rng))
            assert not connection.authenticated
            connection.connection_lost(None)
        assert broker.state.store.topics() == []
        assert broker.state.groups.list() == []


def _handshake(mechanism: str) -> bytes:
    return codec.encode_request(Api.SASL_HANDSHAKE, 1, 1, "fuzz", {"mechanism": mechanism})


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("api", [pytest.param(api, id=api.schema) for api in SERVED])
def test_many_mutated_frames_harm_nobody(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    seed = int(time.time())
    print(f"seed {seed}")
    asyncio.run(fuzz(api, NIGHTLY_FRAMES, seed))
    assert caplog.records == [], "a handler failed"
