"""A group member on aiokafka. Run as a module; the options are in `options.py`. aiokafka has no cooperative assignor.

aiokafka tells its listener of revocations only when a rebalance begins, not on close, so the program revokes first.
"""

# aiokafka ships no types.
# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from holdfast.testing.members.program import BATCH, POLL_S, Session, refuse

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):
    """aiokafka's callbacks, in our words."""

    def __init__(self, session: Session, consumer: Any) -> None:
        self._session = session
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._session.assigned(partition.partition for partition in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        offsets = self._session.revoked(partition.partition for partition in revoked)
        await commit(self._session, self._consumer, offsets)


async def commit(session: Session, consumer: Any, offsets: dict[int, int]) -> None:
    if not offsets:
        return
    try:
        await consumer.commit({TopicPartition(session.options.topic, number): at for number, at in offsets.items()})
    except KafkaError as error:
        session.commit_failed(error)
    else:
        session.committed(offsets)


def settings(session: Session) -> dict[str, Any]:
    """AIOKafkaConsumer's arguments. What comes from `config` is text; numbers are told by their looks."""
    options = session.options
    unknown = set(options.assignors) - set(ASSIGNORS)
    if unknown:
        refuse("aiokafka", unknown)
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


async def consume(session: Session) -> None:
    consumer = AIOKafkaConsumer(**settings(session))
    listener = Listener(session, consumer)
    session.await_join()
    consumer.subscribe([session.options.topic], listener=listener)
    await consumer.start()
    while not session.stopping:
        hang_s = session.take_hang_s()
        if hang_s:
            await asyncio.sleep(hang_s)
            session.log.event("awake")
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        session.processed((record.partition, record.offset) for records in batches.values() for record in records)
        await commit(session, consumer, session.due_offsets())
    session.log.event("closing")
    await listener.on_partitions_revoked(consumer.assignment())
    await consumer.stop()
    session.log.event("closed")


def main() -> None:
    session = Session("aiokafka", sys.argv[1:])
    asyncio.run(consume(session))


if __name__ == "__main__":
    main()
