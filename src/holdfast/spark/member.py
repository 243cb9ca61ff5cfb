"""The query's membership: joins at the first question, releases partitions only between batches.

Joining and heartbeating never wait for a batch; only releasing does. A partition that is being revoked is left out of
the next batch; its offsets are committed with the generation as soon as the running batch is known to be done, and
only then is the listener's call answered and the partition given up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from holdfast.client import config as cfg
from holdfast.client.control import ControlPlane, now_ms
from holdfast.client.tracing import open_trace
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, LATEST, Admin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import SourceOptions

JOIN_LIMIT_S = 120.0
COMMIT_LIMIT_S = 30.0
LOOK_EVERY_S = 0.02
"""How often the ends of owned partitions are asked for while idle: Spark itself asks every 12 ms."""


class QueryMember:
    """One streaming query in its group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._asked_at = now_ms()
        # Spark's Python worker is forked and signalled by the JVM: a watchdog comes with `holdfast pipeline run`.
        raw = {**options.kafka, "enable.auto.commit": False, "holdfast.watchdog": False}
        raw.pop("isolation.level", None)
        self._config = cfg.parse(raw)
        self._trace = open_trace(self._config, self._asked_at)
        self._plane = ControlPlane(self._config, trace=self._trace.write, last_poll=lambda: self._asked_at)
        self._positions: dict[TopicPartition, int | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._looked_at = 0.0
        self._uncommitted: BatchOffset | None = None
        self._admin: Admin | None = None
        self._plane.start()
        self._plane.subscribe(list(options.topics))

    # -- between batches

    def batch_done(self, done: BatchOffset) -> None:
        """Spark has finished this batch: its offsets go to the group."""
        self._asked_at = now_ms()
        if self._uncommitted is None or done.number != self._uncommitted.number:
            return
        self._uncommitted = None
        ours = {p: end for p, (_, end) in done.ranges.items() if p in self._plane.state.owned}
        if not ours:
            return
        entries = {p: OffsetEntry(end) for p, end in sorted(ours.items())}
        deadline = time.monotonic() + COMMIT_LIMIT_S
        while time.monotonic() < deadline:
            try:
                self._plane.call(self._plane.commit(entries), COMMIT_LIMIT_S)
            except HoldfastError as error:
                if error.code != "REBALANCE_IN_PROGRESS":
                    return  # fenced or lost: whoever owns it now starts from what is committed
                time.sleep(0.01)
            else:
                return

    def serve(self) -> None:
        """Answer what the group wants. Called between batches only."""
        self._asked_at = now_ms()
        plane = self._plane
        if plane.failure is not None:
            raise plane.failure
        while plane.calls and plane.calls[0].ready:
            pending = plane.calls.popleft()
            match pending.call:
                case mb.Revoked(partitions) | mb.Lost(partitions):
                    for partition in partitions:
                        self._positions.pop(partition, None)
                        self._ends.pop(partition, None)
                case mb.Assigned(partitions):
                    self._positions.update({p: pending.offsets.get(p) for p in partitions})
            if pending.last:
                plane.feed(mb.Notified(pending.serial))
        if plane.state.phase is mb.Phase.EVICTED:
            plane.feed(mb.Polled())

    def wait_joined(self) -> None:
        """Until the first assignment is there."""
        deadline = time.monotonic() + JOIN_LIMIT_S
        while self._plane.state.phase is not mb.Phase.STABLE:
            self.serve()
            if time.monotonic() > deadline:
                raise HoldfastError(
                    "JOIN_TIMED_OUT",
                    f"the query did not become a member of {self._options.group} within {JOIN_LIMIT_S:.0f} s.",
                    "Look at the group with `kafka-consumer-groups.sh --describe --state`.",
                )
            time.sleep(0.002)

    # -- planning

    def plan(self, after: BatchOffset, limit: int | None) -> BatchOffset:
        """The next batch over what is owned now, or `after` itself when there is nothing new."""
        self._look_up_positions()
        self._look_up_ends()
        available = {
            p: (start, max(start, self._ends.get(p, start)))
            for p, start in sorted(self._positions.items())
            if start is not None
        }
        ranges = share(available, limit)
        if not ranges:
            return after
        for partition, (_, end) in ranges.items():
            self._positions[partition] = end
        planned = BatchOffset(
            number=after.number + 1, generation=self._plane.state.membership.generation, ranges=ranges
        )
        self._uncommitted = planned
        return planned

    def still_ours(self, replayed: BatchOffset) -> BatchOffset:
        """Of a batch replayed after a restart: the ranges we own that start where the group stands."""
        self.wait_joined()
        kept = {p: r for p, r in replayed.ranges.items() if self._positions.get(p) == r[0]}
        for partition, (_, end) in kept.items():
            self._positions[partition] = end
        ours = BatchOffset(number=replayed.number, generation=replayed.generation, ranges=kept)
        self._uncommitted = ours
        return ours

    def _look_up_positions(self) -> None:
        """Partitions without a committed offset start where the options say."""
        unknown = sorted(p for p, start in self._positions.items() if start is None)
        if unknown:
            at = EARLIEST if self._options.starting == "earliest" else LATEST
            found = self._plane.call(self._list(dict.fromkeys(unknown, at)), COMMIT_LIMIT_S)
            self._positions.update(found)

    def _look_up_ends(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        owned = sorted(self._positions)
        if owned:
            self._ends.update(self._plane.call(self._list(dict.fromkeys(owned, LATEST)), COMMIT_LIMIT_S))

    async def _list(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._admin is None:
            self._admin = Admin(Cluster(client_config(self._config.raw)))
        found = await self._admin.list_offsets(wanted, read_committed=self._options.read_committed)
        return {p: at.offset for p, at in found.items()}

    # -- the end

    def leave(self) -> None:
        """Quickly: the JVM does not wait for us."""
        plane = self._plane
        with contextlib.suppress(Exception):
            plane.feed(mb.Close("the query was stopped"))
            deadline = time.monotonic() + 2.0
            while not plane.closed() and time.monotonic() < deadline:
                self.serve()
                time.sleep(0.001)


def share(
    available: Mapping[TopicPartition, tuple[int, int]], limit: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """What each partition gives to a batch of at most so many records: in proportion, at least one each."""
    waiting = {p: (start, end) for p, (start, end) in available.items() if end > start}
    total = sum(end - start for start, end in waiting.values())
    if limit is None or total <= limit:
        return waiting
    return {p: (start, min(end, start + max(1, (end - start) * limit // total))) for p, (start, end) in waiting.items()}
