"""Records with old timestamps in a broker that lives for long."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest

from holdfast.testing import Broker
from kept import KEPT
from patience import PATIENCE_S

FIVE_MINUTES_MS = 301_000


@pytest.mark.parametrize(("configs", "first"), [({}, 5), (KEPT, 0)], ids=["a week", "for ever"])
def test_records_from_1970_stay_only_where_retention_is_off(configs: dict[str, str], first: int) -> None:
    """Symptom: once in some whole runs a test read nothing for two minutes, and never alone; it was taken for a fault
    of librdkafka. Cause: its records were from 1970, and the shared broker's retention deleted them just then. Rule:
    topics with fixed timestamps are created with KEPT."""
    with Broker(manual_clock=True) as broker:
        broker.topics.create("orders", partitions=1, configs=configs)
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(5):
            producer.produce("orders", b"x", timestamp=1_000 + number)
        assert producer.flush(PATIENCE_S) == 0
        consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        for _ in range(3):
            broker.advance(FIVE_MINUTES_MS)

        until = time.monotonic() + PATIENCE_S
        while consumer.get_watermark_offsets(ck.TopicPartition("orders", 0)) != (first, 5):
            assert time.monotonic() < until
            broker.advance(2_000)  # housekeeping, and the loop's turn
        consumer.close()
