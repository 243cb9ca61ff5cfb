"""Questions about the cluster that applications ask their consumer. Who answers depends on the consumer's kind."""

from __future__ import annotations

from typing import Any, Protocol

import confluent_kafka as ck


class ClusterQuestions(Protocol):
    """confluent-kafka's handle, and `aio.cluster_answers` where there is none. All of these block."""

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
