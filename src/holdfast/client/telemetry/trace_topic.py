"""A consumer's trace in a Kafka topic, where `holdfast ui` and `holdfast doctor --follow` read those of all members.

Rules. It never delays the member and never fails a call of the application: what the brokers don't take in time is
dropped and counted, and logged at most once a minute. A group's records have its name as their key, so that they stay
in order in one partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import confluent_kafka as ck

from holdfast.model import TraceRecord
from holdfast.trace import encode

log = logging.getLogger("holdfast")

QUEUED_RECORDS = 10_000
"""The most records that wait for a broker, about 3 MB. One round of a member makes ten."""
LINGER_MS = 20
TELL_EVERY_S = 60.0
CLOSE_S = 2.0
"""How long the last records may take at close: a deploy must not wait for a trace."""

SHARED = ("bootstrap.servers", "client.id", "client.dns.lookup", "log_level", "oauth_cb", "resolve_cb")
SHARED_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.", "broker.address.", "socket.",
                   "reconnect.", "connections.")  # fmt: skip
"""What a producer shares with the consumer: how to reach the brokers."""


def producer_settings(librdkafka: Mapping[str, Any]) -> dict[str, Any]:
    """A producer's configuration from the consumer's."""
    shared = {key: librdkafka[key] for key in librdkafka if key in SHARED or key.startswith(SHARED_PREFIXES)}
    return {
        **shared,
        "linger.ms": LINGER_MS,
        "queue.buffering.max.messages": QUEUED_RECORDS,
        "compression.type": "lz4",
    }


class TraceTopic:
    """Sends records. Called under its owner's lock."""

    def __init__(self, topic: str, librdkafka: Mapping[str, Any]) -> None:
        self.topic = topic
        self._producer = ck.Producer(producer_settings(librdkafka))
        self._dropped = 0
        self._why = ""
        self._told_at = float("-inf")

    def write(self, record: TraceRecord) -> None:
        if record.wall is None:
            record = replace(record, wall=round(time.time() * 1_000.0, 3))
        try:
            self._producer.produce(self.topic, encode(record), key=record.group, on_delivery=self._delivered)
        except (BufferError, ck.KafkaException) as error:
            self._drop(str(error))
        self._producer.poll(0)

    def log_in_as(self, user: str, password: str) -> None:
        """The consumer's credentials have changed."""
        self._producer.set_sasl_credentials(user, password)

    def close(self) -> None:
        left = self._producer.flush(CLOSE_S)
        if left:
            self._drop(f"not sent within {CLOSE_S:g} s of closing", left)
        self._tell(always=True)

    def _delivered(self, error: ck.KafkaError | None, _message: object) -> None:
        if error is not None:
            self._drop(error.str())

    def _drop(self, why: str, count: int = 1) -> None:
        self._dropped += count
        self._why = why
        self._tell()

    def _tell(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._dropped and (always or now - self._told_at >= TELL_EVERY_S):
            self._told_at = now
            log.warning(
                "%d trace records did not reach the topic %s: %s. The consumer goes on; see that the topic exists and "
                "may be written to.",
                self._dropped,
                self.topic,
                self._why,
            )
            self._dropped = 0
