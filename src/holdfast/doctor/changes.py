"""What has changed in a group's findings since it was last examined, one line per change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.doctor import finding as f
from holdfast.doctor.finding import times_text
from holdfast.doctor.words import TITLES
from holdfast.model.text import one_line

Row = Mapping[str, Any]

NEW, WORSE, OVER, HEALTHY, FORGOTTEN = "new", "worse", "over", "healthy", "forgotten"

BEFORE = {f.STORM: f.HANG, f.CRASH_LOOP: f.CRASHES}
"""By kind of finding: the kind it had while it had happened only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    group: str
    change: str
    kind: str = ""
    culprit: str = ""
    times: int = 0
    cost: float = 0.0
    measured: bool = True

    def text(self) -> str:
        group = one_line(self.group)
        if self.change == HEALTHY:
            return f"{group}: healthy again"
        if self.change == FORGOTTEN:
            return f"{group}: no news for a long time; dropped"
        who = f": {one_line(self.culprit)}" if self.culprit else ""
        what = f"{TITLES.get(self.kind, self.kind)}{who}"
        if self.change == OVER:
            return f"{group}: no longer: {what}"
        bound = "" if self.measured else "at most "
        return f"{group}: {self.change}: {what}, {times_text(self.times)}, {bound}{self.cost:.1f} partition-seconds"


def changes_of(group: str, before: Sequence[Row], after: Sequence[Row], *, there: bool) -> Iterator[Change]:
    """`before` and `after` are the group's findings. `there` is false once the group's last events have expired."""
    if not there:
        yield Change(group=group, change=FORGOTTEN)
        return
    if before and not after:
        yield Change(group=group, change=HEALTHY)
        return
    pairs = _paired(before, after)
    for was, now in pairs:
        if now is None:
            assert was is not None
            yield _change(group, OVER, was)
        elif was is None:
            yield _change(group, NEW, now)
        elif now["times"] > was["times"] or now["kind"] != was["kind"] or _culprits(now) > _culprits(was):
            yield _change(group, WORSE, now)


def _culprits(row: Row) -> set[str]:
    """A finding may have several culprits, for example the members that an autoscaler adds and removes."""
    return set(row["culprit"].split(", "))


def _paired(before: Sequence[Row], after: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """Pair findings of the same kind and culprit first, then those that have got worse or share a culprit."""
    old = list(before)
    pairs: list[tuple[Row | None, Row | None]] = []
    new = []
    for row in after:
        was = next((one for one in old if (one["kind"], one["culprit"]) == (row["kind"], row["culprit"])), None)
        if was is None:
            new.append(row)
        else:
            old.remove(was)
            pairs.append((was, row))
    for row in new:
        kinds = {row["kind"], BEFORE.get(row["kind"], row["kind"])}
        was = next((one for one in old if one["kind"] in kinds and _culprits(one) & _culprits(row)), None)
        if was is not None:
            old.remove(was)
        pairs.append((was, row))
    return pairs + [(row, None) for row in old]


def _change(group: str, change: str, row: Row) -> Change:
    return Change(
        group=group, change=change, kind=row["kind"], culprit=row["culprit"], times=row["times"],
        cost=row["cost_partition_seconds"], measured=row["measured"],
    )  # fmt: skip
