"""`stats_cb`: librdkafka's statistics, with the group's part filled in.

librdkafka only fetches and takes no part in the group. Its own statistics would show that it never joined, that nothing
is committed and that the lag is unknown, and existing dashboards would be empty. What it does know (brokers, queues,
fetches) is left as it is. Names and meanings are those of its STATISTICS.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.group.member import Phase
from holdfast.model import TopicPartition

JOIN_STATES = {
    Phase.UNSUBSCRIBED: "init",
    Phase.PREPARING: "wait-unassign-call",
    Phase.JOINING: "wait-join",
    Phase.PLANNING: "wait-metadata",
    Phase.SYNCING: "wait-sync",
    Phase.APPLYING: "wait-assign-call",
    Phase.STABLE: "steady",
    Phase.EVICTED: "init",
    Phase.LEAVING: "wait-unassign-to-complete",
    Phase.FAILED: "init",
    Phase.CLOSED: "init",
}
"""librdkafka's join_state for each of our phases."""

INVALID = -1001
NO_LAG = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The offsets of one partition; None where not known."""

    app: int | None = None
    stored: int | None = None
    committed: int | None = None
    low: int | None = None
    high: int | None = None
    """The watermarks that the reader has seen; None if the statistics have them already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """What librdkafka does not know: the group's part."""

    phase: Phase = Phase.UNSUBSCRIBED
    rebalances: int = 0
    rebalance_age_s: float = 0.0
    reason: str = ""
    partitions: Mapping[TopicPartition, Standing] = field(default_factory=dict)
    read_committed: bool = True


class WithGroupPart:
    """Replaces the application's stats_cb in librdkafka's configuration, and calls it with the completed JSON."""

    __slots__ = ("_callback", "_group")

    def __init__(self, callback: Callable[[str], Any], group: Callable[[], GroupPart]) -> None:
        self._callback = callback
        self._group = group

    def __call__(self, text: str) -> Any:
        stats = json.loads(text)
        fill_in(stats, self._group())
        return self._callback(json.dumps(stats))


def fill_in(stats: dict[str, Any], group: GroupPart) -> None:
    cgrp = stats.setdefault("cgrp", {"state": "init", "stateage": 0})
    cgrp["join_state"] = JOIN_STATES[group.phase]
    cgrp["rebalance_age"] = int(max(0.0, group.rebalance_age_s) * 1_000)
    cgrp["rebalance_cnt"] = group.rebalances
    cgrp["rebalance_reason"] = group.reason
    cgrp["assignment_size"] = len(group.partitions)
    topics = stats.setdefault("topics", {})
    for partition, standing in group.partitions.items():
        topic = topics.setdefault(partition.topic, {"topic": partition.topic, "partitions": {}})
        shown = topic["partitions"].setdefault(str(partition.partition), {"partition": partition.partition})
        _fill_in(shown, standing, read_committed=group.read_committed)


def _fill_in(shown: dict[str, Any], standing: Standing, *, read_committed: bool) -> None:
    known = {
        "app_offset": standing.app,
        "stored_offset": standing.stored,
        "committed_offset": standing.committed,
        "commited_offset": standing.committed,  # librdkafka keeps its misspelt name as well
        "lo_offset": standing.low,
        "hi_offset": standing.high,
        "ls_offset": standing.high,
    }
    for name, value in known.items():
        if value is not None:
            shown[name] = value
        else:
            shown.setdefault(name, INVALID)
    end = shown["ls_offset" if read_committed else "hi_offset"]
    shown["consumer_lag"] = _lag(end, standing.committed)
    shown["consumer_lag_stored"] = _lag(end, standing.stored)


def _lag(end: int, at: int | None) -> int:
    return end - at if at is not None and 0 <= at <= end else NO_LAG
