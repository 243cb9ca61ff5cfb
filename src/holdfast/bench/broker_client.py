"""The client of `holdfast bench broker`: one process per measurement, the same program on both brokers.

    python -m holdfast.bench.broker_client '{"work": "produce", "bootstrap": …}'

writes one JSON line: the seconds of each repetition. Records go through confluent-kafka (librdkafka) in batches, so
that the client is as light as Python allows. Members are our own machine on one asyncio loop, without threads, fetching
or listeners: a hundred of them cost little, and they only join.

It does not know which broker it talks to.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from holdfast.group import member as mb
    from holdfast.net.channel import GroupChannel
    from holdfast.net.cluster import Cluster
    from holdfast.net.driver import MemberDriver

BATCH = 1_000
"""Records handed to librdkafka in one call."""

QUEUED = 200_000
"""The most unacknowledged records: enough to keep a broker busy, too few to fill the client's queue."""

WARM_UP = 0.25
"""The share of a repetition's records that is produced before the first timed one: a JVM gets faster as it runs."""

PHASE_S = 120.0
"""For one repetition. The slowest we have seen took 15 s, on a loaded machine."""

JOIN_S = 60.0
"""For a group to settle. Kafka's own client needs at most 3 s per round."""

TOPIC_S = 30.0


# -- topics


def create(given: Mapping[str, Any]) -> list[float]:
    """Create a topic and wait for its leaders."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": given["bootstrap"], "log_level": 2})
    name, partitions = given["topic"], given["partitions"]
    began = time.monotonic()
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TOPIC_S)
    while True:
        topic = admin.list_topics(name, timeout=TOPIC_S).topics[name]
        if sum(one.leader >= 0 for one in topic.partitions.values()) == partitions:
            return [time.monotonic() - began]
        _within(began, TOPIC_S, f"{name} to have leaders")
        time.sleep(0.02)


# -- records


def produce(given: Mapping[str, Any]) -> list[float]:
    """From the first record handed over until the last is acknowledged (acks=all), each time after a warm-up."""
    from confluent_kafka import Producer

    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": given["bootstrap"],
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 4 * QUEUED,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failed.append(str(error)),
            "log_level": 2,
        }
    )
    partitions = given["partitions"]
    batch = [{"value": bytes(index % 251 for index in range(given["size"]))} for _ in range(BATCH)]

    def send(records: int) -> float:
        began = time.monotonic()
        for number in range(records // BATCH):
            if producer.produce_batch(given["topic"], batch, partition=number % partitions) != BATCH:
                raise RuntimeError("librdkafka's queue is full")
            while len(producer) > QUEUED:
                producer.poll(0.001)
                _within(began, PHASE_S, f"{records} records to be produced")
        if producer.flush(PHASE_S) or failed:
            raise RuntimeError(f"records were not acknowledged: {failed[:1]}")
        return time.monotonic() - began

    send(int(given["records"] * WARM_UP))
    return [send(given["records"]) for _ in range(given["repeats"])]


def fetch(given: Mapping[str, Any]) -> list[float]:
    """From the assignment at offset 0 until all records have come, each time with a new consumer."""
    return [_fetch_once(given) for _ in range(given["repeats"] + 1)][1:]


def _fetch_once(given: Mapping[str, Any]) -> float:
    import confluent_kafka as ck

    consumer: Consumer = ck.Consumer(
        {
            "bootstrap.servers": given["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            # librdkafka stops fetching for a second when its queue is full, and that would be measured.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 10,
            "log_level": 2,
        }
    )
    try:
        consumer.list_topics(given["topic"], timeout=TOPIC_S)
        numbers = range(given["partitions"])
        began = time.monotonic()
        consumer.assign([ck.TopicPartition(given["topic"], number, 0) for number in numbers])
        left = given["records"]
        while left > 0:
            messages = consumer.consume(min(left, 10_000), 1.0)
            wrong = next((error for message in messages if (error := message.error()) is not None), None)
            if wrong is not None:
                raise RuntimeError(str(wrong))
            left -= len(messages)
            _within(began, PHASE_S, f"{given['records']} records to be fetched")
        return time.monotonic() - began
    finally:
        consumer.close()


# -- members


def join(given: Mapping[str, Any]) -> list[float]:
    """From everybody's subscribe until all are stable in one generation and every partition is owned once."""
    from holdfast.client.member.warm_up import warm_up

    warm_up()
    return asyncio.run(_join(given))


async def _join(given: Mapping[str, Any]) -> list[float]:
    from holdfast.net.cluster import Cluster
    from holdfast.net.config import client_config

    seconds = []
    async with Cluster(client_config({"bootstrap.servers": given["bootstrap"]})) as cluster:
        await cluster.view([given["topic"]])
        for number in range(given["repeats"] + 1):
            group = LightGroup(cluster, f"{given['group']}-{number}", given["topic"], given["partitions"])
            seconds.append(await group.settle(given["members"]))
            await group.leave()
    return seconds[1:]


class LightGroup:
    """Members of one group on this loop."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._drivers: list[MemberDriver] = []
        self._channels: list[GroupChannel] = []
        self._settled = asyncio.Event()
        self._failure: Exception | None = None

    async def settle(self, members: int) -> float:
        """All members subscribe at once; returns how long the group takes to settle."""
        from holdfast.group import member as mb

        for number in range(members):
            self._add(number)
        await asyncio.gather(*(channel.warm() for channel in self._channels))
        began = time.monotonic()
        for driver in self._drivers:
            driver.feed(mb.Subscribe(frozenset({self._topic})))
        async with asyncio.timeout(JOIN_S):
            await self._settled.wait()
        if self._failure is not None:
            raise self._failure
        return time.monotonic() - began

    async def leave(self) -> None:
        from holdfast.group import member as mb

        for driver in self._drivers:
            driver.feed(mb.Close("the measurement is over"))
        async with asyncio.timeout(JOIN_S):
            await asyncio.gather(*(driver.closed.wait() for driver in self._drivers))
        for driver, channel in zip(self._drivers, self._channels, strict=True):
            await driver.stop()
            await channel.close()

    def _add(self, number: int) -> None:
        from holdfast.assign import by_name
        from holdfast.group import member as mb
        from holdfast.net.channel import GroupChannel
        from holdfast.net.driver import Hooks, MemberDriver
        from holdfast.net.poke_socket import open_poke_socket

        channel = GroupChannel(self._cluster, self._group)
        ear, endpoint = open_poke_socket("127.0.0.1")
        assignors = (by_name("cooperative-sticky"),)
        config = mb.MemberConfig(
            group=self._group,
            assignors=assignors,
            protocol=mb.select_protocol(assignors),
            name=f"light-{number}",
            client_id="light",
            endpoint=endpoint,
        )
        hooks = Hooks(
            notify=lambda effect: self._notified(number, effect),
            fail=self._fail,
            trace=lambda _record: None,
            cluster_view=self._cluster.view,
            last_poll=_now_ms,
        )
        self._drivers.append(MemberDriver(config, channel, hooks, clock=_now_ms, poke_socket=ear))
        self._channels.append(channel)

    def _notified(self, number: int, effect: mb.Notify) -> None:
        asyncio.get_running_loop().call_soon(self._answer, number, effect.serial)

    def _answer(self, number: int, serial: int) -> None:
        """Answer at once, as a listener with nothing to do."""
        from holdfast.group import member as mb

        self._drivers[number].feed(mb.Notified(serial))
        states = [driver.state for driver in self._drivers]
        one_round = len({state.membership.generation for state in states}) == 1
        stable = one_round and all(state.phase is mb.Phase.STABLE for state in states)
        if stable and sum(len(state.owned) for state in states) == self._partitions:
            self._settled.set()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._settled.set()


def _now_ms() -> float:
    return time.monotonic() * 1_000.0


def _within(began: float, limit_s: float, what: str) -> None:
    if time.monotonic() - began > limit_s:
        raise TimeoutError(f"waited {limit_s:.0f} s for {what}")


WORK: Mapping[str, Callable[[Mapping[str, Any]], list[float]]] = {
    "create": create,
    "produce": produce,
    "fetch": fetch,
    "join": join,
}


def main() -> None:
    given = json.loads(sys.argv[1])
    print(json.dumps(WORK[given["work"]](given)), flush=True)


if __name__ == "__main__":
    main()
