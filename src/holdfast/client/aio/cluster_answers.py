"""Answers questions about the cluster (topics, watermarks, offsets) for a consumer without librdkafka.

It takes the place of confluent-kafka's handle (`cluster_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from holdfast.client.config.keys import read_committed
from holdfast.client.errors import Refused, as_kafka_exception, not_answered, refused_here
from holdfast.client.member import engine as engines
from holdfast.client.partitions import name_of, offsets_of
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, LATEST, Admin
from holdfast.net.config import client_config

T = TypeVar("T")

LOOKUP_S = 60.0
"""Time limit for a question about the cluster when the caller sets none."""


class ClusterAnswers:
    """Its methods block: not to be called on an event loop."""

    def __init__(self, engine: engines.Engine, raw: Mapping[str, Any]) -> None:
        self._engine = engine
        self._config = client_config(raw)
        self._isolated = read_committed(raw)
        self._admin: Admin | None = None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Nothing to do: our connections read them from the consumer's shared login."""

    def shut(self) -> None:
        """Release the engine's connections: no more questions come."""
        if self._admin is not None:
            self._engine.submit(self._engine.let_go(self._cluster)).result(LOOKUP_S)
            self._admin = None

    def _ask(self, question: Callable[[Admin], Coroutine[Any, Any, T]], timeout: float | None) -> T:
        async def asked() -> T:
            if self._admin is None:
                self._cluster = self._engine.cluster(self._config)
                self._admin = Admin(self._cluster)
            return await question(self._admin)

        future = self._engine.submit(asked())
        try:
            return future.result(LOOKUP_S if timeout is None or timeout < 0 else timeout)
        except TimeoutError:
            future.cancel()
            raise not_answered("the cluster") from None
        except HoldfastError as failed:
            raise as_kafka_exception(failed) from failed

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        found = self._ask(lambda admin: admin.describe_topics(None if topic is None else [topic]), timeout)
        info = self._cluster.info
        described = ClusterMetadata()
        described.cluster_id = info.cluster_id  # type: ignore[assignment]  # their stub says that it is None
        described.controller_id = info.controller
        for node, broker in sorted(info.brokers.items()):
            one: Any = BrokerMetadata()
            one.id, one.host, one.port = node, broker.host, broker.port
            described.brokers[node] = one
        for name, topic_info in sorted(found.items()):
            known: Any = TopicMetadata()
            known.topic = name
            known.error = None if topic_info.error is ErrorCode.NONE else ck.KafkaError(int(topic_info.error))
            for number, partition in sorted(topic_info.partitions.items()):
                part: Any = PartitionMetadata()
                part.id, part.leader = number, partition.leader
                part.replicas, part.isrs = list(partition.replicas), list(partition.in_sync)
                known.partitions[number] = part
            described.topics[name] = known
        return described

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        where = name_of(partition)

        async def both(admin: Admin) -> tuple[int, int]:
            if await self._unknown(admin, [where]):
                raise refused_here(ck.KafkaError._UNKNOWN_PARTITION, f"Failed to get watermark offsets: no {where}")
            low = await admin.list_offsets({where: EARLIEST})
            high = await admin.list_offsets({where: LATEST}, read_committed=self._isolated)
            return low[where].offset, high[where].offset

        return self._ask(both, timeout)

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        """A partition that does not exist gets an error of its own, if at least one of the others does exist."""
        wanted = offsets_of(partitions)
        if not wanted:
            raise refused_here(ck.KafkaError._INVALID_ARG, "Failed to get offsets: no partition is named")

        async def known(admin: Admin) -> dict[TopicPartition, int | ck.KafkaError]:
            unknown = await self._unknown(admin, wanted)
            if unknown.keys() >= wanted.keys():
                names = ", ".join(map(str, sorted(unknown)))
                raise refused_here(ck.KafkaError._UNKNOWN_PARTITION, f"Failed to get offsets: no {names}")
            asked = {p: at for p, at in wanted.items() if p not in unknown}
            found = await admin.list_offsets(asked, read_committed=self._isolated)
            return {**unknown, **{p: at.offset for p, at in found.items()}}

        answers = self._ask(known, timeout)
        return [_at(p, answers[name_of(p)]) for p in partitions]

    async def _unknown(
        self, admin: Admin, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | ck.KafkaError]:
        """Those that don't exist, each with its error. They are not waited for: they may never exist."""
        asked = list(partitions)
        topics = await admin.describe_topics(sorted({p.topic for p in asked}))
        unknown: dict[TopicPartition, int | ck.KafkaError] = {}
        for partition in asked:
            topic = topics.get(partition.topic)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                unknown[partition] = ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
            elif topic.error is ErrorCode.NONE and partition.partition not in topic.partitions:
                unknown[partition] = ck.KafkaError(ck.KafkaError._UNKNOWN_PARTITION)
        return unknown

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._ask(lambda admin: admin.describe_topics([]), timeout)
        return self._cluster.info.cluster_id


def _at(partition: ck.TopicPartition, answer: int | ck.KafkaError) -> ck.TopicPartition:
    if isinstance(answer, ck.KafkaError):
        where = name_of(partition)
        return Refused(where, OffsetEntry(partition.offset), answer)
    return ck.TopicPartition(partition.topic, partition.partition, ck.OFFSET_END if answer < 0 else answer)
