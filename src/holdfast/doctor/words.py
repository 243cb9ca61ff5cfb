"""The summary for the terminal, from the job's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.doctor import finding as f
from holdfast.model.text import one_line

Row = Mapping[str, Any]

TITLES = {
    f.CRASH_LOOP: "crash loop faster than the session timeout",
    f.CRASHES: "crashed",
    f.STORM: "rebalance storm",
    f.HANG: "beyond max.poll.interval.ms",
    f.COLLISION: "instance-id collision",
    f.EAGER: "cooperative is not in use",
    f.SLOW_LISTENER: "slow to join rounds",
    f.FLAPPING: "flapping autoscaler",
    f.RESTARTS: "restarts without instance ids",
    f.COMMITS: "commits fail",
    f.SKEW: "uneven plan",
    f.BUSY: "many rebalances",
}

GROUPS_SHOWN, EVIDENCE_SHOWN = 20, 3


def clock(at_ms: float | None) -> str:
    """Time with date: a history may span days."""
    if at_ms is None or at_ms != at_ms:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{int(at_ms % 1000):03d}"
    except (OverflowError, ValueError, OSError):
        return "-"


def size_text(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


def at_most(row: Row, sign: str = "≤") -> str:
    """The sign in front of partition-seconds that are a bound and not measured. Zero needs none."""
    return "" if row["measured"] or not row["partition_seconds"] else sign


def group_rows(groups: Sequence[Row]) -> list[dict[str, Any]]:
    """The table of groups, the costliest first."""
    return [
        {
            "GROUP": one_line(str(row["group"])),
            "PROTOCOL": "consumer" if row["new_protocol"] else one_line(row["protocol"] or "?"),
            "#MEMBERS": row["members"],
            "#PARTITIONS": row["partitions"] or None,
            "REBALANCES": row["rebalances"],
            "TIME-IN-THEM": f"{row['share_rebalancing']:.0%}",
            "PARTITION-SECONDS": f"{at_most(row)}{row['partition_seconds']:.1f}",
            "CAUSES": one_line(", ".join(f"{times} {name}" for name, times in row["causes"].items())) or None,
            "FINDINGS": row["findings"],
        }
        for row in groups[:GROUPS_SHOWN]
    ]


def cost_text(row: Row) -> str:
    """What a finding cost, and what of it its change would save."""
    cost, saves = row["cost_partition_seconds"], row["saves_partition_seconds"]
    bound = "" if row["measured"] or not cost else "at most "
    saved = f", of which the change saves {saves:.1f}" if saves is not None and saves == saves else ""
    return f"{bound}{cost:.1f} partition-seconds{saved}"


def finding_lines(number: int, row: Row) -> Iterator[str]:
    culprit = f": {one_line(row['culprit'])}" if row["culprit"] else ""
    yield f"{number}. {one_line(str(row['group']))}: {TITLES.get(row['kind'], row['kind'])}{culprit}"
    yield f"   {one_line(row['what'])}"
    yield f"   cost: {cost_text(row)}"
    if row["change"]:
        yield f"   change: {one_line(', '.join(f'{key}={value}' for key, value in row['change'].items()))}"
    yield f"   do: {one_line(row['do'])}"
    if row["saves_how"]:
        yield f"   saving: {one_line(row['saves_how'])}"
    for each in row["evidence"][:EVIDENCE_SHOWN]:
        yield f"   {clock(each['at_ms'])}  {one_line(each['what'])}  {one_line(each['where'])}"
    if len(row["evidence"]) > EVIDENCE_SHOWN:
        yield f"   and {len(row['evidence']) - EVIDENCE_SHOWN} more"


def clock_lines(groups: Sequence[Row]) -> list[str]:
    """One line for each file whose clock was corrected."""
    off: dict[str, float] = {}
    for row in groups:
        off.update(row["clocks_off_ms"] or {})
    return [
        f"The clock of {one_line(file)} was off by {ms / 1000:+.1f} s; this was corrected."
        for file, ms in sorted(off.items())[:10]
    ]
