"""The group's part of a consumer's statistics, gathered from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.clock import now_ms
from holdfast.client.telemetry.statistics import GroupPart, Standing
from holdfast.group.member import Phase

if TYPE_CHECKING:
    from holdfast.client.member.commits import Offsets
    from holdfast.client.member.control import ControlPlane
    from holdfast.client.reading.data_plane import DataPlane
    from holdfast.client.telemetry.metrics import GroupMetrics


def group_part(
    plane: ControlPlane | None, data: DataPlane, offsets: Offsets, metrics: GroupMetrics, *, read_committed: bool
) -> GroupPart:
    known = plane.offsets.known_committed if plane is not None else {}
    reached = {p: entry.offset for p, entry in data.positions(data.assigned).items()}
    stored = {p: entry.offset for p, entry in offsets.committable(data.assigned).items()}
    standings = {}
    for p in sorted(data.assigned):
        low, high = (data.watermarks(p) or (None, None)) if data.arrow is not None else (None, None)
        standings[p] = Standing(app=reached.get(p), stored=stored.get(p), committed=known.get(p), low=low, high=high)
    return GroupPart(
        phase=plane.state.phase if plane is not None else Phase.UNSUBSCRIBED,
        rebalances=metrics.rebalances,
        rebalance_age_s=metrics.last_rebalance_s(now_ms()),
        reason=plane.state.round.reason if plane is not None else "",
        partitions=standings,
        read_committed=read_committed,
    )
