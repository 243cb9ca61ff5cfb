"""A consumer's metrics under their Java names and with their Java meaning, counted from its trace records.

As in Java, a rebalance is a join and a sync that succeeded, so a cooperative handover counts as two. One that had to
start again counts as failed. That includes a new member's first join, which is answered with an id, as in Java.
Averages, maxima and rates cover the last 30 to 60 seconds (`windows`); names that end in -total count since the start.
`prometheus_text` writes them in Prometheus's format, under the names that JMX exporters give Kafka's metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from holdfast.client.telemetry.windows import Window
from holdfast.model import TraceRecord

NOT_YET = -1.0
"""Java's value of "seconds ago" before the first time."""

FETCH_METRICS = frozenset({"records-lag-max"})
"""Metrics of Java's fetch manager; the others belong to its coordinator."""


FETCHED = "fetched-bytes-"
"""Ours, not Java's: followed by the placement. In Prometheus's format one metric with the placement as its label."""

EMPTY: Mapping[str, int] = {}


class GroupMetrics:
    """Counts trace records. They come from the threads that write the trace; who scrapes asks on another one, and
    asking drops samples that are over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rebalance, self._failed, self._join, self._sync = Window(), Window(), Window(), Window()
        self._callbacks = {"assigned": Window(), "revoked": Window(), "lost": Window()}
        self._began_at: float | None = None
        self._join_sent_at = self._sync_sent_at = 0.0
        self._last_rebalance: float | None = None

    @property
    def rebalances(self) -> int:
        return self._rebalance.count

    def last_rebalance_s(self, now: float) -> float:
        """How long ago the last rebalance ended; -1 before the first."""
        return _seconds_ago(now, self._last_rebalance)

    def observe(self, record: TraceRecord) -> None:
        with self._lock:
            self._observe(record)

    def _observe(self, record: TraceRecord) -> None:
        at = record.at
        match record.step:
            case "join-sent":
                if self._began_at is None:
                    self._began_at = at
                else:  # the one before did not complete
                    self._failed.add(1.0, at)
                self._join_sent_at = at
            case "joined":
                self._join.add(at - self._join_sent_at, at)
            case "sync-sent":
                self._sync_sent_at = at
            case "synced":
                self._sync.add(at - self._sync_sent_at, at)
                self._rebalance.add(at - (at if self._began_at is None else self._began_at), at)
                self._began_at, self._last_rebalance = None, at
            case "callback-assigned" | "callback-revoked" | "callback-lost":
                # Java measures the listener alone, without the commits and the fetching around it.
                took = record.data.get("listener_ms", record.data.get("took_ms"))
                self._callbacks[record.step.removeprefix("callback-")].add(took if isinstance(took, float) else 0.0, at)

    def snapshot(
        self,
        now: float,
        *,
        assigned: int,
        heartbeat_at: float,
        lag_max: int | None,
        fetched: Mapping[str, int] = EMPTY,
    ) -> dict[str, float]:
        """Every metric by its Java name. `fetched` are bytes by placement, which Java does not count."""
        with self._lock:
            found = self._group_figures(now)
        found["assigned-partitions"] = float(assigned)
        found["last-heartbeat-seconds-ago"] = _seconds_ago(now, heartbeat_at or None)
        if lag_max is not None:
            found["records-lag-max"] = float(lag_max)
        found |= {f"{FETCHED}{where}-total": float(size) for where, size in fetched.items()}
        return dict(sorted(found.items()))

    def _group_figures(self, now: float) -> dict[str, float]:
        found: dict[str, float] = {
            "failed-rebalance-rate-per-hour": self._failed.per_hour(now),
            "failed-rebalance-total": float(self._failed.count),
            "last-rebalance-seconds-ago": self.last_rebalance_s(now),
            "rebalance-latency-total": self._rebalance.total,
            "rebalance-rate-per-hour": self._rebalance.per_hour(now),
            "rebalance-total": float(self._rebalance.count),
            "join-total": float(self._join.count),
            "sync-total": float(self._sync.count),
        }
        timings = {"rebalance-latency": self._rebalance, "join-time": self._join, "sync-time": self._sync}
        timings |= {f"partition-{name}-latency": window for name, window in self._callbacks.items()}
        for name, window in timings.items():
            found[f"{name}-avg"] = window.average(now)
            found[f"{name}-max"] = window.highest(now)
        return found


def _seconds_ago(now: float, then: float | None) -> float:
    return NOT_YET if then is None else max(0.0, (now - then) / 1_000.0)


def prometheus_text(metrics: Mapping[str, float], *, group: str, client_id: str) -> str:
    """The metrics in Prometheus's text form."""
    lines: list[str] = []
    told = ""
    for name, value in sorted(metrics.items()):
        full, labels = _named(name, group=group, client_id=client_id)
        if full != told:
            lines.append(f"# TYPE {full} {'counter' if name.endswith('-total') else 'gauge'}")
            told = full
        lines.append(f"{full}{{{labels}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _named(name: str, *, group: str, client_id: str) -> tuple[str, str]:
    """A metric's name and labels in Prometheus's form."""
    client, whole = f'client_id="{_escaped(client_id)}"', f'client_id="{_escaped(client_id)}",group="{_escaped(group)}"'
    if name.startswith(FETCHED):
        where = name.removeprefix(FETCHED).removesuffix("-total")
        return "holdfast_consumer_fetched_bytes_total", f'{whole},placement="{where}"'
    plain = name.replace("-", "_")
    if name in FETCH_METRICS:
        return f"kafka_consumer_fetch_manager_{plain}", client
    return f"kafka_consumer_coordinator_{plain}", whole


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if value != value else f"{value:.15g}"
