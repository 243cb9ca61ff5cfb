"""A group member on kafka-python. Run as a module; the options are in `options.py`.

kafka-python 3 awaits the listener on its own event loop, where its blocking `commit()` can't be used. So the listener
is the asynchronous kind and awaits the coordinator's commit.
"""

# kafka-python ships no types.
# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import sys
import time
from functools import partial

from kafka.consumer.group import KafkaConsumer
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.testing.members.program import BATCH, POLL_S, AsyncCallbacks, Session, pythonic_settings

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(AsyncCallbacks, AsyncConsumerRebalanceListener):
    refusals = (KafkaError,)


def as_offsets(session: Session, offsets: dict[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    topic = session.options.topic
    return {TopicPartition(topic, partition): OffsetAndMetadata(at, "", -1) for partition, at in offsets.items()}


def on_commit(session: Session, offsets: dict[TopicPartition, OffsetAndMetadata], answer: object) -> None:
    """The answer to a commit in passing."""
    if isinstance(answer, Exception):
        session.commit_failed(answer)
    else:
        session.committed({partition.partition: at.offset for partition, at in offsets.items()})


def main() -> None:
    session = Session("kafka-python", sys.argv[1:])
    consumer = KafkaConsumer(**pythonic_settings("kafka-python", session.options, ASSIGNORS))

    async def commit(offsets: dict[int, int]) -> None:
        # There is no public commit to await; the blocking one would wait for the loop it runs on.
        await consumer._coordinator._commit_offsets_sync_async(as_offsets(session, offsets))

    session.await_join()
    consumer.subscribe([session.options.topic], listener=Listener(session, commit))
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
