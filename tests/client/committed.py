"""What a group has committed, and other things that tests of commits share."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

from holdfast.group.messages import FetchOffsetsRequest
from holdfast.testing import Broker
from patience import PATIENCE_S

LONG_MS = 600_000
"""An interval that no test lives to see: what is committed then is committed for another reason."""


def offsets(broker: Broker, group: str, topic: str) -> dict[int, tuple[int, str, int]]:
    """What the coordinator keeps: offset, metadata and epoch by partition. Asked of it, not through a client."""
    heard: SimpleQueue[Any] = SimpleQueue()
    broker.call(lambda state: state.groups.ask(FetchOffsetsRequest(group=group), heard.put))
    kept = heard.get(timeout=PATIENCE_S).offsets
    return {p.partition: (at.offset, at.metadata, at.leader_epoch) for p, at in kept.items() if p.topic == topic}


def reached(broker: Broker, group: str, topic: str) -> dict[int, int]:
    return {partition: at[0] for partition, at in offsets(broker, group, topic).items()}


def by_hand(topic: str, *partitions: int) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(topic, partition) for partition in partitions]


def code_of(caught: pytest.ExceptionInfo[ck.KafkaException]) -> int:
    return int(caught.value.args[0].code())


def group() -> str:
    return f"commits-{next(COUNTER)}"
