"""One connection against a broker that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from net_server import ScriptedBroker, Talk, answering, until

from holdfast.model import ErrorCode
from holdfast.net.config import client_config
from holdfast.net.connection import MAX_IN_FLIGHT, Connection
from holdfast.net.errors import NetError, reason
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse, FetchTopic
from holdfast.wire.fetch import encode_fetch_response as encode_fetched

BEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


async def opened(broker: ScriptedBroker) -> Connection:
    return await Connection.open("127.0.0.1", broker.port)


async def beat(connection: Connection, generation: int = 1, timeout_s: float = 30.0) -> int:
    body = await connection.request(Api.HEARTBEAT, BEAT | {"generation_id": generation}, timeout_s=timeout_s)
    return int(body.error_code)


async def echo(talk: Talk, request: codec.RequestFrame) -> Any:
    return {"error_code": request.body.generation_id}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_requests_are_answered_in_a_pipeline() -> None:
    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: echo}) as broker:
            connection = await opened(broker)
            assert await asyncio.gather(*(beat(connection, n) for n in range(200))) == list(range(200))
            assert connection.in_flight == 0
            await connection.close()

    run(scene())


def test_the_highest_common_version_is_used() -> None:
    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: echo}, versions={Api.HEARTBEAT: (0, 2)}) as broker:
            connection = await opened(broker)
            await beat(connection)
            assert broker.asked[-1].version == 2
            await connection.close()

    run(scene())


def test_an_api_the_broker_does_not_offer_is_refused_without_asking() -> None:
    async def scene() -> None:
        async with ScriptedBroker(versions={Api.HEARTBEAT: (90, 99)}) as broker:
            connection = await opened(broker)
            assert not connection.offers(Api.HEARTBEAT)
            with pytest.raises(NetError, match="UNSUPPORTED_BY_BROKER") as refused:
                await beat(connection)
            assert not refused.value.retriable
            await connection.close()

    run(scene())


@pytest.mark.parametrize("newest", [0, 1, 2, 3, 4])
def test_versions_are_learnt_from_brokers_of_any_age(newest: int) -> None:
    """An old broker answers ApiVersions in version 0 with UNSUPPORTED_VERSION; we ask again in what it offers."""

    async def scene() -> None:
        async with ScriptedBroker({Api.HEARTBEAT: echo}, newest_api_versions=newest) as broker:
            connection = await opened(broker)
            assert await beat(connection, 7) == 7
            assert [asked.version for asked in broker.asked if asked.api is Api.API_VERSIONS] == [newest]
            await connection.close()

    run(scene())


def test_a_late_answer_to_an_abandoned_request_is_not_taken_for_anothers() -> None:
    async def scene() -> None:
        release = asyncio.Event()

        async def slow(talk: Talk, request: codec.RequestFrame) -> Any:
            if request.body.generation_id == 1:
                await release.wait()
            return {"error_code": request.body.generation_id}

        async with ScriptedBroker({Api.HEARTBEAT: slow}) as broker:
            connection = await opened(broker)
            first = asyncio.create_task(beat(connection, 1))
            await until(lambda: connection.in_flight > 0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            second = asyncio.create_task(beat(connection, 2))
            await until(lambda: connection.in_flight == 2)
            release.set()
            assert await second == 2
            assert connection.in_flight == 0
            await connection.close()

    run(scene())


def test_a_request_that_times_out_says_so_and_leaves_the_connection_usable() -> None:
    async def scene() -> None:
        release = asyncio.Event()

        async def slow(talk: Talk, request: codec.RequestFrame) -> Any:
            if request.body.generation_id == 1:
                await release.wait()
            return {"error_code": request.body.generation_id}

        async with ScriptedBroker({Api.HEARTBEAT: slow}) as broker:
            connection = await opened(broker)
            with pytest.raises(NetError, match="REQUEST_TIMED_OUT") as late:
                await beat(connection, 1, timeout_s=0.01)
            assert late.value.retriable
            release.set()
            assert await beat(connection, 2) == 2
            await connection.close()

    run(scene())


def test_an_answer_out_of_order_ends_the_connection_for_everybody() -> None:
    async def scene() -> None:
        held: list[codec.RequestFrame] = []

        async def swap(talk: Talk, request: codec.RequestFrame) -> Any:
            held.append(request)
            if len(held) == 2:
                for one in reversed(held):
                    await talk.write(talk.answer(one, {"error_code": 0}))

        async with ScriptedBroker({Api.HEARTBEAT: swap}) as broker:
            connection = await opened(broker)
            answers = await asyncio.gather(beat(connection, 1), beat(connection, 2), return_exceptions=True)
            assert all(isinstance(answer, NetError) and "out of order" in answer.what for answer in answers)
            assert answers[0] is not answers[1]
            assert connection.closed
            with pytest.raises(NetError, match="DISCONNECTED"):
                await beat(connection, 3)
            await connection.close()

    run(scene())


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async def scene() -> None:
        async def twice(talk: Talk, request: codec.RequestFrame) -> Any:
            await talk.write(talk.answer(request, {"error_code": 0}) * 2)

        async with ScriptedBroker({Api.HEARTBEAT: twice}) as broker:
            connection = await opened(broker)
            assert await beat(connection) == 0
            await until(lambda: connection.closed)
            await connection.close()

    run(scene())


def test_answers_may_come_one_byte_at_a_time() -> None:
    async def scene() -> None:
        async def trickle(talk: Talk, request: codec.RequestFrame) -> Any:
            for byte in talk.answer(request, {"error_code": request.body.generation_id}):
                await talk.write(bytes([byte]))
                await asyncio.sleep(0)

        async with ScriptedBroker({Api.HEARTBEAT: trickle}) as broker:
            connection = await opened(broker)
            assert await asyncio.gather(*(beat(connection, n) for n in range(5))) == list(range(5))
            await connection.close()

    run(scene())


def test_a_disconnect_in_the_middle_of_a_frame_is_told_to_every_waiter() -> None:
    async def scene() -> None:
        async def half(talk: Talk, request: codec.RequestFrame) -> Any:
            if request.body.generation_id == 2:
                await talk.write(talk.answer(request, {"error_code": 0})[:7])
                talk.writer.close()

        async with ScriptedBroker({Api.HEARTBEAT: half}) as broker:
            connection = await opened(broker)
            answers = await asyncio.gather(*(beat(connection, n) for n in (1, 2, 3)), return_exceptions=True)
            assert [getattr(answer, "code", None) for answer in answers] == ["DISCONNECTED"] * 3
            assert all(isinstance(answer, NetError) and answer.retriable for answer in answers)
            await connection.close()

    run(scene())


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02xx"])
def test_a_frame_that_can_not_be_ends_the_connection(size: bytes) -> None:
    async def scene() -> None:
        async def lie(talk: Talk, request: codec.RequestFrame) -> Any:
            await talk.write(size)

        async with ScriptedBroker({Api.HEARTBEAT: lie}) as broker:
            connection = await opened(broker)
            with pytest.raises(NetError, match="DISCONNECTED"):
                await beat(connection)
            await connection.close()

    run(scene())


def test_an_answer_that_can_not_be_read_is_told_to_whoever_asked() -> None:
    async def scene() -> None:
        async def cut(talk: Talk, request: codec.RequestFrame) -> Any:
            whole = talk.answer(request, {"error_code": 0})[4:-2]
            await talk.write(len(whole).to_bytes(4, "big") + whole)

        async with ScriptedBroker({Api.HEARTBEAT: cut}) as broker:
            connection = await opened(broker)
            with pytest.raises(NetError, match=r"HeartbeatResponse\."):
                await beat(connection)
            assert connection.closed
            await connection.close()

    run(scene())


def test_closing_tells_every_waiter_and_is_done_twice_without_harm() -> None:
    async def scene() -> None:
        async def never(talk: Talk, request: codec.RequestFrame) -> Any:
            return None

        async with ScriptedBroker({Api.HEARTBEAT: never}) as broker:
            connection = await opened(broker)
            waiting = [asyncio.create_task(beat(connection, n)) for n in range(MAX_IN_FLIGHT + 20)]
            await until(lambda: connection.in_flight == MAX_IN_FLIGHT)
            await connection.close()
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert {getattr(answer, "code", answer) for answer in answers} == {"DISCONNECTED"}
            assert len({id(answer) for answer in answers}) == len(answers)
            await connection.close()

    run(scene())


def test_requests_in_flight_are_bounded_and_the_rest_wait_their_turn() -> None:
    async def scene() -> None:
        release = asyncio.Event()
        most = 0

        async def slow(talk: Talk, request: codec.RequestFrame) -> Any:
            await release.wait()
            return {"error_code": request.body.generation_id}

        async with ScriptedBroker({Api.HEARTBEAT: slow}) as broker:
            connection = await opened(broker)
            waiting = [asyncio.create_task(beat(connection, n)) for n in range(3 * MAX_IN_FLIGHT)]
            for _ in range(50):
                await asyncio.sleep(0)
                most = max(most, connection.in_flight)
            assert most == MAX_IN_FLIGHT
            release.set()
            assert await asyncio.gather(*waiting) == list(range(3 * MAX_IN_FLIGHT))
            await connection.close()

    run(scene())


def test_an_abandoned_request_that_was_never_sent_gives_its_room_back() -> None:
    async def scene() -> None:
        release = asyncio.Event()

        async def slow(talk: Talk, request: codec.RequestFrame) -> Any:
            await release.wait()
            return {"error_code": request.body.generation_id}

        async with ScriptedBroker({Api.HEARTBEAT: slow}) as broker:
            connection = await opened(broker)
            waiting = [asyncio.create_task(beat(connection, n)) for n in range(MAX_IN_FLIGHT)]
            queued = [asyncio.create_task(beat(connection, 1_000 + n)) for n in range(10)]
            await until(lambda: connection.in_flight == MAX_IN_FLIGHT)
            for task in queued:
                task.cancel()
            release.set()
            await asyncio.gather(*waiting)
            await asyncio.gather(*queued, return_exceptions=True)
            assert all(asked.body.generation_id < 1_000 for asked in broker.asked if asked.api is Api.HEARTBEAT)
            assert await asyncio.gather(*(beat(connection, n) for n in range(MAX_IN_FLIGHT))) == list(
                range(MAX_IN_FLIGHT)
            )
            await connection.close()

    run(scene())


def test_a_large_answer_is_received_whole_and_followed_by_small_ones() -> None:
    records = bytes(range(256)) * 2_000

    async def scene() -> None:
        async def fetched(talk: Talk, request: codec.RequestFrame) -> Any:
            partition = FetchedPartition(partition=0, high_watermark=5, records=(records,))
            answer = FetchResponse(topics=(FetchedTopic(topic="t", partitions=(partition,)),))
            parts = encode_fetched(request.version, request.correlation_id, answer)
            await talk.write(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]

        async with ScriptedBroker({Api.FETCH: fetched, Api.HEARTBEAT: echo}) as broker:
            connection = await opened(broker)
            asked = FetchRequest(topics=(FetchTopic(topic="t"),))
            answers = await asyncio.gather(
                *(connection.fetch(asked, timeout_s=30) for _ in range(3)), beat(connection, 4)
            )
            assert answers[3] == 4
            for answer in answers[:3]:
                assert isinstance(answer, FetchResponse)
                (view,) = answer.topics[0].partitions[0].records
                assert isinstance(view, memoryview)
                assert view == records
            assert broker.asked[1].version == 12, "without topic ids the last version with names is used"
            await connection.close()

    run(scene())


def test_nobody_listening_is_retriable_and_names_the_address() -> None:
    async def scene() -> None:
        async with ScriptedBroker() as broker:
            port = broker.port
        with pytest.raises(NetError, match=f"CONNECTION_FAILED.*127.0.0.1:{port}: Connection refused") as failed:
            await Connection.open("127.0.0.1", port)
        assert failed.value.retriable

    run(scene())


def test_tls_to_a_listener_without_it_is_told_as_that() -> None:
    """The reason was empty: "No connection to 127.0.0.1:19392: .", because the listener had hung up without a word."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.transport.abort()

    async def scene() -> None:
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            security = client_config({"bootstrap.servers": "x:1", "security.protocol": "SSL"}).security
            with pytest.raises(
                NetError, match=rf"127.0.0.1:{port} answers, but not in TLS.*security.protocol"
            ) as failed:
                await Connection.open("127.0.0.1", port, security=security)
            assert failed.value.retriable, "a broker that stops hangs up too"

    run(scene())


def test_why_nobody_can_be_reached_is_said_in_the_systems_words() -> None:
    one = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")
    two = OSError(f"Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), {one}")

    assert reason(one) == reason(two) == "Connection refused"
    assert reason(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
    assert reason(ConnectionResetError()) == "ConnectionResetError"


def test_a_broker_that_hangs_up_at_once_hints_at_tls() -> None:
    async def scene() -> None:
        async def hang_up(talk: Talk, request: codec.RequestFrame) -> Any:
            talk.writer.close()

        async with ScriptedBroker({Api.API_VERSIONS: hang_up}) as broker:
            with pytest.raises(NetError, match="expects TLS"):
                await opened(broker)

    run(scene())


def test_a_broker_that_hangs_up_on_the_first_request_hints_at_a_login() -> None:
    """With TLS and no login, "the broker closed it" was all that was said."""

    async def scene() -> None:
        async def hang_up(talk: Talk, request: codec.RequestFrame) -> Any:
            talk.writer.close()

        async with ScriptedBroker({Api.HEARTBEAT: hang_up}) as broker:
            connection = await opened(broker)
            with pytest.raises(NetError, match="expects a login"):
                await beat(connection)
            assert connection.turned_away is not None

        async with ScriptedBroker({Api.HEARTBEAT: answering({"error_code": 27})}) as broker:
            connection = await opened(broker)
            await beat(connection)
            broker.handlers[Api.HEARTBEAT] = hang_up
            with pytest.raises(NetError, match="the broker closed it\\.") as ended:
                await beat(connection)
            assert connection.turned_away is None and "login" not in str(ended.value)

    run(scene())


def test_a_broker_that_never_tells_its_versions_is_given_up() -> None:
    async def scene() -> None:
        async def never(talk: Talk, request: codec.RequestFrame) -> Any:
            return None

        async with ScriptedBroker({Api.API_VERSIONS: never}) as broker:
            with pytest.raises(NetError, match="REQUEST_TIMED_OUT"):
                await Connection.open("127.0.0.1", broker.port, timeout_s=0.05)

    run(scene())


def test_an_error_to_the_question_for_versions_is_told() -> None:
    async def scene() -> None:
        refuse = answering({"error_code": ErrorCode.INVALID_REQUEST})
        async with ScriptedBroker({Api.API_VERSIONS: refuse}) as broker:
            with pytest.raises(NetError, match="INVALID_REQUEST"):
                await opened(broker)

    run(scene())
