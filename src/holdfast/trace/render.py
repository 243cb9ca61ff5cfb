"""A trace record as one line for people, in fixed columns: the legend is in docs/trace.md.

       seconds  source       member            gen  step              what
        12.345  member       c0-1                3  synced            assigned=orders[0-2] added=- · because …

Rules. Columns stay where they are: what does not fit is cut with "…". Data is `key=value` with sorted keys; partitions
are `topic[0-3,7]`. Nothing is added that the record does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.model import TraceRecord, Value
from holdfast.model.text import one_line

MAX_VALUE_CHARS = 120
"""The longest text of one value: a longer list of partitions on one line helps nobody."""

SOURCE_WIDTH, MEMBER_WIDTH, STEP_WIDTH = 11, 16, 18

HEADER = (
    f"{'seconds':>12}  {'source':<{SOURCE_WIDTH}}  {'member':<{MEMBER_WIDTH}}  {'gen':>4}  {'step':<{STEP_WIDTH}}  what"
)


def render(record: TraceRecord) -> str:
    """One line, without its line feed."""
    generation = "" if record.generation is None or record.generation < 0 else str(record.generation)
    columns = (
        f"{record.at / 1000.0:12.3f}",
        f"{cut(record.source, SOURCE_WIDTH):<{SOURCE_WIDTH}}",
        f"{cut_middle(record.member, MEMBER_WIDTH):<{MEMBER_WIDTH}}",
        f"{generation:>4}",
        f"{cut(record.step, STEP_WIDTH):<{STEP_WIDTH}}",
        what(record),
    )
    return one_line("  ".join(columns).rstrip())


def what(record: TraceRecord) -> str:
    """The last column: data, then the cause and the culprit."""
    words = [f"{key}={value_text(value)}" for key, value in sorted(record.data.items())]
    if record.cause:
        words += (["·"] if words else []) + ["because", record.cause]
    if record.culprit and record.culprit != record.member:
        words.append(f"(by {record.culprit})")
    return " ".join(words)


def value_text(value: Value) -> str:
    if isinstance(value, dict):
        grouped = _as_partitions(value)
        text = _map_text(value) if grouped is None else partitions_text(grouped)
    elif isinstance(value, list):
        text = ",".join(value_text(each) for each in value) or "-"
    elif isinstance(value, float):
        text = f"{value:.3f}".rstrip("0").rstrip(".")
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif value is None:
        text = "-"
    else:
        text = str(value)
    return cut(text, MAX_VALUE_CHARS)


def partitions_text(grouped: Mapping[str, Iterable[int]]) -> str:
    """Partitions by topic: `orders[0-2,5] pay[1]`, or `-` for none."""
    return " ".join(f"{topic}[{ranges(numbers)}]" for topic, numbers in sorted(grouped.items())) or "-"


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers, with consecutive ones as a range: `0-2,5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _as_partitions(value: Mapping[str, Value]) -> dict[str, list[int]] | None:
    """The value as partitions by topic, if that is what it is."""
    grouped: dict[str, list[int]] = {}
    for topic, numbers in value.items():
        if not isinstance(numbers, list):
            return None
        grouped[topic] = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
        if len(grouped[topic]) != len(numbers):
            return None
    return grouped


def _map_text(value: Mapping[str, Value]) -> str:
    return ",".join(f"{key}:{value_text(each)}" for key, each in sorted(value.items())) or "-"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def cut_middle(text: str, width: int) -> str:
    """Cut in the middle: names differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[head - width + 1 :]}"
