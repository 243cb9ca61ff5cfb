"""A live group in a few words: looks at it, and records of its members and its coordinator."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import Consumer
from holdfast.model import TopicPartition, TraceRecord
from holdfast.observe.snapshot import DescribedGroup, DescribedMember, GroupSnapshot, PartitionOffsets
from holdfast.testing import Broker
from holdfast.ui.live.chronicle import Chronicle
from holdfast.ui.serving import Beside, Live, PageServer, listen
from holdfast.ui.story import at as span_at
from patience import PATIENCE_S, wait_for

WALL = 1_700_000_000_000.0
"""When the watching begins, in milliseconds since 1970."""


def member_id(name: str, life: int = 1) -> str:
    return f"{name}-{life:08x}-1111-4222-8333-444455556666"


def look(
    owned: Mapping[str, Sequence[int]],
    *,
    state: str = "Stable",
    protocol: str = "cooperative-sticky",
    life: int = 1,
    lag: int = 0,
    of: int = 4,
) -> GroupSnapshot:
    """Members by client id and what each has of the topic `orders`."""
    members = tuple(
        DescribedMember(
            member_id=member_id(name, life),
            instance_id=None,
            client_id=name,
            host="/127.0.0.1",
            assigned=frozenset(TopicPartition("orders", number) for number in numbers),
            topics=("orders",),
        )
        for name, numbers in owned.items()
    )
    described = DescribedGroup(
        group="billing", state=state, protocol_type="consumer", protocol=protocol, coordinator=("127.0.0.1", 9092),
        members=members,
    )  # fmt: skip
    offsets = {TopicPartition("orders", n): PartitionOffsets(committed=100, end=100 + lag) for n in range(of)}
    return GroupSnapshot(described=described, offsets=offsets)


def record(source: str, step: str, at_ms: float, member: str = "", **more: Any) -> TraceRecord:
    """`at_ms` counts from WALL."""
    known = {key: more.pop(key) for key in ("cause", "culprit", "generation") if key in more}
    return TraceRecord(
        at=0.0, source=source, step=step, group="billing", member=member, data=more, wall=WALL + at_ms, **known
    )


def chronicle() -> Chronicle:
    return Chronicle.begun("billing", WALL)


class Told:
    """A chronicle's story, asked by milliseconds since WALL."""

    def __init__(self, made: Chronicle) -> None:
        self.story = made.story()
        self._zero = WALL - made.zero_ms

    def lane(self, number: int, at_ms: float) -> tuple[str, str, str]:
        """State, owner and why."""
        _, state, owner, why = span_at(self.story["partitions"][number]["spans"], at_ms + self._zero)
        return state, self.story["members"][owner]["name"] if owner >= 0 else "", why

    def member(self, name: str, at_ms: float) -> str:
        found = next(each for each in self.story["members"] if each["name"] == name)
        return str(span_at(found["spans"], at_ms + self._zero)[1])

    def coordinator(self, at_ms: float) -> str:
        return str(span_at(self.story["coordinator"], at_ms + self._zero)[1])

    @property
    def names(self) -> list[str]:
        return [each["name"] for each in self.story["members"]]


# The real thing


@contextlib.contextmanager
def served(
    broker: Broker, *, groups: tuple[str, ...] = (), traces: tuple[Path, ...] = (), trace_topic: str = ""
) -> Iterator[PageServer]:
    settings = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": 1_500}
    server = PageServer(listen("127.0.0.1", 0), Live(settings, groups, traces, trace_topic))
    with Beside(server):
        wait_for(lambda: server.started, "the server")
        yield server


@contextlib.contextmanager
def member(broker: Broker, name: str, group: str = "billing", **more: Any) -> Iterator[None]:
    over = threading.Event()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": name, **more}

    def run() -> None:
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            while not over.is_set():
                consumer.poll(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)
