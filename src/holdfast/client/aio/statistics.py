"""stats_cb for a consumer without librdkafka: the same JSON, as far as we have the figures.

Brokers and fetching are filled in here, the group's part by `statistics`, as for every consumer. What is not known has
librdkafka's value for that (-1, or -1001 for an offset). Counters of things that don't exist here are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.telemetry.statistics import INVALID, fill_in
from holdfast.net.flows import Flow

if TYPE_CHECKING:
    from holdfast.client.aio.core import Core
    from holdfast.client.telemetry.connections import Health

_NUMBERS = count(1)
NEVER_S = float("inf")


class Statistics:
    """One consumer's statistics, produced when they are due."""

    def __init__(self, core: Core, config: ConsumerConfig, health: Health, callback: Callable[..., Any] | None) -> None:
        self._core = core
        self._config = config
        self._health = health
        self._name = f"{config.client_id}#consumer-{next(_NUMBERS)}"
        self._began = time.monotonic()
        self._callback = callback
        self._interval_s = int(config.raw.get("statistics.interval.ms") or 0) / 1_000.0
        wanted = self._callback is not None and self._interval_s > 0
        self._next_at = self._began + self._interval_s if wanted else NEVER_S

    def due_in_s(self) -> float:
        return self._next_at - time.monotonic()

    def tell_if_due(self, news: Callable[..., None]) -> None:
        """Queue the callback with `news`, if it is time."""
        now = time.monotonic()
        if now >= self._next_at and self._callback is not None:
            self._next_at = max(self._next_at + self._interval_s, now)
            news(self._callback, json.dumps(self.figures()))

    def figures(self) -> dict[str, Any]:
        now = time.monotonic()
        topics = self._topics()
        parts = [part for topic in topics.values() for part in topic["partitions"].values()]
        found = {
            "name": self._name,
            "client_id": self._config.client_id,
            "type": "consumer",
            "ts": int(now * 1_000_000),
            "time": int(time.time()),
            "age": int((now - self._began) * 1_000_000),
            "replyq": len(self._core.to_call),
            "metadata_cache_cnt": len(self._core.reader.info.topics),
            "brokers": self._brokers(),
            "topics": topics,
            "cgrp": {"state": "up" if self._core.joined() else "init", "stateage": int((now - self._began) * 1_000)},
            "rxmsgs": sum(part["rxmsgs"] for part in parts),
            "rxmsg_bytes": sum(part["rxbytes"] for part in parts),
        }
        fill_in(found, self._core.about.group_part())
        return found

    def _brokers(self) -> dict[str, Any]:
        found = {}
        for node, broker in sorted(self._core.reader.info.brokers.items()):
            where = f"{broker.host}:{broker.port}"
            down = (broker.host, broker.port) in self._health.down
            found[f"{where}/{node}"] = {
                "name": f"{where}/{node}",
                "nodeid": node,
                "nodename": where,
                "source": "learned",
                "state": "DOWN" if down else "UP",
            }
        return found

    def _topics(self) -> dict[str, Any]:
        info = self._core.reader.info
        topics: dict[str, Any] = {}
        for flow in self._core.reader.flows():
            where = flow.partition
            leader = info.leader_of(where)
            topic = topics.setdefault(where.topic, {"topic": where.topic, "partitions": {}})
            topic["partitions"][str(where.partition)] = self._partition(flow, -1 if leader is None else leader.node_id)
        return topics

    def _partition(self, flow: Flow, leader: int) -> dict[str, Any]:
        return {
            "partition": flow.partition.partition,
            "broker": leader if flow.follower is None else flow.follower,
            "leader": leader,
            "desired": True,
            "unknown": flow.track.unknown_since is not None,
            "fetchq_cnt": sum(answer.rows for answer in flow.answers),
            "fetchq_size": flow.queued_bytes,
            "fetch_state": "stopped" if flow.stopped else "offset-query" if flow.at < 0 else "active",
            "next_offset": flow.at,
            "eof_offset": _known(flow.ended_at),
            "lo_offset": _known(flow.log_start),
            "hi_offset": _known(flow.high_watermark),
            "ls_offset": _known(flow.last_stable),
            "leader_epoch": flow.epoch,
            "rxmsgs": flow.rows,
            "rxbytes": flow.received_bytes,
            "msgs": flow.rows,
        }


def _known(offset: int) -> int:
    return offset if offset >= 0 else INVALID
