"""Members come, drain and close while records flow, reading in every way there is: each record is processed once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.testing import Broker
from holdfast.testing.producer import SteadyProducer

PARTITIONS = 6
RATE = 1_000
EVENTS = 16
LIMIT_S = 250.0


class Group:
    """Members that read, each in a task of its own, and everything they read."""

    def __init__(self, broker: Broker, topic: str, chance: random.Random) -> None:
        self._config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"churn-{topic}",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
        }
        self._topic = topic
        self._chance = chance
        self.seen: Counter[tuple[int, int]] = Counter()
        self.lost: list[Any] = []
        self.members: dict[AsyncConsumer, asyncio.Task[None]] = {}

    def join(self) -> None:
        member = AsyncConsumer(self._config)
        member.subscribe([self._topic], on_lost=lambda _member, partitions: self.lost.append(partitions))
        self.members[member] = asyncio.create_task(self._work(member))

    async def leave(self) -> None:
        member = self._chance.choice(list(self.members))
        working = self.members.pop(member)
        if self._chance.random() < 0.5:
            assert await member.drain(LIMIT_S)  # its task goes on reading meanwhile
        await member.close()
        await working

    async def _work(self, member: AsyncConsumer) -> None:
        while True:
            try:
                await self._read(member)
            except RuntimeError:  # closed
                return

    async def _read(self, member: AsyncConsumer) -> None:
        match self._chance.randrange(3):
            case 0:
                batch = await member.consume_arrow(self._chance.randint(1, 200), 0.1)
                columns = (batch.column(name).to_pylist() for name in ("partition", "offset"))
                self.seen.update(zip(*columns, strict=True))
            case 1:
                messages = await member.consume(self._chance.randint(1, 50), 0.05)
                self.seen.update((m.partition() or 0, m.offset() or 0) for m in messages)
            case _:
                message = await member.poll(0.1)
                if message is not None:
                    self.seen[message.partition() or 0, message.offset() or 0] += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_whoever_comes_and_goes_every_record_is_processed_once(broker: Broker, seed: int) -> None:
    topic = f"churned-{next(COUNTER)}"
    broker.topics.create(topic, partitions=PARTITIONS)
    chance = random.Random(seed)

    async def scene() -> None:
        group = Group(broker, topic, chance)
        with SteadyProducer(broker.bootstrap, topic, partitions=PARTITIONS, rate=RATE) as producer:
            group.join()
            for _ in range(EVENTS):
                await asyncio.sleep(chance.uniform(0.05, 0.5))
                if len(group.members) < 2 or (len(group.members) < 5 and chance.random() < 0.5):
                    group.join()
                else:
                    await group.leave()
            await asyncio.to_thread(producer.stop)
        sent = {(partition, n) for partition, offsets in producer.acknowledged().items() for n in offsets}
        deadline = time.monotonic() + LIMIT_S / 2
        while sent - group.seen.keys():
            missing = Counter(partition for partition, _ in sent - group.seen.keys())
            owners = [[p.partition for p in member.assignment()] for member in group.members]
            assert time.monotonic() < deadline, f"of {len(sent)} did not come: {missing}; owned: {owners}"
            await asyncio.sleep(0.05)
        while group.members:
            await group.leave()
        assert group.lost == []
        assert {record: times for record, times in group.seen.items() if times > 1} == {}

    asyncio.run(asyncio.wait_for(scene(), LIMIT_S))
