"""Two hundred members of one group in one process: they settle, and the coordinator is not flooded."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.broker.limits import Limits
from holdfast.group.coordinator.requests import GroupView
from holdfast.group.short_notes import read_leader_note
from holdfast.model.consumer_protocol import decode_assignment
from holdfast.testing import Broker
from holdfast.wire.api import Api

MEMBERS = 200
PARTITIONS = 400
BUDGET_PER_S = 4_000
"""Requests a second that a coordinator may see of one group, hot heartbeats included."""

LIMIT_S = 200.0
GROUP_APIS = frozenset(
    {
        Api.FIND_COORDINATOR,
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
    }
)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


@pytest.mark.slow
def test_two_hundred_members_in_one_process_settle_within_the_coordinators_budget() -> None:
    """A thread, a process and five connections for each member would be a thousand of one and two hundred of the other;
    and a join storm in which everybody asks every 25 ms would be eight thousand requests a second."""
    seen: list[tuple[float, Api]] = []
    with Broker(limits=Limits(max_connections=4_000)) as broker:
        topic = f"storm-{next(COUNTER)}"
        broker.topics.create(topic, partitions=PARTITIONS)
        broker.faults.call(
            None, lambda exchange: seen.append((time.monotonic(), exchange.api)), when=lambda e: e.api in GROUP_APIS
        )
        asyncio.run(asyncio.wait_for(storm(broker.bootstrap, topic, lambda: broker.group("storm")), LIMIT_S))
    per_second = Counter(int(at) for at, _ in seen)
    print("busiest second:", max(per_second.values()), dict(Counter(api.name for _, api in seen)))
    assert max(per_second.values()) <= BUDGET_PER_S
    joins = sum(api is Api.JOIN_GROUP for _, api in seen)
    assert joins <= 10 * MEMBERS, "a storm that feeds itself joins again and again"


async def storm(bootstrap: str, topic: str, describe: Callable[[], GroupView]) -> None:
    threads, memory = threading.active_count(), resident_mb()
    config = {"bootstrap.servers": bootstrap, "group.id": "storm", "auto.offset.reset": "earliest"}
    members = [AsyncConsumer(config) for _ in range(MEMBERS)]
    stop = asyncio.Event()

    async def work(member: AsyncConsumer) -> None:
        member.subscribe([topic])
        while not stop.is_set():
            await member.poll(1.0)

    began = time.monotonic()
    working = [asyncio.create_task(work(member)) for member in members]
    while not settled(members):
        failed = next((task for task in working if task.done()), None)
        assert failed is None, failed
        await asyncio.sleep(0.2)
    more_mb, more_threads = resident_mb() - memory, threading.active_count() - threads
    print(f"settled in {time.monotonic() - began:.1f} s, {more_threads} threads, {more_mb / MEMBERS:.2f} MB each")
    assert more_threads <= 72, "two pools of 32, and a thread that all share"
    assert more_mb <= 3 * MEMBERS, "sane: at most 3 MB each, Arrow and the broker's side included"
    notes_are_short(describe())
    stop.set()
    await asyncio.gather(*working)
    await asyncio.gather(*(member.close() for member in members))


def notes_are_short(group: GroupView) -> None:
    """In a group of this size everybody is told of three others, and pokes are passed on: some 8 KB in all, where a
    list of everybody for everybody would be 500 KB."""
    said = [decode_assignment(member.assignment).user_data or b"" for member in group.members]
    assert len(said) == MEMBERS
    assert sum(map(len, said)) < 20_000
    notes = [read_leader_note(data) for data in said]
    assert all(note is not None and note.passed_on and len(note.peers) >= 2 for note in notes)


def settled(members: list[AsyncConsumer]) -> bool:
    """Everybody has two partitions, and every partition has one owner."""
    owned = [[p.partition for p in member.assignment()] for member in members]
    return all(len(mine) == 2 for mine in owned) and len({p for mine in owned for p in mine}) == PARTITIONS
