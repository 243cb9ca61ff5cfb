"""What the interop tests share: each kind of client creating a topic and producing, and a group under trial."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.testing.broker import Broker
from holdfast.testing.groupcheck import lost, overlaps
from holdfast.testing.members import MemberLog, MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from holdfast.testing.tools import CONSOLE_PRODUCER, TOPICS, run_tool
from patience import PATIENCE_S

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_EACH = 20

SESSION_MS = 6_000
"""Short, so that a killed member is missed soon; long enough for a loaded machine."""
STUCK_S = 20.0
"""Longer than a session: who owns nothing by then is not on its way."""
HEARTBEAT_MS = 300

ASSIGNORS = {
    "aiokafka": ("range", "roundrobin", "sticky"),
    "confluent": ("range", "roundrobin", "cooperative-sticky"),
    "java": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "kafka-python": ("range", "roundrobin", "sticky", "cooperative-sticky"),
}
"""What each client can do: librdkafka has no "sticky", aiokafka no "cooperative-sticky"."""

KINDS = tuple(sorted(ASSIGNORS))

HOLDFAST = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Our own consumer, which has tests of its own; here it shows that both halves fit."""


def values(compression: str) -> list[str]:
    return [f"{compression}-{number}-" + "x" * 50 for number in range(RECORDS_EACH)]


def create_and_produce(kind: str, bootstrap: str, topic: str) -> None:
    """Create `topic` with 3 partitions and produce `values` with every compression, all by this client."""
    {
        "aiokafka": lambda: asyncio.run(_aiokafka(bootstrap, topic)),
        "confluent": lambda: _confluent(bootstrap, topic),
        "java": lambda: _java(bootstrap, topic),
        "kafka-python": lambda: _kafka_python(bootstrap, topic),
    }[kind]()


async def _aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 1)])
    await admin.close()
    for compression in COMPRESSIONS:
        kind = None if compression == "none" else compression
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, enable_idempotence=True)
        await producer.start()
        for value in values(compression):
            await producer.send(topic, value.encode())
        await producer.stop()


def _confluent(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        future.result(PATIENCE_S)
    failed: list[object] = []
    for compression in COMPRESSIONS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": compression, "enable.idempotence": True}
        )
        for value in values(compression):
            producer.produce(
                topic, value.encode(), on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def _java(bootstrap: str, topic: str) -> None:
    run_tool(TOPICS, ["--create", "--topic", topic, "--partitions", "3"], bootstrap)
    for compression in COMPRESSIONS:
        lines = "".join(f"{value}\n" for value in values(compression))
        run_tool(CONSOLE_PRODUCER, ["--topic", topic, "--compression-codec", compression], bootstrap, stdin=lines)


def _kafka_python(bootstrap: str, topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.producer.kafka import KafkaProducer

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 3, 1)])
    admin.close()
    for compression in COMPRESSIONS:
        kind = None if compression == "none" else compression
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=kind)
        sent = [producer.send(topic, value.encode()) for value in values(compression)]
        producer.flush(PATIENCE_S)
        assert all(future.succeeded() for future in sent)
        producer.close()


def read_all(bootstrap: str, topic: str, count: int) -> list[str]:
    """The values in a topic, by one more client: the codecs must be understood by others, too."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            value = message.value()
            assert message.error() is None and value is not None
            found.append(value.decode())
    consumer.close()
    return found


def read_with(kind: str, bootstrap: str, topic: str, count: int) -> list[str]:
    """The same by a Python client, which decompresses with code of its own."""
    return (
        asyncio.run(_read_aiokafka(bootstrap, topic, count)) if kind == "aiokafka" else _read(bootstrap, topic, count)
    )


async def _read_aiokafka(bootstrap: str, topic: str, count: int) -> list[str]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=500)
            found += [record.value.decode() for records in batches.values() for record in records]
    await consumer.stop()
    return found


def _read(bootstrap: str, topic: str, count: int) -> list[str]:
    from kafka.consumer.group import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        batches = consumer.poll(timeout_ms=500)
        found += [record.value.decode() for records in batches.values() for record in records]
    consumer.close()
    return found


class GroupScene:
    """A group of members as processes on an embedded broker, with a steady producer, and all their logs."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        *,
        topic: str,
        group: str,
        partitions: int = 6,
        assignments: Sequence[Sequence[int]] = (),
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.group = group
        self.partitions = partitions
        self.members: dict[str, MemberProcess] = {}
        self._options: dict[str, MemberOptions] = {}
        self._folder = folder
        broker.topics.create(topic, partitions, assignments=assignments)
        self.producer = SteadyProducer(broker.bootstrap, topic, partitions=partitions, rate=200)

    def __enter__(self) -> GroupScene:
        self.producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            member.kill()

    def add(
        self,
        name: str,
        kind: str,
        assignors: tuple[str, ...],
        *,
        instance_id: str | None = None,
        session_ms: int = SESSION_MS,
        rack: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> MemberProcess:
        options = MemberOptions(
            bootstrap=self.broker.bootstrap,
            group=self.group,
            topic=self.topic,
            assignors=assignors,
            session_ms=session_ms,
            heartbeat_ms=HEARTBEAT_MS,
            instance_id=instance_id,
            rack=rack,
            commit_every_ms=200,
            config=config or {},
        )
        self._options[name] = options
        member = self.members[name] = MemberProcess(kind, options, name=name, folder=self._folder)
        return member

    def remove(self, name: str) -> None:
        member = self.members.pop(name)
        member.terminate()
        member.kill()

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def wait_shared(self, limit_s: float = PATIENCE_S) -> None:
        """Until the members own every partition once, and nobody owns none."""
        deadline = time.monotonic() + STUCK_S
        while not self._is_shared() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self._is_shared():
            self._start_stuck_ones_again()
        self.wait(self._is_shared, f"{sorted(self.members)} to share {self.partitions} partitions", limit_s)

    def _start_stuck_ones_again(self) -> None:
        """kafka-python 3.0.12 gets stuck now and then, in a round that follows soon on its first one: every request of
        it has been answered, as seen at the broker, and it neither heartbeats nor asks for anything more. What is
        tested here is whether the group goes on, so such a member is ended and started anew.
        """
        for name, member in list(self.members.items()):
            if member.kind == "kafka-python" and not member.owned():
                member.kill()
                self.members[name] = MemberProcess(
                    member.kind, self._options[name], name=f"{name}-again", folder=self._folder
                )

    def _is_shared(self) -> bool:
        owned = [member.owned() for member in self.members.values()]
        everything = sorted(partition for each in owned for partition in each)
        return all(owned) and everything == list(range(self.partitions))

    def wait(self, holds: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > deadline:
                owned = {name: sorted(member.owned()) for name, member in sorted(self.members.items())}
                said = "\n".join(member.output()[-1500:] for member in self.members.values())
                raise AssertionError(f"waited {limit_s:.0f} s for {what}; {owned}; {self.view()}\n{said}")
            time.sleep(0.02)

    def view(self) -> object:
        return self.broker.group(self.group)

    def generation(self) -> int:
        return self.broker.group(self.group).generation

    def logs(self) -> list[MemberLog]:
        return [MemberLog(path.stem, path).refresh() for path in sorted(self._folder.glob("*.log"))]

    def settle(self) -> None:
        """Stop producing, wait until everything acknowledged was processed, and check that nothing overlapped."""
        self.producer.stop()
        acknowledged = self.producer.acknowledged()
        assert sum(len(offsets) for offsets in acknowledged.values()) > 0
        self.wait(lambda: not lost(acknowledged, self.logs()), "every acknowledged record to be processed")
        assert overlaps(self.logs()) == []
