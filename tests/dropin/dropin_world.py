"""Where a program runs: a broker, a topic with records, a group, and a look at them that needs no consumer.

Each run has names of its own on a real Kafka, and an embedded broker of its own otherwise, so that two runs side by
side never meet.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions

from holdfast.group.coordinator.requests import AdminAnswer
from holdfast.group.messages import Answer, FetchOffsetsAnswer, FetchOffsetsRequest, OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.testing import Broker
from holdfast.testing.kafka import RealKafka
from patience import PATIENCE_S

PARTITIONS = 4
"""An even number: two members get two each, whichever way the strategy counts."""
BATCH = 5
"""Records of each partition that a run finds at its start, and again later."""

USER, PASSWORD = "alice", "open sesame"

_NUMBERS = itertools.count()

Committed = dict[tuple[str, int], tuple[int, str, int]]
"""Offset, metadata and leader epoch by partition."""


class World:
    """One broker as one run sees it."""

    def __init__(self, bootstrap: str, *, broker: Broker | None, number: int, login: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self.topic = f"orders-{number}"
        self.group = f"billing-{number}"
        self.login = dict(login)
        self._broker = broker
        self._quiet: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0, **login}
        self._producer = self._new_producer()
        self._admin: AdminClient | None = None
        self._created: set[str] = set()
        """Topics on a Kafka that is shared."""
        self.produced: dict[tuple[str, int], int] = {}

    def _new_producer(self) -> ck.Producer:
        # Idempotent: a record that is sent again, as to a new topic whose leader is not ready, would be there twice.
        # One request at a time: a broker takes any first sequence number of a producer. If the first batch is refused
        # and the second is not, the first one's retry counts as a duplicate, and its records are lost.
        one_by_one = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        return ck.Producer({**self._quiet, "linger.ms": 0, **one_by_one})

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "only the embedded broker can be made to fail"
        return self._broker

    @property
    def embedded(self) -> bool:
        return self._broker is not None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._quiet)
        return self._admin

    # Topics and records

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Return when its partitions can be written to."""
        if self._broker is not None:
            self._broker.topics.create(topic, partitions=partitions)
        else:
            self._created.add(topic)
            self.admin.create_topics([ck.cimpl.NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
            self._await(lambda: self._led(topic) == partitions, f"{partitions} partitions of {topic}")

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)
        self._await(lambda: self._led(topic) == partitions, f"{partitions} partitions of {topic}")
        self._producer = self._new_producer()  # the old one remembers how many there were

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(PATIENCE_S)
        self._await(lambda: topic not in self.admin.list_topics(timeout=PATIENCE_S).topics, f"{topic} to be gone")
        self._created.discard(topic)
        self.produced = {key: count for key, count in self.produced.items() if key[0] != topic}

    def clear(self) -> None:
        """Delete the topics that were created."""
        for deleted in self.admin.delete_topics(sorted(self._created)).values() if self._created else ():
            deleted.result(PATIENCE_S)

    def produce(self, topic: str, partitions: int = PARTITIONS, count: int = BATCH) -> None:
        """So many records more in each partition; their values are their offsets."""
        failed: list[str] = []
        for partition in range(partitions):
            first = self.produced.get((topic, partition), 0)
            self.produced[topic, partition] = first + count
            for number in range(first, first + count):
                self._producer.produce(
                    topic,
                    str(number).encode(),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                )
        assert self._producer.flush(PATIENCE_S) == 0
        assert not failed, failed

    # Looking

    def committed(self) -> Committed:
        if self._broker is not None:
            return self._committed_in_memory(self._broker)
        return _shown(asyncio.run(self._committed_in_kafka()))

    async def _committed_in_kafka(self) -> Mapping[TopicPartition, OffsetEntry]:
        """Not by confluent-kafka's admin: the metadata it gives has bytes behind its end that are no text, at times."""
        async with Cluster(client_config({"bootstrap.servers": self.bootstrap, **self.login})) as cluster:
            return await Admin(cluster).committed(self.group)

    def _committed_in_memory(self, broker: Broker) -> Committed:
        answers: list[Answer | AdminAnswer] = []
        broker.call(lambda state: state.groups.ask(FetchOffsetsRequest(group=self.group), answers.append))
        answer = answers[0]
        assert isinstance(answer, FetchOffsetsAnswer)
        return _shown(answer.offsets)

    def members(self, expected: int = 0) -> int:
        """How many members the group has; somebody who has just left may take a moment to be gone."""
        deadline = time.monotonic() + 2
        while (found := self._members()) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def until_empty(self) -> None:
        """Do nothing until the group has no member: the coordinator, or the member itself, has ended its membership."""
        deadline = time.monotonic() + PATIENCE_S
        while self.members():
            assert time.monotonic() < deadline, "somebody is still a member"

    def _members(self) -> int:
        if self._broker is not None:
            return len(self._broker.group(self.group).members)
        described: Any = self.admin.describe_consumer_groups([self.group])[self.group].result(PATIENCE_S)
        return len(described.members)

    def _led(self, topic: str) -> int:
        found: Any = self.admin.list_topics(topic, timeout=PATIENCE_S).topics.get(topic)
        return sum(1 for each in found.partitions.values() if each.leader >= 0) if found and not found.error else 0

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
            time.sleep(0.02)


def _shown(offsets: Mapping[TopicPartition, OffsetEntry]) -> Committed:
    return {
        (key.topic, key.partition): (entry.offset, entry.metadata, entry.leader_epoch)
        for key, entry in offsets.items()
        if entry.offset >= 0
    }


@contextmanager
def embedded_world(
    *, folder: Path | None = None, racks: int = 0, login: bool = False, auto_create: bool = False
) -> Iterator[World]:
    """A fresh embedded broker. `folder` lets it survive a restart, `racks` makes it look like several brokers."""
    users = {USER: (PASSWORD, ["all"])} if login else None
    names = [f"rack-{number}" for number in range(racks)]
    with Broker(data=folder, racks=names, users=users, auto_create_topics=auto_create) as broker:
        yield World(broker.bootstrap, broker=broker, number=next(_NUMBERS), login=LOGIN if login else {})


@contextmanager
def kafka_world(kafka: RealKafka) -> Iterator[World]:
    """Names of its own on a Kafka that is shared. Its topics go with it: the partitions of hundreds of worlds filled
    the heap of a Kafka, which then answered nobody."""
    number = int(time.time() * 1000) * 1000 + next(_NUMBERS)
    world = World(kafka.bootstrap, broker=None, number=number, login={})
    try:
        yield world
    finally:
        world.clear()


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}
