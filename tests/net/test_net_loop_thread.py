"""A loop on a thread: what is called on it, what is left when it stops, and what it tells of failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.net.loop_thread import LoopThread
from patience import PATIENCE_S, wait_for


async def name() -> str:
    return threading.current_thread().name


def test_work_runs_on_the_thread_and_its_result_comes_back() -> None:
    host = LoopThread("ours")
    assert host.call(name(), PATIENCE_S) == "ours"
    assert not host.is_current
    assert host.stop()
    assert host.loop.is_closed()


def test_what_takes_too_long_is_cancelled() -> None:
    host, cancelled = LoopThread("ours"), threading.Event()

    async def sleep() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        host.call(sleep(), 0.05)
    assert cancelled.wait(PATIENCE_S)
    assert host.stop()


def test_the_last_work_is_done_and_whatever_is_under_way_is_cancelled_and_awaited() -> None:
    host = LoopThread("ours")
    done: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("let go")

    async def last() -> None:
        done.append("last")

    waiting = host.submit(linger())
    host.call(name(), PATIENCE_S)
    assert host.stop(last(), timeout_s=PATIENCE_S)
    assert done == ["last", "let go"]
    assert waiting.cancelled()
    assert host.stop(last()), "a second stop does nothing"
    assert done == ["last", "let go"]


def test_a_failure_of_the_last_work_reaches_whoever_stops() -> None:
    host = LoopThread("ours")

    async def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        host.stop(fail())
    assert host.loop.is_closed()


def test_a_thread_that_does_not_end_in_time_is_told() -> None:
    host, going_on = LoopThread("ours"), threading.Event()

    async def stuck() -> None:
        going_on.wait(PATIENCE_S)

    assert not host.stop(stuck(), timeout_s=0.05)
    going_on.set()
    wait_for(host.loop.is_closed, "the end of the thread")


def test_exceptions_that_nobody_caught_are_told_to_whoever_asked() -> None:
    told: list[Any] = []
    heard = threading.Event()

    def broken(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        told.append(context["exception"])
        heard.set()

    def fail() -> None:
        raise ValueError("odd")

    host = LoopThread("ours", broken=broken)
    host.loop.call_soon_threadsafe(fail)
    assert heard.wait(PATIENCE_S)
    assert isinstance(told[0], ValueError)
    assert host.stop()
