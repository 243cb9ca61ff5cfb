"""Live members of one group, each polled by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cli_world import fresh

import holdfast
from patience import wait_for

Kind = Callable[[dict[str, Any]], Any]
PARTITIONS = 4


class Members:
    """Consumers of one group on a topic of four partitions, which somebody else creates."""

    def __init__(self, bootstrap: str) -> None:
        self.group = fresh("moving")
        self.topic = fresh("orders")
        self.rounds = 0
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._owned: dict[str, int] = {}

    def add(self, strategy: str, name: str, kind: Kind = holdfast.Consumer) -> None:
        """One more, and wait until everybody has a share."""
        consumer = kind(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "client.id": name,
                "heartbeat.interval.ms": 100,
                "partition.assignment.strategy": strategy,
            }
        )
        self._owned[name] = 0
        self._threads.append(threading.Thread(target=self._poll, args=(name, consumer)))
        self._threads[-1].start()
        wait_for(lambda: all(self._owned.values()) and sum(self._owned.values()) == PARTITIONS, "all have a share")

    def _poll(self, name: str, consumer: Any) -> None:
        consumer.subscribe([self.topic], on_assign=self._count)
        while not self._stop.is_set():
            consumer.poll(0.02)
            self._owned[name] = len(consumer.assignment())
        consumer.close()

    def _count(self, *_: Any) -> None:
        self.rounds += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
