"""A broker that does what a test tells it to, on loopback: one handler per API, everything else is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.wire import codec, frames
from holdfast.wire.api import Api
from holdfast.wire.errors import UnsupportedVersion

Handler = Callable[["Talk", codec.RequestFrame], Awaitable[Any]]
"""Returns the body to answer with, or None when it has written what it wanted, or nothing."""


class Talk:
    """One connection, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def read(self) -> bytes:
        size = frames.frame_size(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def answer(self, request: codec.RequestFrame, body: Any, *, correlation_id: int | None = None) -> bytes:
        return codec.encode_response(
            request.api, request.version, request.correlation_id if correlation_id is None else correlation_id, body
        )

    async def write(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()


class ScriptedBroker:
    """`async with ScriptedBroker({Api.HEARTBEAT: handler}) as broker: … broker.port`."""

    def __init__(
        self,
        handlers: dict[Api, Handler] | None = None,
        *,
        versions: dict[Api, tuple[int, int]] | None = None,
        newest_api_versions: int = 4,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.handlers = handlers or {}
        self.versions = versions or {}
        self.newest_api_versions = newest_api_versions
        self.asked: list[codec.RequestFrame] = []
        self.connections = 0
        self.port = 0
        self.cipher: tuple[str, str, int] | None = None
        """What the last connection agreed on, if it has TLS."""
        self._tls = tls
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.cipher = writer.get_extra_info("cipher")
        talk = Talk(reader, writer)
        try:
            while True:
                await self._one(talk, await talk.read())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:  # the test is over; asyncio would log a cancelled handler as an error
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, talk: Talk, frame: bytes) -> None:
        header = frames.read_request_header(frame)
        if header.api_key == Api.API_VERSIONS.key and header.version > self.newest_api_versions:
            body = {"error_code": 35, "api_keys": self._offered()}
            await talk.write(codec.encode_response(Api.API_VERSIONS, 0, header.correlation_id, body))
            return
        try:
            request = codec.decode_request(frame)
        except UnsupportedVersion:
            talk.writer.transport.abort()
            return
        self.asked.append(request)
        if request.api in self.handlers:
            body = await self.handlers[request.api](talk, request)
        elif request.api is Api.API_VERSIONS:
            body = {"api_keys": self._offered()}
        else:
            raise ConnectionError(f"nobody told the broker what to say to {request.api}")
        if body is not None:
            await talk.write(talk.answer(request, body))

    def _offered(self) -> list[dict[str, int]]:
        offered = {api: (api.lowest, api.highest) for api in Api} | self.versions
        offered[Api.API_VERSIONS] = (0, self.newest_api_versions)
        return [{"api_key": api.key, "min_version": low, "max_version": high} for api, (low, high) in offered.items()]

    def count(self, api: Api) -> int:
        return sum(1 for request in self.asked if request.api is api)


def answering(body: Any) -> Handler:
    async def handler(talk: Talk, request: codec.RequestFrame) -> Any:
        return body

    return handler


def coordinating(port: Callable[[], int]) -> Handler:
    """FindCoordinator answered with an address of ours."""
    from holdfast.wire.coordinators import Coordinator, coordinator_keys_of, coordinators_body

    async def handler(talk: Talk, request: codec.RequestFrame) -> Any:
        _, keys = coordinator_keys_of(request)
        found = [Coordinator(key=key, node_id=1, host="127.0.0.1", port=port()) for key in keys]
        return coordinators_body(found, request.version)

    return handler


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until this holds. Bounded, so that a wrong expectation fails and does not hang."""
    for turn in range(100_000):
        if condition():
            return
        await asyncio.sleep(0 if turn < 1_000 else 0.001)
    raise AssertionError("it never happened")
