"""What a query's member tells of itself: to operators, in the query's progress, and to Prometheus."""

from __future__ import annotations

import os
from typing import Any

from holdfast.client.clock import now_ms
from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.control import ControlPlane
from holdfast.client.telemetry.metrics import prometheus_text
from holdfast.client.telemetry.tracing import ConsumerTrace
from holdfast.model import TopicPartition, by_topic
from holdfast.spark.draining import Draining
from holdfast.spark.standby import Standby
from holdfast.spark.supply import Supply
from holdfast.spark.work import Work


class Reporter:
    """Reads one member's state, on its loop."""

    def __init__(
        self,
        config: ConsumerConfig,
        plane: ControlPlane,
        supply: Supply,
        work: Work,
        trace: ConsumerTrace,
        standby: Standby,
        draining: Draining,
    ) -> None:
        self._group, self._client_id = config.group, config.client_id
        self._plane, self._supply, self._work = plane, supply, work
        self._metrics, self._standby, self._draining = trace.metrics, standby, draining

    async def report(self) -> dict[str, Any]:
        """For people and tools; it becomes `latestOffset` in the query's progress."""
        membership, ends = self._plane.state.membership, self._supply.ends
        owned = sorted(self._work.held)
        latest: dict[str, dict[str, int]] = {}
        for topic, number in (partition for partition in owned if partition in ends):
            latest.setdefault(topic, {})[str(number)] = ends[TopicPartition(topic, number)]
        return {
            "latest": latest,
            "lag": sum(self._lags()),
            "owned": by_topic(owned),
            "member": membership.member_id,
            "generation": membership.generation,
            "group": self._group,
            "rebalances": self._metrics.rebalances,
            "reader": os.getpid(),
            **self._standby.report(),
            "drained": self._draining.done(),
        }

    async def metrics(self) -> str:
        """In Prometheus's form."""
        figures = self._metrics.snapshot(
            now_ms(),
            assigned=len(self._work.held),
            heartbeat_at=self._plane.state.requests.heartbeat_at,
            lag_max=max(self._lags(), default=None),
        )
        return prometheus_text(figures, group=self._group, client_id=self._client_id)

    def _lags(self) -> list[int]:
        """What is left to read of each owned partition whose end and position are known."""
        ends = self._supply.ends
        return [
            max(0, ends[partition] - held.position)
            for partition, held in self._work.held.items()
            if partition in ends and held.position is not None
        ]
