"""What the logs of a group's members prove about the group as a whole, once the run is over.

`groupcheck` finds facts; here they are judged. Rules, by how a member's hold on a partition ended:

- A clean handover (revoked, closed, drained) excuses nothing: no record twice, no two owners at a time.
- A member that was *killed* could not commit: what it processed in its last stint may be processed again. If its
  watchdog *spoke for it*, that committed in its name: only the batch in work, the last one in its log, may come again.
- A member that *lost* its partitions (it hung, it was frozen) could not commit either, and did not know that it owned
  nothing any more; but it must not process anything more of them.
- A *zombie* is a foreign client that was frozen and, on waking, processes what it had fetched before it learns that it
  is out. What it does then is not held against the group.
- A batch that a member was working on when it froze (#held) is processed when it wakes; no client can take it back.
- A *foreign* client that logs a refused commit (kafka-python's, closed between two generations) may leave what it
  processed before that to the next owner. Ours has no such excuse.
- Nothing excuses a lost record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.testing.groupcheck import Doubled, Overlap, Stint, doubled, lost, overlapping_stints, overlaps, stints
from holdfast.testing.members.log import MemberLog

SHOWN = 10
"""Faults of one kind that a message lists: the first few tell the story, thousands hide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Faults, each of which no rule excuses; and how much was excused, so that a test can say what it saw."""

    lost: Mapping[int, Sequence[int]]
    doubled: Sequence[Doubled]
    overlaps: Sequence[Overlap]
    double_owners: Sequence[Overlap]
    excused: int
    """Records processed twice after a kill, a loss or a refused commit."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.overlaps or self.double_owners)

    def __str__(self) -> str:
        """For the message of a failed assertion."""
        lines = [f"lost {self.lost}"] if self.lost else []
        for name, found in (
            ("doubled", self.doubled),
            ("overlap", self.overlaps),
            ("double owner", self.double_owners),
        ):
            lines += [f"{name} {each}" for each in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"… and {len(found) - SHOWN} more of {name}")
        return "\n".join(lines) or f"clean, {self.excused} excused"


def judge(
    acknowledged: Mapping[int, Iterable[int]],
    logs: Sequence[MemberLog],
    *,
    killed: Collection[str] = (),
    spoken_for: Collection[str] = (),
    zombies: Collection[str] = (),
    foreign: Collection[str] = (),
) -> Verdict:
    """Judge the whole run. Nobody committed for members in `killed`, except for those in `spoken_for`."""
    everything = logs
    logs = [log.without({event.time_ms for event in log.named("held")}) for log in everything]
    held = {log.name: stints(log) for log in logs}
    in_hand = {log.name: max((record.time_ms for record in log.records), default=0.0) for log in logs}

    refused = {log.name: [event.time_ms for event in log.named("commit-failed")] for log in logs if log.name in foreign}

    def may_come_again(member: str, partition: int, time_ms: float, next_ms: float) -> bool:
        if member in spoken_for and time_ms == in_hand[member]:
            return True
        if any(time_ms <= refused_ms <= next_ms for refused_ms in refused.get(member, ())):
            return True
        left_behind = member in killed and member not in spoken_for
        return any(
            stint.lost or (left_behind and stint.ended_ms == float("inf"))
            for stint in held[member]
            if stint.partition == partition and stint.assigned_ms <= time_ms <= stint.ended_ms
        )

    def excused(record: Doubled) -> bool:
        """All but the last of those who processed it must have had a reason to leave it to the next."""
        by_others = [(time_ms, member) for time_ms, member in record.times if member not in zombies]
        return all(
            may_come_again(member, record.partition, time_ms, next_ms)
            for (time_ms, member), (next_ms, _) in pairwise(by_others)
        )

    found = doubled(logs)
    faults = [record for record in found if not excused(record)]
    aware = [
        stint
        for name, each in held.items()
        if name not in {*killed, *spoken_for, *zombies}
        for stint in each
        if not stint.lost
    ]
    return Verdict(
        lost=lost(acknowledged, everything),
        doubled=faults,
        overlaps=[each for each in overlaps(logs) if not _involves(each, zombies)],
        double_owners=overlapping_stints(aware),
        excused=len(found) - len(faults),
    )


def _involves(overlap: Overlap, members: Collection[str]) -> bool:
    both: tuple[Stint, Stint] = (overlap.first, overlap.second)
    return any(stint.member in members for stint in both)
