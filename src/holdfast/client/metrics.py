"""A consumer's metrics under their Java names, counted from its trace records: one truth for both.

KIP-429's rebalance and callback metrics, and what belongs with them. Averages and maxima are over the consumer's life,
as the Java client's are over its window; rates are per hour of it. `prometheus_text` writes them the way Prometheus
scrapes, under the names that JMX exporters give Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import TraceRecord

NOT_YET = -1.0
"""What Java shows for "seconds ago" before the first time."""


@dataclass(slots=True)
class Timing:
    """How often something happened, and how long it took in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    began_at: float | None = field(default=None, repr=False)

    def add(self, took_ms: float) -> None:
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)

    def begin(self, at: float) -> None:
        if self.began_at is None:
            self.began_at = at

    def end(self, at: float) -> None:
        if self.began_at is not None:
            self.add(at - self.began_at)
            self.began_at = None

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0


class GroupMetrics:
    """Counts what the trace tells."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._rebalance, self._join, self._sync = Timing(), Timing(), Timing()
        self._callbacks = {"assigned": Timing(), "revoked": Timing(), "lost": Timing()}
        self._failed = 0
        self._last_rebalance: float | None = None

    def observe(self, record: TraceRecord) -> None:
        at = record.at
        match record.step:
            case "rejoin":
                self._rebalance.begin(at)
            case "join-sent":
                self._join.began_at = at
            case "joined":
                self._join.end(at)
            case "sync-sent":
                self._sync.began_at = at
            case "synced":
                self._sync.end(at)
            case "stable":
                self._rebalance.end(at)
                self._last_rebalance = at
            case "membership-lost" | "failed" | "join-retry":
                if self._rebalance.began_at is not None:
                    self._failed += 1
                    self._rebalance.began_at = None
            case "callback-assigned" | "callback-revoked" | "callback-lost":
                took = record.data.get("took_ms")
                self._callbacks[record.step.removeprefix("callback-")].add(took if isinstance(took, float) else 0.0)

    def snapshot(self, now: float, *, assigned: int, heard_at: float, lag_max: int | None) -> dict[str, float]:
        """Every metric by its Java name."""
        hours = max(now - self._since, 1.0) / 3_600_000.0
        found: dict[str, float] = {
            "assigned-partitions": float(assigned),
            "failed-rebalance-rate-per-hour": self._failed / hours,
            "failed-rebalance-total": float(self._failed),
            "last-heartbeat-seconds-ago": _seconds_ago(now, heard_at or None),
            "last-rebalance-seconds-ago": _seconds_ago(now, self._last_rebalance),
            "rebalance-latency-total": self._rebalance.total_ms,
            "rebalance-rate-per-hour": self._rebalance.count / hours,
            "rebalance-total": float(self._rebalance.count),
            "join-total": float(self._join.count),
            "sync-total": float(self._sync.count),
        }
        timings = {"rebalance-latency": self._rebalance, "join-time": self._join, "sync-time": self._sync}
        timings |= {f"partitions-{name}-latency": timing for name, timing in self._callbacks.items()}
        for name, timing in timings.items():
            found[f"{name}-avg"] = timing.average_ms
            found[f"{name}-max"] = timing.max_ms
        if lag_max is not None:
            found["records-lag-max"] = float(lag_max)
        return dict(sorted(found.items()))


def _seconds_ago(now: float, then: float | None) -> float:
    return NOT_YET if then is None else max(0.0, (now - then) / 1_000.0)


def prometheus_text(metrics: Mapping[str, float], *, group: str, client_id: str) -> str:
    """The metrics in Prometheus's text form."""
    labels = f'client_id="{_escaped(client_id)}",group="{_escaped(group)}"'
    lines = []
    for name, value in sorted(metrics.items()):
        full = f"kafka_consumer_coordinator_{name.replace('-', '_')}"
        kind = "counter" if name.endswith("-total") else "gauge"
        lines += [f"# TYPE {full} {kind}", f"{full}{{{labels}}} {value:g}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
