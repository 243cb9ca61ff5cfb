"""The threads that all AsyncConsumers of a process share: a callback never waits for one that a callback holds, and a
forked process has its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import settings
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.client.aio import pools
from holdfast.testing import Broker
from patience import PATIENCE_S


def test_callbacks_that_ask_the_cluster_do_not_wait_for_each_others_threads(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: forty consumers on one loop, each of which asked in on_assign what was committed, stood still for good,
    all of them. Cause: one pool of 32 threads. Each callback held a thread while it ran, and its question needed
    another one. Rule: what a callback may wait for has threads that no callback holds. One thread each will do."""
    monkeypatch.setattr(pools, "CALLERS", pools.Pool(1, "one-caller"))
    monkeypatch.setattr(pools, "ASKERS", pools.Pool(1, "one-asker"))

    async def scene() -> None:
        heard: list[str] = []

        async def on_assign(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            if partitions:
                assert all(p.offset == ck.OFFSET_INVALID for p in await consumer.committed(partitions))
                assert await consumer.get_watermark_offsets(partitions[0]) == (0, 5)
                assert topic in (await consumer.list_topics(topic)).topics
                await consumer.assign(partitions)
                heard.append("assigned")

        async def on_revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            await consumer.committed(partitions)
            heard.append("revoked")

        async def member() -> None:
            async with AsyncConsumer(settings(broker)) as consumer:
                await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
                async for _ in consumer:
                    return

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(member() for _ in range(3)))
        assert sorted(heard) == ["assigned"] * 3 + ["revoked"] * 3

    asyncio.run(scene())


FORKED = """
import asyncio, os, signal, sys, time
from holdfast import AsyncConsumer

async def one(group):
    keys = {{"bootstrap.servers": {at!r}, "group.id": group, "auto.offset.reset": "earliest"}}
    async with AsyncConsumer(keys) as consumer:
        await consumer.subscribe([{topic!r}])
        async for _ in consumer:
            return

asyncio.run(one({group!r} + "-parent"))
time.sleep(0.3)  # its threads are idle then, which is what misled the copy
copy = os.fork()
if copy == 0:
    signal.alarm({patience})
    asyncio.run(one({group!r} + "-copy"))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""


def test_a_forked_process_has_threads_of_its_own(broker: Broker, topic: str) -> None:
    """Symptom: a process used an AsyncConsumer, closed it and forked workers; theirs never got a record, without a
    word. Cause: the pool took its parent's idle threads, which a fork does not copy, for its own."""
    script = FORKED.format(at=broker.bootstrap, topic=topic, group=f"forked-{next(COUNTER)}", patience=int(PATIENCE_S))
    assert subprocess.run([sys.executable, "-c", script], timeout=2 * PATIENCE_S, check=False).returncode == 0
