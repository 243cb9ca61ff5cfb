"""`holdfast.AsyncConsumer`: the consumer for asyncio, with the surface of confluent-kafka's `AIOConsumer`.

    async with AsyncConsumer({"bootstrap.servers": …, "group.id": "billing"}) as consumer:
        consumer.subscribe(["orders"], on_revoke=flush)      # callbacks may be plain or coroutine functions
        async for record in consumer:
            ...

Only the public methods are here; `waiting` does the waiting and `core` the work. Our only attributes are
`_holdfast`, `_holdfast_held` and AIOConsumer's `executor`. So a subclass may choose its own names and override any
method: nothing inside calls these methods. A consumer that is dropped without close() leaves its group in the
background and makes no more callbacks.

Heartbeats, rounds and fetching run on a thread that all consumers of a process share. A busy event loop delays its own
callbacks and nothing else, until max.poll.interval.ms. Calls that need no answer (seek, pause, …) are done when they
return, and may be awaited as well: programs written for AIOConsumer await everything.
"""

# ruff: noqa: ASYNC109  # a drop-in for confluent-kafka's AIOConsumer, whose methods take a timeout

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.aio.ready_results import DONE, Begun, Done, Given, Listed
from holdfast.client.aio.waiting import Waiting
from holdfast.client.arguments import count_of, message_of, partitions_of, topics_of
from holdfast.client.config.keys import as_given
from holdfast.client.member.listener import Listener
from holdfast.client.polling import MOST_RECORDS
from holdfast.client.weak_callbacks import Holder, held_weakly

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_RECORDS = 16_384
"""Default limit of rows in one Arrow batch: they are decoded on the loop, in about 4 ms."""


HELD_WEAKLY = ("error_cb", "stats_cb", "throttle_cb", "on_commit")
"""Callbacks that end with the consumer object (`weak_callbacks`). oauth_cb is not among them: a dropped consumer still
logs in to leave its group."""


class AsyncConsumer:
    """A member of a consumer group, or a reader of manually assigned partitions, on an asyncio loop."""

    _holdfast: Waiting
    _holdfast_held: Holder

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        max_workers: int | None = None,
        executor: Executor | None = None,
        *,
        consumer_conf: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Blocking questions to the cluster run on `executor`, or on a pool of `max_workers` threads of its own, or
        else on a pool that all consumers share. `consumer_conf` is AIOConsumer's name for the configuration."""
        given = as_given(consumer_conf if config is None else config, more)
        held = Holder()
        settings = {key: held.hold(key, value) if key in HELD_WEAKLY else value for key, value in given.items()}
        waiting = Waiting(settings, owner=weakref.ref(self), max_workers=max_workers, executor=executor)
        self._holdfast, self._holdfast_held = waiting, held
        self.executor = waiting.executor
        weakref.finalize(self, waiting.core.abandon).atexit = False  # at exit the session timeout ends the membership

    # -- subscription

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        *,
        listener: Listener | None = None,
    ) -> Begun:
        """Become a member that reads these topics. The next poll waits until that is done; so does awaiting this."""
        self._holdfast.open()  # raises if closed, before the arguments are checked
        ours = self._holdfast_held
        held, told = held_weakly(listener, on_assign, on_revoke, on_lost)

        def taken() -> None:
            ours.listening = held

        return self._holdfast.subscribe(topics_of(topics), told, then=taken)

    async def unsubscribe(self) -> None:
        await self._holdfast.unsubscribe()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> Done:
        self._holdfast.open()
        self._holdfast.core.enforce_rebalance(reason)
        return DONE

    # -- records

    async def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time."""
        core = self._holdfast.core

        def take() -> ck.Message | None:
            messages = core.reader.take(1, 0)
            return messages[0] if messages and core.hand_out(messages) else None

        return await self._holdfast.until(take, timeout, lambda news: news)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to `num_messages` records; fewer when the time is up."""
        most = count_of(num_messages)
        core = self._holdfast.core

        def take(enough: int) -> list[ck.Message] | None:
            if core.reader.ready(most) < enough:
                return None
            messages = core.reader.take(most, 0)
            return messages if core.hand_out(messages) else None

        found = await self._holdfast.until(lambda: take(most), timeout, lambda news: [news])
        if found is None and not core.closed and core.may_process():
            found = take(1)  # the time is up: return what is there
        return found or []

    async def consume_arrow(
        self, max_records: int = ARROW_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """The records at hand as one Arrow batch of at most `max_records` rows; empty when none came in time."""
        if not 1 <= max_records <= MOST_RECORDS:
            raise ValueError(f"max_records must be between 1 and {MOST_RECORDS}")
        core = self._holdfast.core

        def take() -> pa.RecordBatch | None:
            batch = core.reader.take_batch(max_records, include_headers=include_headers)
            return batch if batch is not None and core.hand_out(batch) else None

        found = await self._holdfast.until(take, timeout)
        if found is None:
            from holdfast.records.arrow import empty_batch

            return empty_batch(include_headers=include_headers)
        return found

    def __aiter__(self) -> AsyncIterator[ck.Message]:
        return self

    async def __anext__(self) -> ck.Message:
        """The next record, however long it takes; an error is raised. Ends when the consumer is closed."""
        while not self._holdfast.core.closed:
            message = await AsyncConsumer.poll(self)
            if message is not None:
                error = message.error()
                if error is not None and error.code() != ck.KafkaError._PARTITION_EOF:
                    raise ck.KafkaException(error)
                return message
        raise StopAsyncIteration

    # -- offsets

    async def commit(
        self,
        message: ck.Message | None = None,
        offsets: list[ck.TopicPartition] | None = None,
        asynchronous: bool | None = None,
    ) -> list[ck.TopicPartition] | None:
        """Commit the offset after a record, a list of offsets, or the application's positions.

        Waits for the coordinator's answer while other tasks run. With `asynchronous=True` it does not wait, and
        on_commit gets the outcome. With nothing to commit, `asynchronous=False` raises `_NO_OFFSET`, and the default
        returns None.
        """
        record = message_of(message, offsets)
        given = None if offsets is None else partitions_of(offsets)
        return await self._holdfast.commit(record, given, asynchronous)

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> Done:
        """Store an offset for the next commit."""
        record = message_of(message, offsets)
        given = None if offsets is None else partitions_of(offsets)
        self._holdfast.core.offsets.store_offsets(record, given)
        return DONE

    async def committed(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return await self._holdfast.run(self._holdfast.core.offsets.committed, partitions_of(partitions), timeout)

    # -- assignment and positions

    async def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read exactly these, from the offsets they name or else from the committed ones."""
        await self._holdfast.with_starts(partitions_of(partitions), self._holdfast.core.partitions.assign)

    async def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        await self._holdfast.with_starts(partitions_of(partitions), self._holdfast.core.partitions.incremental_assign)

    def unassign(self, *_ignored: Any) -> Done:
        """Read nothing any more. AIOConsumer's method takes a list and ignores it."""
        self._holdfast.open()
        self._holdfast.core.partitions.unassign()
        return DONE

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> Done:
        self._holdfast.open()
        self._holdfast.core.partitions.incremental_unassign(partitions_of(partitions))
        return DONE

    def assignment(self) -> Listed:
        return Listed(self._holdfast.core.partitions.assignment())

    def position(self, partitions: list[ck.TopicPartition]) -> Listed:
        return Listed(self._holdfast.core.partitions.position(partitions_of(partitions)))

    def seek(self, partition: ck.TopicPartition) -> Done:
        self._holdfast.core.partitions.seek(partition)
        return DONE

    def pause(self, partitions: list[ck.TopicPartition]) -> Done:
        self._holdfast.core.partitions.pause(partitions_of(partitions))
        return DONE

    def resume(self, partitions: list[ck.TopicPartition]) -> Done:
        self._holdfast.core.partitions.resume(partitions_of(partitions))
        return DONE

    # -- the cluster

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return await self._holdfast.run(self._holdfast.core.cluster.list_topics, topic, timeout)

    async def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        (one,) = partitions_of([partition])
        return await self._holdfast.run(self._holdfast.core.cluster.get_watermark_offsets, one, timeout, cached)

    async def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return await self._holdfast.run(
            self._holdfast.core.cluster.offsets_for_times, partitions_of(partitions), timeout
        )

    async def cluster_id(self, timeout: float = -1) -> str | None:
        return await self._holdfast.run(self._holdfast.core.cluster.cluster_id, timeout)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on."""
        await self._holdfast.run(self._holdfast.core.cluster.set_sasl_credentials, username, password)

    # -- who we are

    def memberid(self) -> str | None:
        return self._holdfast.core.about.memberid()

    def consumer_group_metadata(self) -> Given:
        """What a transactional producer needs to commit in this member's name, in librdkafka's format."""
        return Given(self._holdfast.core.about.consumer_group_metadata())

    def metrics(self) -> dict[str, float]:
        return self._holdfast.core.about.metrics()

    def metrics_text(self) -> str:
        return self._holdfast.core.about.metrics_text()

    # -- the end

    async def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Hand everything over and leave the group; keep polling meanwhile. True once the member is out of the group.

        With a timeout this waits and makes the listener's calls, but returns no records.
        """
        return await self._holdfast.drain(timeout, reason)

    async def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close waits for the first."""
        await self._holdfast.close()

    async def __aenter__(self) -> AsyncConsumer:
        self._holdfast.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, blocking_task: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run something blocking on the executor. AIOConsumer has this method, and subclasses of it use it."""
        return await self._holdfast.run(blocking_task, *args, **kwargs)
