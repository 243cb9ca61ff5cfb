"""Everything seen of one group in the last minutes, and the story that it makes.

Evidence may come late: a trace file is read a moment after a look at the broker. It is put in its place and the records
from there on are told again. What is older than `KEPT_MS` is forgotten, as is the oldest beyond `MOST_SEEN`: a teller
that has taken it stands for it.

Pure: `at` is milliseconds since 1970, the wall's; the story's clock starts with the chronicle.
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
"""Pieces of evidence. A handover of one partition leaves about ten: hours of a quiet group, minutes of a storm."""
SAME_MS = 2_000.0
"""A look that tells nothing new is kept once in so long, as a witness that it was still so."""
STRIP_MS = 30_000.0
"""How much of the past a lane's strip shows at once."""
NOTHING = PartitionOffsets()


@dataclass(slots=True)
class Chronicle:
    group: str
    zero_ms: float
    """When the story's clock began: so long before now that everything that is kept lies behind it."""
    seen: list[Evidence] = field(default_factory=list)
    lags: Lags = field(default_factory=Lags)
    version: int = 0
    """Goes up with everything that changes the story."""
    last_ms: float = 0.0
    """The newest moment that anybody told of, on the story's clock."""
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
        # Offsets are in `lags`; a description that is the same as before is kept once.
        kept = (
            before.seen if before is not None and same else replace(look, offsets=dict.fromkeys(look.offsets, NOTHING))
        )
        self._last_look = Look(at, kept)
        self._add([self._last_look])

    def traced(self, records: list[TraceRecord]) -> None:
        """Records of this group. One without the wall's time can't be put beside others, and one of before is over."""
        kept = [
            Traced(record.wall - self.zero_ms, record)
            for record in records
            if record.group == self.group and record.wall is not None and record.wall > self.zero_ms
        ]
        if kept:
            self._add(sorted(kept, key=lambda each: each.at))

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
        """In steps of a tenth, so that the records are not told again with every look."""
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

    @property
    def kind(self) -> str:
        """Whose code runs, as far as is known: members with traces of ours are ours."""
        if self._head.cooperative is False:
            return "eager"
        return "holdfast" if self._head.members_trace else "cooperative"

    def story(self, wall_ms: float | None = None) -> dict[str, Any]:
        """Up to this moment; without one, up to the newest that was told of."""
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
