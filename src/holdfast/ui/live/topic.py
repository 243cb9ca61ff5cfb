"""Traces in a Kafka topic, read once for all watched groups, beginning a few minutes back.

The whole topic is read, on a thread of its own, and the newest records are kept for groups that are opened later. The
reader is in no group and commits nothing. A line that is no record is left out.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace import decode

log = logging.getLogger("holdfast.ui")

BACK_S = 600.0
"""How far back it begins: as far as the page can show."""
MOST_RECORDS = 50_000
"""Records kept, about 50 MB: those of five thousand members in one round."""
LOOK_AGAIN_S = 30.0
"""How often to look for new partitions of the topic, and to try again after an error."""
POLL_S = 0.2
ASK_S = 10.0
AT_ONCE = 1_000


class TraceTopic:
    """The newest records of a topic, by group."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._kept: deque[tuple[int, TraceRecord]] = deque(maxlen=MOST_RECORDS)
        self._newest: dict[str, int] = {}
        """The number of each group's newest record."""
        self._number = 0
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self.run, name="holdfast-trace-topic", daemon=True)
        self._thread.start()

    def newest(self, group: str) -> int:
        """The number of the group's newest record; 0 if there is none."""
        return self._newest.get(group, 0)

    def read(self, group: str, after: int) -> tuple[list[TraceRecord], int]:
        """A group's records with numbers after this one, in order, and the number of the last one."""
        found: list[TraceRecord] = []
        with self._lock:
            newest = max(after, self.newest(group))
            for number, record in reversed(self._kept):
                if number <= after:
                    break
                if record.group == group:
                    found.append(record)
        return found[::-1], newest

    def close(self) -> None:
        self._ends.set()
        self._thread.join(ASK_S)

    def run(self) -> None:
        """Its thread: reads until it is closed."""
        while not self._ends.is_set():
            try:
                self._follow()
            except (ck.KafkaException, HoldfastError) as error:
                log.warning("The trace topic %s can't be read: %s. Trying again.", self._topic, error)
                self._ends.wait(LOOK_AGAIN_S)

    def _follow(self) -> None:
        from holdfast.client.consumer import Consumer  # not at the top: a page without a topic needs no client

        mine = {"group.id": "holdfast-page", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._settings, **mine})
        known: set[int] = set()
        look_at = 0.0
        try:
            while not self._ends.is_set():
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_AGAIN_S
                    known |= self._add(consumer, known)
                for message in consumer.consume(AT_ONCE, POLL_S):
                    self.take(message)
        finally:
            consumer.close()

    def _add(self, consumer: Any, known: set[int]) -> set[int]:
        """Add new partitions: the first ones from some minutes back, later ones from their beginning."""
        told = consumer.list_topics(self._topic, timeout=ASK_S).topics.get(self._topic)
        found = set() if told is None or told.error is not None else set(told.partitions) - known
        if not found:
            return found
        if known:
            starts = [ck.TopicPartition(self._topic, number, ck.OFFSET_BEGINNING) for number in sorted(found)]
        else:
            since = int((time.time() - BACK_S) * 1_000)
            asked = [ck.TopicPartition(self._topic, number, since) for number in sorted(found)]
            starts = consumer.offsets_for_times(asked, timeout=ASK_S)
        consumer.incremental_assign(starts)
        return found

    def take(self, message: Any) -> None:
        """Keep a message's record; what is no record is passed over."""
        if message.error() is not None or message.value() is None:
            return
        with contextlib.suppress(HoldfastError):
            record = decode(message.value().decode("utf-8", "replace"))
            with self._lock:
                self._number += 1
                self._kept.append((self._number, record))
                self._newest[record.group] = self._number
