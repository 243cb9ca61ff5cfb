"""What a consumer tells about itself: who it is in its group, and its figures."""

from __future__ import annotations

from holdfast.client import group_metadata
from holdfast.client.clock import now_ms
from holdfast.client.config.keys import read_committed
from holdfast.client.parts import Parts
from holdfast.client.telemetry.group_part import group_part
from holdfast.client.telemetry.metrics import GroupMetrics, prometheus_text
from holdfast.client.telemetry.statistics import GroupPart
from holdfast.model import NOBODY
from holdfast.net.fetched_bytes import FetchedBytes


class SelfReport:
    """The report of one consumer."""

    def __init__(self, parts: Parts, metrics: GroupMetrics, fetched: FetchedBytes) -> None:
        self.parts = parts
        self._config = parts.config
        self._data = parts.data
        self._offsets = parts.offsets
        self._link = parts.link
        self._check_open = parts.check_open
        self._metrics = metrics
        self._fetched = fetched

    def memberid(self) -> str | None:
        self._check_open()
        return (self._link.plane.state.membership.member_id or None) if self._link.plane is not None else None

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name, in librdkafka's format."""
        self._check_open()
        membership = self._link.plane.state.membership if self._link.plane is not None else NOBODY
        return group_metadata.encoded(self._config.group, membership, self._config.instance_id)

    def metrics(self) -> dict[str, float]:
        """The consumer's metrics under their Java names, KIP-429's among them; latencies are in milliseconds."""
        state = self._link.plane.state if self._link.plane is not None else None
        return self._metrics.snapshot(
            now_ms(),
            assigned=len(self._data.assigned),
            heartbeat_at=state.requests.heartbeat_at if state is not None else 0.0,
            lag_max=self._data.lag_max(),
            fetched=self._fetched.by_placement(),
        )

    def metrics_text(self) -> str:
        """The metrics in Prometheus's form."""
        return prometheus_text(self.metrics(), group=self._config.group, client_id=self._config.client_id)

    def group_part(self) -> GroupPart:
        """The group's part of the statistics. Called on the polling thread, or on the application's loop."""
        isolated = read_committed(self._config.raw)
        return group_part(self._link.plane, self._data, self._offsets, self._metrics, read_committed=isolated)
