"""The small HTTP server for Prometheus: how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.net import scraped as net_scraped
from holdfast.net.scraped import Scraped
from patience import PATIENCE_S

MUCH = "x" * 32 * 1024 * 1024


@pytest.mark.parametrize("request_", [b"", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["says nothing", "does not read"])
def test_a_client_that_waits_or_does_not_read_holds_nobody_up(request_: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waited for it, and where the loop ended first a CancelledError was printed with its traceback."""
    monkeypatch.setattr(net_scraped, "REQUEST_S", PATIENCE_S * 10)  # so that no request ends by itself
    told: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with asyncio.timeout(PATIENCE_S):
            async with Scraped(lambda: MUCH, content_type="text/plain", port=0) as scraped:
                reader, writer = await asyncio.open_connection("127.0.0.1", scraped.port, limit=1024)
                writer.write(request_)
                while not scraped.serving:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
            assert not scraped.serving, "its task has ended, and not by being cancelled"
            writer.transport.abort()
            del reader

    asyncio.run(run())
    assert told == []


def test_an_answer_is_whole() -> None:
    async def run() -> bytes:
        async with asyncio.timeout(PATIENCE_S), Scraped(lambda: MUCH, content_type="text/plain", port=0) as scraped:
            reader, writer = await asyncio.open_connection("127.0.0.1", scraped.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            found = await reader.read()
            writer.close()
            return found

    assert asyncio.run(run()).partition(b"\r\n\r\n")[2] == MUCH.encode()
