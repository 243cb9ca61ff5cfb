"""Questions about the cluster that applications ask their consumer. What answers them depends on the kind of
consumer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import confluent_kafka as ck

from holdfast.client.partitions import name_of
from holdfast.client.parts import Parts

HANDLE_CLOSED = "Handle has been closed"
"""confluent-kafka's text for a call on a closed consumer, where its producers have the call too."""


class Cluster(Protocol):
    """What answers: confluent-kafka's handle, or `aio.cluster_answers` where there is none. All of these block."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Brokers, topics and partitions."""

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """The first and the next offset of a partition, from its leader; None when the time is up."""

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        """The first offset at or after a time, which each of these names as its offset."""

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id; None before it is known."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on."""


class ClusterCalls:
    """One consumer's calls. `asking` gives a thread its turn to ask."""

    def __init__(self, parts: Parts, asking: Callable[[], AbstractContextManager[Cluster]]) -> None:
        self._config = parts.config
        self._data = parts.data
        self._check_open = parts.check_open
        self._asking = asking

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as cluster:
            return cluster.list_topics(topic, timeout) if topic else cluster.list_topics(timeout=timeout)

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        self._check_open()
        if cached:
            with self._data.turns.asking():
                return self._data.watermarks(name_of(partition)) or (ck.OFFSET_INVALID, ck.OFFSET_INVALID)
        with self._asking() as cluster:
            return cluster.get_watermark_offsets(partition, -1 if timeout is None else timeout)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        self._check_open()
        with self._asking() as cluster:
            return list(cluster.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as cluster:
            return cluster.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as cluster:
            cluster.set_sasl_credentials(username, password)
        if self._config.login is not None:
            self._config.login.change(username, password)
