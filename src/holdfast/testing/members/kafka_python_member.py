"""A group member on kafka-python. Run as a module; the options are in `options.py`.

kafka-python 3 awaits the listener on its own event loop, where its blocking `commit()` can't be used. So the listener
is the asynchronous kind and awaits the coordinator's commit.
"""

# kafka-python ships no types.
# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from kafka.consumer.group import KafkaConsumer
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.testing.members.program import BATCH, POLL_S, Session

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(AsyncConsumerRebalanceListener):
    """kafka-python's callbacks, in our words."""

    def __init__(self, session: Session, consumer: Any) -> None:
        self._session = session
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._session.assigned(partition.partition for partition in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        offsets = self._session.revoked(partition.partition for partition in revoked)
        if not offsets:
            return
        try:
            # There is no public commit to await; the blocking one would wait for the loop it runs on.
            await self._consumer._coordinator._commit_offsets_sync_async(as_offsets(self._session, offsets))
        except KafkaError as error:
            self._session.commit_failed(error)
        else:
            self._session.committed(offsets)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._session.lost(partition.partition for partition in lost)


def as_offsets(session: Session, offsets: dict[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    topic = session.options.topic
    return {TopicPartition(topic, partition): OffsetAndMetadata(at, "", -1) for partition, at in offsets.items()}


def on_commit(session: Session, offsets: dict[TopicPartition, OffsetAndMetadata], answer: object) -> None:
    """The answer to a commit in passing."""
    if isinstance(answer, Exception):
        session.commit_failed(answer)
    else:
        session.committed({partition.partition: at.offset for partition, at in offsets.items()})


def settings(session: Session) -> dict[str, Any]:
    """KafkaConsumer's arguments. What comes from `config` is text; numbers are told by their looks."""
    options = session.options
    named = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "auto_offset_reset": options.reset,
        "enable_auto_commit": False,
        "partition_assignment_strategy": [ASSIGNORS[name] for name in options.assignors] or None,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "max_poll_interval_ms": options.max_poll_ms,
        "group_instance_id": options.instance_id,
        "client_rack": options.rack,
        "client_id": options.client_id,
    }
    extra = {key: int(value) if value.isdigit() else value for key, value in options.config.items()}
    return {key: value for key, value in named.items() if value is not None} | extra


def main() -> None:
    session = Session("kafka-python", sys.argv[1:])
    consumer = KafkaConsumer(**settings(session))
    session.await_join()
    consumer.subscribe([session.options.topic], listener=Listener(session, consumer))
    while not session.stopping:
        hang_s = session.take_hang_s()
        if hang_s:
            time.sleep(hang_s)
            session.log.event("awake")
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        session.processed((record.partition, record.offset) for records in batches.values() for record in records)
        offsets = session.due_offsets()
        if offsets:
            consumer.commit_async(as_offsets(session, offsets), callback=partial(on_commit, session))
    session.log.event("closing")
    consumer.close(autocommit=False)
    session.log.event("closed")


if __name__ == "__main__":
    main()
