"""A history in words: one line for each event; lanes of one member at one moment share a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model import TraceRecord
from holdfast.model.text import one_line
from holdfast.ui.names import Names

MAX_NAMED = 6
"""Up to so many partitions are named; of more only the number is given."""


@dataclass(frozen=True, slots=True)
class Step:
    """Time, kind (happened, round, lane, member) and text."""

    at: float
    kind: str
    text: str


def steps(records: Sequence[TraceRecord], names: Names) -> list[Step]:
    found: list[Step] = []
    lanes: dict[tuple[str, str, str], list[int]] = {}
    lanes_at = 0.0

    def flush() -> None:
        for (step, member, why), numbers in lanes.items():
            found.append(Step(lanes_at, "lane", _lane_words(step, member, why, numbers)))
        lanes.clear()

    for record in records:
        if record.step in ("lane-opened", "lane-stopped"):
            if record.at != lanes_at:
                flush()
                lanes_at = record.at
            number = record.data.get("partition")
            key = (record.step, record.member, record.cause or "")
            lanes.setdefault(key, []).append(number if isinstance(number, int) else -1)
            continue
        step = _words(record, names)
        if step is not None:
            flush()
            found.append(step)
    flush()
    return found


def _lane_words(step: str, member: str, why: str, numbers: list[int]) -> str:
    named = ", ".join(f"P{number}" for number in sorted(numbers)[:MAX_NAMED])
    what = named if len(numbers) <= MAX_NAMED else f"{len(numbers)} partitions"
    verb = "works on" if step == "lane-opened" else "stops on"
    return one_line(f"{member} {verb} {what}" + (f" ({why})" if why else ""))


def _words(record: TraceRecord, names: Names) -> Step | None:
    step, cause = record.step, record.cause or ""
    member = names.of(record.member)
    if step == "happened":
        return Step(record.at, "happened", one_line(str(record.data.get("what", ""))))
    if record.source == "coordinator":
        if step == "rebalance-started":
            return Step(record.at, "round", one_line(f"a rebalance begins: {cause}"))
        if step == "generation":
            return Step(record.at, "round", f"everybody has joined: generation {record.generation}")
        if step == "stable":
            return Step(record.at, "round", "the plan is out: Stable")
        if step in ("member-expired", "member-expelled"):
            return Step(record.at, "member", one_line(f"{member} is taken out: {cause}"))
        return None
    words = {
        "poll-expired": f"{member} leaves: {cause}",
        "application-hung": f"{member} hangs",
        "application-returned": f"{member} polls again",
        "process-died": f"{member} dies",
        "left-group": f"{member} is out of the group",
        "process-started": f"{member} starts",
        "process-ended": f"{member} has ended",
        "process-frozen": f"{member} is frozen",
        "process-woke": f"{member} wakes",
    }
    return Step(record.at, "member", one_line(words[step])) if step in words else None
