"""A steady producer that remembers what was acknowledged, so that a check can say what was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from holdfast.model import HoldfastError

TICK_S = 0.002
"""How often due records are sent: finer than the gaps that are measured, and still under 1 % of a core."""

FLUSH_LIMIT_S = 60.0


class SteadyProducer:
    """Produces `rate` records a second in all, round robin over the partitions, from a thread, until stopped.

    A record counts when the broker has acknowledged it (acks=all): `acknowledged()` gives the offsets by partition.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: float,
        value_bytes: int = 100,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self._partitions = partitions
        self._rate = rate
        self._value_bytes = value_bytes
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2}
        self._producer = Producer(settings | dict(config or {}))
        self._offsets: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self._failed: list[str] = []
        self._sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-producer", daemon=True)

    def __enter__(self) -> SteadyProducer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread.is_alive():
            self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops sending and returns when the fate of every record is known; one not acknowledged is an error."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_LIMIT_S)
        if left or self._failed:
            raise HoldfastError(
                "PRODUCE_FAILED",
                f"{left} records are still on their way after {FLUSH_LIMIT_S:.0f} s and {len(self._failed)} failed: "
                f"{', '.join(sorted(set(self._failed)))}.",
                "See whether the broker is up.",
            )

    @property
    def sent(self) -> int:
        """How many records were handed to the client so far."""
        return self._sent

    def acknowledged(self) -> dict[int, list[int]]:
        """Offsets stored so far, by partition, sorted."""
        return {partition: sorted(offsets) for partition, offsets in self._offsets.items()}

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate)
            while self._sent < due:
                self._send(self._sent)
                self._sent += 1
            self._producer.poll(0)
            self._stop.wait(TICK_S)

    def _send(self, number: int) -> None:
        value = str(number).encode().ljust(self._value_bytes, b".")
        while True:
            try:
                self._producer.produce(
                    self.topic, value, partition=number % self._partitions, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.01)
            else:
                return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))
        else:
            self._offsets[message.partition()].append(message.offset())
