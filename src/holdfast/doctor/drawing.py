"""The report's pictures as SVG text: lanes per partition, rebalances coloured by cause, members' lives, pauses.

Names are escaped here. Pictures are bounded; each says how much was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from holdfast.doctor import causes
from holdfast.doctor.finding import counted
from holdfast.doctor.words import clock

Row = Mapping[str, Any]

COLOURS: Mapping[str, str] = {
    causes.TOO_SLOW: "#d1495b",
    causes.CRASH: "#8d1c3d",
    causes.LEAVE: "#e09f3e",
    causes.JOIN: "#3a86c8",
    causes.SUBSCRIPTION: "#7b5ea7",
    causes.PARTITIONS: "#4c9f70",
    causes.DRAIN: "#2a9d8f",
    causes.WATCHDOG: "#577590",
    causes.FORCED: "#b5838d",
    causes.RETURNED: "#9a8c98",
    causes.STUCK: "#6d213c",
    causes.COORDINATOR: "#808080",
    causes.START: "#a9b4bf",
    causes.STOP: "#a9b4bf",
    causes.FOLLOW_UP: "#a9b4bf",
    causes.UNKNOWN: "#808080",
}
"""By cause, in the order of the legend."""

WIDTH, LEFT, ROW = 1_000.0, 150.0, 16.0
LANES_DRAWN, LIVES_DRAWN, MARKS_DRAWN = 48, 60, 2_000

_HUES = (211, 28, 145, 340, 265, 48, 180, 0, 95, 300)


def timeline_svg(
    first_ms: float, last_ms: float, rebalances: Sequence[Row], lanes: Sequence[Row], lives: Sequence[Row]
) -> str:
    """Time to the right; rebalances as bands through everything, a row for each partition, then one for each member."""
    span = max(1.0, last_ms - first_ms)

    def x(at_ms: float | None) -> float:
        at = last_ms if at_ms is None else at_ms
        return LEFT + (WIDTH - LEFT - 10) * min(1.0, max(0.0, (at - first_ms) / span))

    partitions = sorted({row["partition"] for row in lanes}, key=_natural)
    names = list(dict.fromkeys(row["name"] for row in sorted(lives, key=lambda row: row["from_ms"] or 0.0)))
    shown, members = partitions[:LANES_DRAWN], names[:LIVES_DRAWN]
    hue = {name: _HUES[place % len(_HUES)] for place, name in enumerate(names)}
    height = 40 + ROW * (len(shown) + len(members) + 3)
    parts = [_axis(first_ms, span, height)]
    parts += [_band(row, x, height) for row in rebalances[:MARKS_DRAWN]]
    place = {name: 30 + ROW * number for number, name in enumerate(shown)}
    parts += [_label(place[name], name) for name in shown]
    parts += [
        _bar(x(row["from_ms"]), x(row["to_ms"]), place[row["partition"]], hue.get(row["who"], 0),
             f"{row['partition']}: {row['who']}, {clock(row['from_ms'])} to {clock(row['to_ms'])}")
        for row in lanes[: 4 * MARKS_DRAWN]
        if row["partition"] in place
    ]  # fmt: skip
    top = 30 + ROW * (len(shown) + 1)
    if len(partitions) > len(shown):
        parts.append(
            f"<text class='soft' x='4' y='{top - 4:.0f}'>and {len(partitions) - len(shown)} partitions more</text>"
        )
    spot = {name: top + ROW * number for number, name in enumerate(members)}
    parts += [_label(spot[name], name) for name in members]
    for row in lives[:MARKS_DRAWN]:
        if row["name"] in spot:
            how = f", {row['how']}" if row["how"] else ""
            told = f"{row['name']}: {clock(row['from_ms'])} to {clock(row['to_ms'])}{how}"
            parts.append(
                _bar(x(row["from_ms"] or first_ms), x(row["to_ms"]), spot[row["name"]], hue[row["name"]], told)
            )
            if row["how"] and row["to_ms"] is not None:
                colour = COLOURS.get(row["how"], "#808080")
                parts.append(
                    f"<circle cx='{x(row['to_ms']):.1f}' cy='{spot[row['name']] + 6:.0f}' r='4' fill='{colour}'/>"
                )
    if len(names) > len(members):
        end = top + ROW * len(members)
        more = counted(len(names) - len(members), "more member")
        parts.append(f"<text class='soft' x='4' y='{end + 10:.0f}'>and {more}</text>")
    return _svg(height, "".join(parts), "Partitions, rebalances and members over time")


def pauses_svg(pauses_ms: Sequence[float]) -> str:
    """A histogram of pauses; each bucket's edge is about three times the one before."""
    edges = (0.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0, float("inf"))
    counts = [sum(1 for ms in pauses_ms if low <= ms < high) for low, high in pairwise(edges)]
    most = max([1, *counts])
    step = (WIDTH - 40) / len(counts)
    parts = []
    for place, (low, count) in enumerate(zip(edges, counts, strict=False)):
        tall = 90.0 * count / most
        left = 20 + place * step
        high = edges[place + 1]
        told = f"≥ {_short(low)}" if high == float("inf") else f"{_short(low)}–{_short(high)}"
        parts.append(
            f"<rect x='{left + 6:.1f}' y='{110 - tall:.1f}' width='{step - 12:.1f}' height='{max(tall, 0.5):.1f}' "
            f"rx='3' fill='hsl(211 60% 55%)'/>"
            f"<text x='{left + step / 2:.1f}' y='{106 - tall:.1f}' text-anchor='middle'>{count or ''}</text>"
            f"<text class='soft' x='{left + step / 2:.1f}' y='126' text-anchor='middle'>{told}</text>"
        )
    return _svg(136, "".join(parts), "Distribution of pauses")


def _svg(height: float, inside: str, title: str) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH:.0f} {height:.0f}' role='img' xmlns='http://www.w3.org/2000/svg'>"
        f"<title>{escape(title)}</title>{inside}</svg>"
    )


def _axis(first_ms: float, span: float, height: float) -> str:
    parts = []
    for part in range(6):
        at = LEFT + (WIDTH - LEFT - 10) * part / 5
        told = clock(first_ms + span * part / 5)[11:19]
        anchor = "end" if part == 5 else "middle"
        parts.append(
            f"<line x1='{at:.1f}' y1='20' x2='{at:.1f}' y2='{height - 6:.0f}'/>"
            f"<text class='soft' x='{at:.1f}' y='14' text-anchor='{anchor}'>{told}</text>"
        )
    return "".join(parts)


def _band(row: Row, x: Any, height: float) -> str:
    left, right = x(row["began_ms"]), x(row["ended_ms"])
    who = f" ({row['culprit']})" if row["culprit"] else ""
    told = f"generation {row['generation']}: {causes.WORDS.get(row['trigger'], row['trigger'])}{who}, " \
           f"{row['took_ms'] / 1000:.1f} s"  # fmt: skip
    return (
        f"<rect x='{left:.1f}' y='20' width='{max(2.0, right - left):.1f}' height='{height - 26:.0f}' "
        f"fill='{COLOURS.get(row['trigger'], '#808080')}' opacity='.45'><title>{escape(told)}</title></rect>"
    )


def _bar(left: float, right: float, top: float, hue: int, told: str) -> str:
    return (
        f"<rect x='{left:.1f}' y='{top:.0f}' width='{max(1.0, right - left):.1f}' height='12' rx='3' "
        f"fill='hsl({hue} 55% 55%)'><title>{escape(told)}</title></rect>"
    )


def _label(top: float, name: str) -> str:
    text = name if len(name) <= 22 else f"{name[:10]}…{name[-11:]}"
    return f"<text x='4' y='{top + 10:.0f}'>{escape(text)}</text>"


def _natural(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _short(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1000:.0f} s"
