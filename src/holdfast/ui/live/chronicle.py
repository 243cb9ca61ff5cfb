"""Everything seen of one group in the last minutes, and the story made from it.

Evidence may come late: a trace file is read a moment after a look at the broker. It is inserted at its time, and the
records are made again from all evidence. What is older than `KEPT_MS`, and the oldest beyond `MOST_SEEN`, is dropped; a
teller that has taken it in keeps its result.

Pure: wall times are milliseconds since 1970; the story's clock starts with the chronicle.
"""

from __future__ import annotations

import bisect
import copy
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.model import TraceRecord
from holdfast.observe.snapshot import GroupSnapshot, PartitionOffsets
from holdfast.ui.live.lags import Lags
from holdfast.ui.live.telling import Evidence, Look, Teller, Traced
from holdfast.ui.story import Measured, story

KEPT_MS = 600_000.0
MOST_SEEN = 20_000
"""Pieces of evidence kept. A handover of one partition makes about ten, so these are hours of a quiet group, or minutes
of a rebalance storm."""
SAME_MS = 2_000.0
"""How often a look without news is kept, as evidence that nothing had changed."""
SET_BACK_MS = 1_000.0
"""By how much the clock of this machine may be corrected without a word."""
STRIP_MS = 30_000.0
"""How much of the past a lane shows at once."""
NOTHING = PartitionOffsets()


@dataclass(slots=True)
class Chronicle:
    group: str
    zero_ms: float
    """The wall time at which the story's clock is zero: earlier than everything that is kept."""
    seen: list[Evidence] = field(default_factory=list)
    lags: Lags = field(default_factory=Lags)
    version: int = 0
    """Goes up with every change of the story."""
    last_ms: float = 0.0
    """The time of the newest evidence, on the story's clock."""
    begin_ms: float | None = None
    _base: Teller = field(default_factory=Teller)
    _head: Teller = field(default_factory=Teller)
    _records: list[TraceRecord] = field(default_factory=list)
    _last_look: Look | None = None

    @classmethod
    def begun(cls, group: str, wall_ms: float) -> Chronicle:
        return cls(group, wall_ms - KEPT_MS)

    def looked(self, look: GroupSnapshot, wall_ms: float) -> None:
        at = wall_ms - self.zero_ms
        self.lags.looked(at, look.offsets)
        self.last_ms = max(self.last_ms, at)
        self.version += 1  # lag is part of the story
        before = self._last_look
        same = before is not None and before.seen.described == look.described
        same = same and before is not None and before.seen.offsets.keys() == look.offsets.keys()
        if before is not None and same and at - before.at < SAME_MS:
            return
        # Offsets are in `lags`; an unchanged description is kept only once.
        kept = (
            before.seen if before is not None and same else replace(look, offsets=dict.fromkeys(look.offsets, NOTHING))
        )
        self._last_look = Look(at, kept)
        self._add([self._last_look])

    def traced(self, records: list[TraceRecord], read_ms: float = float("inf")) -> None:
        """Add this group's records. Those without a wall time can't be ordered, and old ones are not shown.

        Nothing happens later than it is read, at `read_ms`: one host's clock that is an hour ahead must not make
        everything else an hour old.
        """
        kept = [
            Traced(min(record.wall, read_ms) - self.zero_ms, record)
            for record in records
            if record.group == self.group and record.wall is not None and record.wall > self.zero_ms
        ]
        if kept:
            self._add(sorted(kept, key=lambda each: each.at))  # stable: of one moment, as they were written

    def _add(self, new: list[Any]) -> None:
        self.version += 1
        self.last_ms = max(self.last_ms, new[-1].at)
        in_order = not self.seen or new[0].at >= self.seen[-1].at
        if in_order:
            self.seen += new
            for each in new:
                self._records += self._head.take(each)
        else:
            for each in new:
                bisect.insort(self.seen, each, key=lambda one: one.at)
            self._tell_again()
        if self.begin_ms is None or self.seen[0].at < self.begin_ms:
            self.begin_ms = self.seen[0].at
        self._forget()

    def _tell_again(self) -> None:
        self._head = copy.deepcopy(self._base)
        self._records = self._head.now.opening(self.begin_ms or 0.0)
        for each in self.seen:
            self._records += self._head.take(each)

    def _forget(self) -> None:
        """Drop old evidence, in steps of a tenth, so that the records are not made again with every look."""
        oldest = self.last_ms - KEPT_MS
        over = len(self.seen) - MOST_SEEN
        if self.seen[0].at >= oldest - KEPT_MS / 10 and over <= MOST_SEEN // 10:
            return
        cut = max(bisect.bisect_left(self.seen, oldest, key=lambda one: one.at), over)
        for each in self.seen[:cut]:
            self._base.take(each)
        del self.seen[:cut]
        self.begin_ms = self.seen[0].at if self.seen else oldest
        self.lags.forget(self.begin_ms)
        self._tell_again()

    def is_past(self, wall_ms: float) -> bool:
        """Whether this time is before the newest evidence by more than an answer takes: the clock was set back."""
        return wall_ms - self.zero_ms < self.last_ms - SET_BACK_MS

    @property
    def kind(self) -> str:
        """The kind of group, as far as is known. Members that write our traces are holdfast's."""
        if self._head.cooperative is False:
            return "eager"
        return "holdfast" if self._head.members_trace else "cooperative"

    def story(self, wall_ms: float | None = None) -> dict[str, Any]:
        """The story up to this time; without one, up to the newest evidence."""
        end = max(self.last_ms, 0.0 if wall_ms is None else wall_ms - self.zero_ms)
        head = self._head
        witnesses = [
            *(["the members' traces"] if head.members_trace else []),
            *(["the coordinator's trace"] if head.told_ms > 0 else []),
            "looks at the group",
        ]
        measured = Measured(
            begin_ms=self.begin_ms or 0.0,
            wall_ms=self.zero_ms,
            strip_ms=STRIP_MS,
            protocol=head.protocol,
            at_least=head.told_ms < 0,
            lags=self.lags.points,
            per_s=self.lags.per_s(),
            witnesses=tuple(witnesses),
        )
        return story(self._records, end, self.kind, measured=measured)
