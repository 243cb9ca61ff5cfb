"""A group member on aiokafka. Run as a module; the options are in `options.py`. aiokafka has no cooperative assignor.

aiokafka tells its listener of revocations only when a rebalance begins, not on close, so the program revokes first.
"""

# aiokafka ships no types.
# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from holdfast.testing.members.program import BATCH, POLL_S, AsyncCallbacks, Session, pythonic_settings

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(AsyncCallbacks, ConsumerRebalanceListener):
    refusals = (KafkaError,)


async def consume(session: Session) -> None:
    topic = session.options.topic
    consumer = AIOKafkaConsumer(**pythonic_settings("aiokafka", session.options, ASSIGNORS))

    async def commit(offsets: dict[int, int]) -> None:
        await consumer.commit({TopicPartition(topic, number): offset for number, offset in offsets.items()})

    listener = Listener(session, commit)
    session.await_join()
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    while not session.stopping:
        hang_s = session.take_hang_s()
        if hang_s:
            await asyncio.sleep(hang_s)
            session.log.event("awake")
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        session.processed((record.partition, record.offset) for records in batches.values() for record in records)
        await listener.commit(session.due_offsets())
    session.log.event("closing")
    await listener.on_partitions_revoked(consumer.assignment())
    await consumer.stop()
    session.log.event("closed")


def main() -> None:
    session = Session("aiokafka", sys.argv[1:])
    asyncio.run(consume(session))


if __name__ == "__main__":
    main()
