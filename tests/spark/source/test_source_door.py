"""The way from a driver to its readers: whom it finds, and whom it believes. No Spark."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.spark import door
from patience import PATIENCE_S

ANSWER: dict[str, Any] = {"owned": {}}


class Doors:
    """A reader's door in this process, on a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(door.open_door(self._answer), self._loop).result(PATIENCE_S)

    async def _answer(self, question: str) -> dict[str, Any]:
        return ANSWER | {"asked": question}

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def reader() -> Iterator[int]:
    doors = Doors()
    yield os.getpid()
    doors.close()


@contextmanager
def bound(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(name)
        link.listen()
        yield link


def test_a_driver_asks_its_reader(reader: int) -> None:
    assert door.readers(os.getppid()) == [reader]
    assert door.ask(os.getppid(), reader, "report", timeout_s=30) == ANSWER | {"asked": "report"}


def test_names_of_strangers_are_not_taken_for_readers(reader: int) -> None:
    """Symptom: `report` raised ValueError when some other program had a socket whose name looked like a reader's; and a
    container in the same network, with the same process ids, was asked for its partitions. Rule: a reader is a child of
    the driver, counted in the same namespace, and its name has no other form."""
    driver, space = os.getppid(), door.namespace()
    strange = [
        f"{door.KIND}-{driver}-7",
        f"{door.KIND}-{space}-{driver}-abc-0123456789abcdef",
        f"{door.KIND}-{space}-{driver}-99999999999999999999-0123456789abcdef",
        f"{door.KIND}-{space}-{driver}-1-0123456789abcdef",  # a process, and not the driver's child
        f"{door.KIND}-{space + 1}-{driver}-{reader}-0123456789abcdef",  # the same numbers in another container
        f"{door.KIND}-{space}-{driver}-{reader}-0123456789abcdef\n@\udcff",
    ]
    with ExitStack() as stack:
        for name in strange:
            stack.enter_context(bound("\0" + name))
        assert door.readers(driver) == [reader]
        assert door.ask(driver, reader, "report", timeout_s=30)["asked"] == "report"


def test_an_answer_counts_only_from_the_reader_itself(reader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may bind a reader's name. The kernel says which process and which user is at the other end."""
    real = door.peer_of
    for stranger in ((reader, os.getuid() + 1), (reader + 1, os.getuid())):
        monkeypatch.setattr(door, "peer_of", lambda link, who=stranger: who)
        with pytest.raises(HoldfastError, match="READER_GONE"):
            door.ask(os.getppid(), reader, "drain", timeout_s=30)
    monkeypatch.setattr(door, "peer_of", real)
    name = f"\0{door.KIND}-{door.namespace()}-{os.getppid()}-{reader}-{'0' * 16}"
    with bound(name):
        pass  # a name that nobody listens on any more
    assert door.ask(os.getppid(), reader, "report", timeout_s=30)["asked"] == "report"
