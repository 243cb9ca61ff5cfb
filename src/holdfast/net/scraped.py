"""A small HTTP server for what Prometheus scrapes: GET /metrics, and GET /-/healthy.

On loopback unless told otherwise: names of groups, clients and hosts are not for everybody. Size and time of a request
are bounded, and so is the number of requests at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.model import HoldfastError

MOST_HEAD_BYTES = 16 * 1024
MOST_AT_ONCE = 32
REQUEST_S = 10.0

LOOPBACK = "127.0.0.1"


class Scraped:
    """Serves what `text` returns at the time. `async with` it."""

    def __init__(self, text: Callable[[], str], *, content_type: str, port: int, host: str = LOOPBACK) -> None:
        self._text = text
        self._content_type = content_type
        self._host = host
        self.port = port
        self._server: asyncio.Server | None = None
        self._closing = False
        self.serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Scraped:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self.port, limit=MOST_HEAD_BYTES)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise HoldfastError(
                "METRICS_PORT",
                f"Metrics can't be served at {self._host}:{self.port}: {why}.",
                "Choose another port, or 0 for any that is free.",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._closing = True
        self._server.close()
        for writer in self.serving.values():  # don't wait for idle clients, or for those that don't read
            writer.transport.abort()
        if self.serving:
            await asyncio.wait(self.serving)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/metrics"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving[task] = writer
        try:
            if self._closing:
                writer.transport.abort()
            elif len(self.serving) <= MOST_AT_ONCE:
                async with asyncio.timeout(REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.transport.abort()  # the client went away, does not read, or does not speak HTTP
        finally:
            del self.serving[task]
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", "GET only.\n")
        if path == b"/metrics":
            return _response("200 OK", self._content_type, self._text(), body=method == b"GET")
        if path == b"/-/healthy":
            return _response("200 OK", "text/plain", "well\n", body=method == b"GET")
        return _response("404 Not Found", "text/plain", "Metrics are at /metrics.\n")


def _response(status: str, content_type: str, text: str, *, body: bool = True) -> bytes:
    content = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")
