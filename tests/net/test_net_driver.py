"""A member's driver and its pokes: nothing that others write makes it stumble."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from holdfast.assign import by_name
from holdfast.group import member as mb
from holdfast.group.messages import Answer, Request
from holdfast.group.user_data import Endpoint
from holdfast.model import ClusterView, HoldfastError
from holdfast.net.driver import Hooks, MemberDriver
from holdfast.net.poke_socket import PokeSocket, open_poke_socket

LOOPBACK = "127.0.0.1"


class Silent:
    """A coordinator that answers nothing."""

    async def send(self, request: Request, timeout_ms: float) -> Answer:
        await asyncio.sleep(3_600)
        raise AssertionError

    async def members(self) -> int:
        return 1

    def forget(self) -> None:
        return None


def run(test: Callable[[MemberDriver], object]) -> None:
    """A driver with a poke socket; what its loop complains of fails the test."""

    async def play() -> None:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        ear, endpoint = open_poke_socket(LOOPBACK)
        assignors = (by_name("cooperative-sticky"),)
        config = mb.MemberConfig(
            group="g", assignors=assignors, protocol=mb.select_protocol(assignors), endpoint=endpoint
        )

        async def view(_topics: frozenset[str]) -> ClusterView:
            return ClusterView()

        def fail(error: HoldfastError) -> None:
            raise error

        hooks = Hooks(
            notify=lambda _notify: None, fail=fail, trace=lambda _r: None, cluster_view=view, last_poll=lambda: 0.0
        )
        driver = MemberDriver(config, Silent(), hooks, clock=lambda: 0.0, poke_socket=ear)
        try:
            outcome = test(driver)
            if outcome is not None:
                await outcome  # type: ignore[misc]  # a test may be a coroutine
        finally:
            await driver.stop()
        assert complaints == []

    asyncio.run(play())


@pytest.mark.parametrize("host", ["127.0.0.1\x00", "\ud800", "::1", "127.0.0.1"])
def test_an_address_that_is_none_costs_a_poke_and_not_the_member(host: str) -> None:
    """Symptom: one member whose endpoint had a NUL in it ended every other member of its group. Cause: the datagram's
    address was refused with an error that nobody expected. Rule: a poke is a courtesy and never ends anybody."""

    async def scene() -> None:
        ear, _ = open_poke_socket(LOOPBACK)
        pokes = PokeSocket(ear, lambda _text: None, asyncio.get_running_loop())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((LOOPBACK, 0))
            other.settimeout(10)
            sound = Endpoint(LOOPBACK, other.getsockname()[1])
            for port in (9, 0, 99_999_999, -1):
                pokes.poke((Endpoint(host, port), sound), b"t k")
                assert other.recv(64) == b"t k", "the next one is poked all the same"
        pokes.close()

    asyncio.run(scene())


def test_what_arrives_reaches_the_machine_once_and_an_empty_datagram_not_at_all() -> None:
    async def heard(driver: MemberDriver) -> None:
        events: list[mb.Event] = []
        done = asyncio.Event()

        def feed(event: mb.Event) -> None:
            events.append(event)
            if event == mb.Poked("last"):
                done.set()

        driver.feed = feed  # type: ignore[method-assign]  # to see what it is fed
        assert driver.state.config.endpoint is not None
        at = (LOOPBACK, driver.state.config.endpoint.port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            for data in (b"", b"one", b"one", b"\xff\xfe", b"x" * 2_000, b"", b"last"):
                other.sendto(data, at)
        await done.wait()
        texts = [event.token for event in events if isinstance(event, mb.Poked)]
        assert "" not in texts
        assert all(len(text) <= 256 for text in texts)
        assert texts[0] == "one"

    run(heard)
