"""Watched groups in Prometheus's text format.

Offsets and lag have the names that the two usual lag exporters give them (kafka_exporter's with `consumergroup`,
kafka-lag-exporter's with `group`), so that dashboards go on working; what is learnt by watching is under
`holdfast_group_…`. A figure that is not known is left out: a zero would be wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holdfast.model.placement import PLACEMENTS, placement
from holdfast.observe.history import CAUSES, History
from holdfast.observe.snapshot import GroupSnapshot

MOST_CULPRITS = 50
"""How many members of one group are named in labels, the most frequent: pods have new names after each deploy."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Samples by metric, in the order in which metrics were declared."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, str, list[str]]] = {}

    def declare(self, name: str, kind: str, help_text: str) -> None:
        self._metrics.setdefault(name, (kind, help_text, []))

    def add(self, name: str, value: int | float, **labels: Any) -> None:
        told = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
        self._metrics[name][2].append(f"{name}{{{told}}} {_number(value)}" if told else f"{name} {_number(value)}")

    def text(self) -> str:
        lines: list[str] = []
        for name, (kind, help_text, samples) in self._metrics.items():
            if samples:
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"


def exposed(
    histories: Mapping[str, History],
    *,
    failures: Mapping[str, int],
    cluster: str = "",
    unread: Collection[str] = (),
) -> str:
    """All groups. `failures` counts the failed looks at each. For the groups in `unread` the last look failed: figures
    that may have changed since are left out."""
    out = Exposition()
    for name, (kind, help_text) in METRICS.items():
        out.declare(name, kind, help_text)
    ends: dict[tuple[str, int], int] = {}
    for group, history in sorted(histories.items()):
        if history.last is not None:
            _add_watched(out, group, history)
            if group in unread:
                continue
            _add_offsets(out, history.last, cluster)
            _add_state(out, history.last)
            out.add("holdfast_group_rebalancing", int(history.rebalancing), group=group)
            for at, one in history.last.offsets.items():
                if one.end is not None:
                    ends[at.topic, at.partition] = one.end
    for (topic, partition), end in sorted(ends.items()):
        out.add("kafka_topic_partition_current_offset", end, topic=topic, partition=partition)
        out.add("kafka_partition_latest_offset", end, cluster_name=cluster, topic=topic, partition=partition)
    for group, count in sorted(failures.items()):
        out.add("holdfast_group_failed_looks_total", count, group=group)
    return out.text()


METRICS = {
    "kafka_consumergroup_current_offset": ("gauge", "Committed offset of a group in a partition."),
    "kafka_consumergroup_lag": ("gauge", "Records between a group's committed offset and the end of a partition."),
    "kafka_consumergroup_lag_sum": ("gauge", "Lag of a group in all partitions of a topic."),
    "kafka_consumergroup_members": ("gauge", "Members of a group."),
    "kafka_topic_partition_current_offset": ("gauge", "End of a partition."),
    "kafka_consumergroup_group_offset": ("gauge", "Committed offset of a group in a partition, with its owner."),
    "kafka_consumergroup_group_lag": ("gauge", "Lag of a group in a partition, with its owner."),
    "kafka_consumergroup_group_max_lag": ("gauge", "The largest lag of a group's partitions."),
    "kafka_consumergroup_group_sum_lag": ("gauge", "Lag of a group in all partitions."),
    "kafka_partition_latest_offset": ("gauge", "End of a partition."),
    "holdfast_group_state": ("gauge", "1 for the state that a group is in."),
    "holdfast_group_partitions": ("gauge", "Held partitions by whether their owner's rack has a replica."),
    "holdfast_group_unread_partitions": ("gauge", "Partitions whose offsets could not be read."),
    "holdfast_group_rebalancing": ("gauge", "1 while a group rebalances."),
    "holdfast_group_rebalances_total": ("counter", "Rebalances since the group is watched."),
    "holdfast_group_rebalances_by_cause_total": ("counter", "The same by what started them."),
    "holdfast_group_disturbances_total": ("counter", "What members did that started a rebalance, by member."),
    "holdfast_group_moved_partitions_total": ("counter", "Partitions that got another owner."),
    "holdfast_group_rebalancing_seconds_total": ("counter", "Time seen in rebalances."),
    "holdfast_group_watched_seconds_total": ("counter", "Time that the group has been watched for."),
    "holdfast_group_rebalancing_share": ("gauge", "Share of the watched time spent in rebalances."),
    "holdfast_group_last_rebalance_seconds": ("gauge", "How long the last rebalance took that was seen."),
    "holdfast_group_failed_looks_total": ("counter", "Looks at a group that failed."),
}
"""Kind and help of each metric."""


def _add_offsets(out: Exposition, look: GroupSnapshot, cluster: str) -> None:
    group, owners = look.described.group, look.owners
    by_topic: dict[str, int] = {}
    lags = []
    for at, one in look.offsets.items():
        plain = {"consumergroup": group, "topic": at.topic, "partition": at.partition}
        owner = owners.get(at)
        owned = {
            "cluster_name": cluster,
            "group": group,
            "topic": at.topic,
            "partition": at.partition,
            "member_host": "" if owner is None else owner.host,
            "consumer_id": "" if owner is None else owner.member_id,
            "client_id": "" if owner is None else owner.client_id,
        }
        if one.committed is not None:
            out.add("kafka_consumergroup_current_offset", one.committed, **plain)
            out.add("kafka_consumergroup_group_offset", one.committed, **owned)
        if one.lag is not None:
            out.add("kafka_consumergroup_lag", one.lag, **plain)
            out.add("kafka_consumergroup_group_lag", one.lag, **owned)
            by_topic[at.topic] = by_topic.get(at.topic, 0) + one.lag
            lags.append(one.lag)
    for topic, lag in by_topic.items():
        out.add("kafka_consumergroup_lag_sum", lag, consumergroup=group, topic=topic)
    if lags:
        out.add("kafka_consumergroup_group_max_lag", max(lags), cluster_name=cluster, group=group)
        out.add("kafka_consumergroup_group_sum_lag", sum(lags), cluster_name=cluster, group=group)
    out.add("holdfast_group_unread_partitions", sum(1 for one in look.offsets.values() if one.problem), group=group)


def _add_state(out: Exposition, look: GroupSnapshot) -> None:
    group = look.described.group
    out.add("kafka_consumergroup_members", len(look.described.members), consumergroup=group)
    out.add("holdfast_group_state", 1, group=group, state=look.described.state)
    placed = dict.fromkeys(PLACEMENTS, 0)
    for at, owner in look.owners.items():
        placed[placement(owner.rack, look.racks.get(at, frozenset()))] += 1
    for where, count in placed.items():
        out.add("holdfast_group_partitions", count, group=group, placement=where)


def _add_watched(out: Exposition, group: str, history: History) -> None:
    out.add("holdfast_group_rebalances_total", history.total, group=group)
    for cause in CAUSES:
        out.add("holdfast_group_rebalances_by_cause_total", history.causes[cause], group=group, cause=cause)
    for (cause, who), count in _most(history.culprits.items()):
        out.add("holdfast_group_disturbances_total", count, group=group, cause=cause, member=who)
    out.add("holdfast_group_moved_partitions_total", history.moved, group=group)
    out.add("holdfast_group_rebalancing_seconds_total", history.rebalancing_ms / 1000, group=group)
    out.add("holdfast_group_watched_seconds_total", history.watched_ms / 1000, group=group)
    out.add("holdfast_group_rebalancing_share", history.share, group=group)
    seen = [one for one in history.rebalances if one.seen]
    if seen:
        out.add("holdfast_group_last_rebalance_seconds", seen[-1].took_ms / 1000, group=group)


def _most(counted: Iterable[tuple[tuple[str, str], int]]) -> list[tuple[tuple[str, str], int]]:
    return sorted(sorted(counted, key=lambda item: (-item[1], item[0]))[:MOST_CULPRITS])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
