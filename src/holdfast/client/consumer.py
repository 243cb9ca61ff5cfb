"""`holdfast.Consumer`: the surface of `confluent_kafka.Consumer`, with handovers that take milliseconds.

Only the public methods are here; `polling` does the work. Our only attributes are `_holdfast` and `_holdfast_held`. So
a subclass may choose its own names and override any method: nothing inside calls these methods.

It inherits from `confluent_kafka.Consumer` because frameworks check with `isinstance`. Nothing of that class is used:
its handle is never opened, and a method of it that is not overridden here raises that the consumer is closed.

A consumer that is dropped without close() leaves its group in the background and makes no more callbacks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.arguments import asynchronous_of, message_of, partitions_of, topics_of
from holdfast.client.cluster_calls import HANDLE_CLOSED
from holdfast.client.config.keys import CALLBACKS, as_given
from holdfast.client.errors import CLOSED
from holdfast.client.member.listener import Listener
from holdfast.client.polling import MAX_RECORDS, PollingCore
from holdfast.client.weak_callbacks import Holder, held_weakly

if TYPE_CHECKING:
    import pyarrow as pa


class _NotOpen:
    """Stands in for the core when a subclass did not call our constructor, or the constructor failed."""

    @property
    def cluster(self) -> _NotOpen:
        return self

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(HANDLE_CLOSED if name in ("list_topics", "cluster_id", "set_sasl_credentials") else CLOSED)

    def close(self) -> None:
        """There is nothing to close."""


NOT_OPEN: Any = _NotOpen()


class Consumer(cimpl.Consumer):
    """A member of a consumer group, or a reader of manually assigned partitions."""

    _holdfast: PollingCore = NOT_OPEN
    _holdfast_held: Holder

    def __init__(self, config: Mapping[str, Any] | None = None, *, logger: Any = None, **more: Any) -> None:
        given = as_given(config, more)
        held = Holder()
        settings = {key: held.hold(key, value) if key in CALLBACKS else value for key, value in given.items()}
        core = PollingCore(settings, owner=weakref.ref(self), logger=logger)
        self._holdfast, self._holdfast_held = core, held
        weakref.finalize(self, core.abandon).atexit = False  # at exit the watchdog leaves for it

    # -- subscription

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        *,
        listener: Listener | None = None,
    ) -> None:
        """Become a member that reads these topics; a name that starts with ^ is a pattern."""
        self._holdfast.check_open()  # before the arguments are
        held, told = held_weakly(listener, on_assign, on_revoke, on_lost)
        self._holdfast.subscribe(topics_of(topics), told)
        self._holdfast_held.listening = held

    def unsubscribe(self) -> None:
        self._holdfast.unsubscribe()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Make the group rebalance."""
        self._holdfast.enforce_rebalance(reason)

    # -- records

    def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time. Listener calls are made from here."""
        return self._holdfast.poll(timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to `num_messages` records; fewer when the time is up."""
        return self._holdfast.consume(num_messages, timeout)

    def consume_arrow(
        self, max_records: int = MAX_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """The records at hand as one Arrow batch of at most `max_records` rows; empty when none came in time.

        Columns and types are those of Spark's Kafka source. Positions, commits and membership are shared with poll()
        and consume(); a program may use both.
        """
        return self._holdfast.consume_arrow(max_records, timeout, include_headers=include_headers)

    # -- offsets

    def commit(  # type: ignore[override]  # one signature where their stub has six overloads
        self,
        message: ck.Message | None = None,
        offsets: list[ck.TopicPartition] | None = None,
        asynchronous: bool = True,
        **more: Any,
    ) -> list[ck.TopicPartition] | None:
        """Commit the offset after a record, a list of offsets, or the application's positions."""
        record = message_of(message, offsets)
        given = None if offsets is None else partitions_of(offsets)
        return self._holdfast.offsets.commit(record, given, asynchronous_of(asynchronous, more))

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Store an offset for the next commit."""
        offsets_of = self._holdfast.offsets  # raises if it is not open, before the arguments are checked
        offsets_of.store_offsets(message_of(message, offsets), None if offsets is None else partitions_of(offsets))

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        """The group's committed offsets of these."""
        return self._holdfast.offsets.committed(partitions_of(partitions), timeout)

    # -- assignment and positions

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read exactly these. Inside on_assign: start them at the listed offsets."""
        self._holdfast.partitions.assign(partitions_of(partitions))

    def unassign(self, *_ignored: Any) -> None:
        """Read nothing any more. confluent-kafka's method takes a list and ignores it."""
        self._holdfast.partitions.unassign()

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.partitions.incremental_assign(partitions_of(partitions))

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.partitions.incremental_unassign(partitions_of(partitions))

    def assignment(self) -> list[ck.TopicPartition]:
        return self._holdfast.partitions.assignment()

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was returned."""
        return self._holdfast.partitions.position(partitions_of(partitions))

    def seek(self, partition: ck.TopicPartition) -> None:
        self._holdfast.partitions.seek(partition)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.partitions.pause(partitions_of(partitions))

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.partitions.resume(partitions_of(partitions))

    # -- the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return self._holdfast.cluster.list_topics(topic, timeout)

    def get_watermark_offsets(  # type: ignore[override]  # None when the time is up: their stub leaves that out
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        cluster = self._holdfast.cluster
        (one,) = partitions_of([partition])
        return cluster.get_watermark_offsets(one, timeout, cached)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return self._holdfast.cluster.offsets_for_times(partitions, timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:  # type: ignore[override]  # None before it is known
        return self._holdfast.cluster.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._holdfast.cluster.set_sasl_credentials(username, password)

    # -- who we are

    def memberid(self) -> str | None:  # type: ignore[override]  # None before the first join
        return self._holdfast.about.memberid()

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name, in librdkafka's format."""
        return self._holdfast.about.consumer_group_metadata()

    def metrics(self) -> dict[str, float]:
        """The consumer's metrics under their Java names, KIP-429's among them; latencies are in milliseconds."""
        return self._holdfast.about.metrics()

    def metrics_text(self) -> str:
        """The same in Prometheus's form."""
        return self._holdfast.about.metrics_text()

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Hand everything over and leave the group; keep polling meanwhile. True once the member is out of the group.

        With a timeout this call waits and makes the listener's calls, but returns no records.
        """
        return self._holdfast.drain(timeout, reason)

    def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close does nothing.

        Called inside a callback, it closes as soon as the callbacks under way have returned.
        """
        self._holdfast.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
