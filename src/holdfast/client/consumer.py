"""`holdfast.Consumer`: the surface of `confluent_kafka.Consumer`, with handovers that take milliseconds.

Only the surface is here; `core` does the work. Everything of ours hangs on `_holdfast` and `_holdfast_held`, so that a
subclass may name its own attributes and methods as it likes, and override any method: nothing inside calls these.

It is a `confluent_kafka.Consumer` to `isinstance`, because frameworks ask. Of that class nothing else is used: its own
handle is never opened, and a method of it that is not replaced here says that the consumer is closed.

One that is dropped without close() leaves its group in the background, and calls nobody.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.arguments import message_of, partitions_of, topics_of, unawaited
from holdfast.client.config_keys import CALLBACKS, as_given
from holdfast.client.core import CLOSED, HANDLE_CLOSED, MAX_RECORDS, ConsumerCore
from holdfast.client.listener import Listener
from holdfast.client.loose import Holder

if TYPE_CHECKING:
    import pyarrow as pa


class _NotOpen:
    """In place of the consumer where a subclass did not call our constructor, or the constructor failed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(HANDLE_CLOSED if name in ("list_topics", "cluster_id", "set_sasl_credentials") else CLOSED)

    def close(self) -> None:
        """There is nothing to close."""


NOT_OPEN: Any = _NotOpen()


class Consumer(cimpl.Consumer):
    """A member of a consumer group, or a reader of partitions it was given by hand."""

    _holdfast: ConsumerCore = NOT_OPEN
    _holdfast_held: Holder

    def __init__(self, config: Mapping[str, Any] | None = None, *, logger: Any = None, **more: Any) -> None:
        given = as_given(config, more)
        held = Holder()
        settings = {key: held.loosely(key, value) if key in CALLBACKS else value for key, value in given.items()}
        core = ConsumerCore(settings, owner=weakref.ref(self), logger=logger)
        self._holdfast, self._holdfast_held = core, held
        weakref.finalize(self, core.abandon).atexit = False  # at exit the watchdog does it

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
        """Become a member that wants these topics; a name that starts with ^ is a pattern."""
        if listener is not None:
            on_assign, on_revoke, on_lost = listener.on_assign, listener.on_revoke, listener.on_lost
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        core = self._holdfast  # a closed one says so before it looks at anything
        held = Holder()
        core.subscribe(topics_of(topics), *(held.loosely(*one) for one in given.items()))
        self._holdfast_held.listening = held

    def unsubscribe(self) -> None:
        self._holdfast.unsubscribe()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Make the group plan anew."""
        self._holdfast.enforce_rebalance(reason)

    # -- records

    def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time. Listener calls are made from here."""
        return self._holdfast.poll(timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to so many records; fewer when the time is up."""
        return self._holdfast.consume(num_messages, timeout)

    def consume_arrow(
        self, max_records: int = MAX_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """What is there, as one Arrow batch of at most so many rows; an empty one when nothing came in time.

        Columns and types are those of Spark's Kafka source. Positions, commits and everything of the group are shared
        with poll() and consume(); a program may use both.
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
        """Commit a record's successor, a list of offsets, or where the application stands."""
        record = message_of(message, offsets)
        given = None if offsets is None else partitions_of(offsets)
        return self._holdfast.commit(record, given, unawaited(asynchronous, more))

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Keep an offset for the next commit."""
        core = self._holdfast  # first: a consumer that was never made, or is closed, says so whatever it is given
        core.store_offsets(message_of(message, offsets), None if offsets is None else partitions_of(offsets))

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        """What the group has committed of these."""
        return self._holdfast.committed(partitions_of(partitions), timeout)

    # -- assignment and positions

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Take exactly these. Inside on_assign: start where the list says."""
        self._holdfast.assign(partitions_of(partitions))

    def unassign(self, *_ignored: Any) -> None:
        """Take nothing. confluent-kafka's takes a list and does not look at it."""
        self._holdfast.unassign()

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.incremental_assign(partitions_of(partitions))

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.incremental_unassign(partitions_of(partitions))

    def assignment(self) -> list[ck.TopicPartition]:
        return self._holdfast.assignment()

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was returned."""
        return self._holdfast.position(partitions_of(partitions))

    def seek(self, partition: ck.TopicPartition) -> None:
        self._holdfast.seek(partition)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.pause(partitions_of(partitions))

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._holdfast.resume(partitions_of(partitions))

    # -- the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return self._holdfast.list_topics(topic, timeout)

    def get_watermark_offsets(  # type: ignore[override]  # None when the time is up: their stub leaves that out
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        return self._holdfast.get_watermark_offsets(partition, timeout, cached)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return self._holdfast.offsets_for_times(partitions, timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:  # type: ignore[override]  # None before it is known
        return self._holdfast.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._holdfast.set_sasl_credentials(username, password)

    # -- who we are

    def memberid(self) -> str | None:  # type: ignore[override]  # None before the first join
        return self._holdfast.memberid()

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name; librdkafka's own form of it."""
        return self._holdfast.consumer_group_metadata()

    def metrics(self) -> dict[str, float]:
        """KIP-429's metrics and what belongs with them, by their Java names; latencies are milliseconds."""
        return self._holdfast.metrics()

    def metrics_text(self) -> str:
        """The same in Prometheus's form."""
        return self._holdfast.metrics_text()

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Ask to hand over everything and leave; go on polling meanwhile. True once we are out of the group.

        With a timeout this call waits and makes the listener's calls, but returns no records.
        """
        return self._holdfast.drain(timeout, reason)

    def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close does nothing.

        Inside a callback it is done as soon as the callbacks under way have returned: what they were told comes first.
        """
        self._holdfast.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
