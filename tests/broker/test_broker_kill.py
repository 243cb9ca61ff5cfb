"""kill -9 under load: every acknowledged record and every acknowledged commit is there afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from raw_client import Closed, RawClient

from holdfast.testing.kafka_node import free_port
from holdfast.wire.api import Api
from patience import PATIENCE_S

TOPIC, GROUP, PARTITIONS = "orders", "committers", 3
MAX_WAITING = 2_000
"""Records on their way while the broker is down: enough to keep it busy when it comes back."""


class Load:
    """An idempotent producer with acks=all and a committer, both of which remember what they were promised."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = "127.0.0.1"
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        """value -> (partition, offset)"""
        self.refused: list[KafkaError] = []
        self.committed = -1
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": f"{self.host}:{port}",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 0,  # none: a broker that is killed all the time on a busy machine answers late
                "log_level": 0,
            }
        )
        self._threads = [self._thread(self._produce), self._thread(self._commit)]

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)

        return threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert self._producer.flush(120) == 0
        assert self.failures == []

    def _produce(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) > MAX_WAITING:
                self._producer.poll(0.05)
                continue
            for _ in range(20):
                value = f"{number}".encode().ljust(100, b".")
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            value, place = _found(message)
            self.acknowledged[value] = place

    def _commit(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with RawClient(self) as client:
                    while not self._stop.is_set():
                        number += 1
                        if _commit(client, number) == 0:
                            self.committed = number
                        time.sleep(0.001)
            except (Closed, OSError):
                time.sleep(0.02)


def _found(message: Message) -> tuple[bytes, tuple[int, int]]:
    """Its value and where it is."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None and partition is not None and offset is not None
    return value, (partition, offset)


def _commit(client: RawClient, offset: int) -> int:
    partition = {"partition_index": 0, "committed_offset": offset}
    body = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [partition]}]}
    return int(client.ask(Api.OFFSET_COMMIT, body).topics[0].partitions[0].error_code)


def _committed(port: int) -> int:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP})
    found = consumer.committed([TopicPartition(TOPIC, 0)], timeout=PATIENCE_S)[0].offset
    consumer.close()
    return max(int(found), -1)  # librdkafka says -1001 for none


def _stored(port: int) -> dict[bytes, list[tuple[int, int]]]:
    """Every record by its value, wherever it is."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "reader", "enable.auto.commit": False})
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=PATIENCE_S)[1]
        for number in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: dict[bytes, list[tuple[int, int]]] = {}
    left = sum(ends.values())
    deadline = time.monotonic() + 120
    while left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None
            value, place = _found(message)
            found.setdefault(value, []).append(place)
            left -= 1
    consumer.close()
    assert left == 0
    return found


def rounds(folder: Path, count: int) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    dice = random.Random(seed)
    port = free_port()
    args = ("--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}", "--partitions", str(PARTITIONS))
    load = Load(port)
    broker = BrokerProcess(*args, log=folder / "broker.log")
    load.start()
    for _ in range(count):
        time.sleep(dice.uniform(0.02, 0.5))
        broker.kill()
        promised = load.committed
        broker = BrokerProcess(*args, log=folder / "broker.log")
        assert _committed(port) >= promised
    load.stop()
    stored = _stored(port)
    assert _committed(port) >= load.committed > 0
    assert broker.stop() == 0

    assert load.refused == []
    assert len(load.acknowledged) > 10 * count, "the load was none"
    lost = {value: at for value, at in load.acknowledged.items() if at not in stored.get(value, [])}
    assert lost == {}
    doubled = {value: places for value, places in stored.items() if len(places) > 1}
    assert doubled == {}, "an idempotent producer's record is stored once"


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_nothing_acknowledged_is_lost_in_15_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 15)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_nothing_acknowledged_is_lost_in_100_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 100)
