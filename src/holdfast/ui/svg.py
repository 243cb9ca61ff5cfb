"""A story at one moment as a picture: for `holdfast sim --svg FILE`, and saved by the page.

Pure: a story and a moment in, text out. Shapes say the same as colours: a working lane is a full bar, one that is being
revoked or taken a half bar, a stalled one a low bar, a dark one a line. Names come from outside and are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from holdfast.model.text import one_line
from holdfast.sim.played import time_text, times_less
from holdfast.ui.lanes import OWNS
from holdfast.ui.story import at as span_at
from holdfast.ui.story import moment_text, strip_window

WIDTH = 1000
LEFT, RIGHT = 170, 24
STRIP = WIDTH - LEFT - RIGHT
LANES_HEIGHT = 560
"""The most height for all lanes; with many partitions each gets a thinner row."""
ROW_MIN, ROW_MAX, ROW_WITH_TEXT = 1.2, 26.0, 13.0

TICKS_MS = (1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000)
OWNERS = ("#2f7d4f", "#2b6cb0", "#8a5a00", "#7b4bb3", "#0f7c86", "#a8456a", "#5b6b1f", "#4a5bd0")

OWNERS_DARK = ("#4caf7a", "#5b9bd5", "#d19a3a", "#a987dd", "#3fb3bd", "#d9789b", "#a3b44f", "#8794f0")


def _owner_style(colours: Sequence[str]) -> str:
    return "".join(f".o{number}{{fill:{colour}}}" for number, colour in enumerate(colours))


STYLE = f"""
{_owner_style(OWNERS)}
text{{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#1c2430}}
.bg{{fill:#fbfbf8}}.box{{fill:#fff;stroke:#c9ced6}}.dim{{fill:#5b6675}}.big{{font-size:19px;font-weight:600}}
.small{{font-size:11px}}.revoking{{fill:#c77700}}.dark{{fill:#b3261e}}.taken{{fill:#7a8699}}.stalled{{fill:#b3261e;opacity:.75}}
.zombie{{fill:#6b7280}}
.head{{stroke:#1c2430;stroke-width:1.5}}.event{{fill:#8a5a00}}.bar-bg{{fill:#e6e8ec}}
@media (prefers-color-scheme:dark){{text{{fill:#e8ebf0}}.bg{{fill:#14181f}}.box{{fill:#1c222c;stroke:#3a4350}}
.dim{{fill:#a3adbb}}.head{{stroke:#e8ebf0}}.bar-bg{{fill:#2a313c}}.dark{{fill:#ff7a70}}.stalled{{fill:#ff7a70}}.event{{fill:#e0a84a}}
{_owner_style(OWNERS_DARK)}}}}}
"""


def picture(
    story: Mapping[str, Any], moment: float, *, title: str = "", waits: Mapping[str, Mapping[str, float]] | None = None
) -> str:
    """The whole picture."""
    lanes = story["partitions"]
    row = max(ROW_MIN, min(ROW_MAX, LANES_HEIGHT / max(1, len(lanes))))
    top = 150.0
    members_top = top + row * len(lanes) + 46
    members, members_height = _members(story, moment, members_top)
    bars_top = members_top + members_height + 20
    bars = _bars(waits, bars_top) if waits else []
    height = bars_top + (34 + 26 * len(waits) if waits else 0)
    body = [
        *_heading(story, moment, title),
        *_lanes(story, moment, top, row),
        *_axis(story, moment, top, row * len(lanes)),
        *members,
        *bars,
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{_attr(_summary(story, moment))}">'
        f'<style>{STYLE}</style><rect class="bg" width="100%" height="100%"/>{"".join(body)}</svg>\n'
    )


def _summary(story: Mapping[str, Any], moment: float) -> str:
    lit = _lit(story, moment)
    state = span_at(story["coordinator"], moment)[1]
    return f"{story['kind']}, {time_text(moment)}: {state}, {lit} of {len(story['partitions'])} partitions process"


def _lit(story: Mapping[str, Any], moment: float) -> int:
    return sum(span_at(lane["spans"], moment)[1] == "working" for lane in story["partitions"])


def _heading(story: Mapping[str, Any], moment: float, title: str) -> list[str]:
    _, state, generation = span_at(story["coordinator"], moment)
    lit, of = _lit(story, moment), len(story["partitions"])
    return [
        _text(24, 34, title or "A consumer group", "big"),
        _text(WIDTH - RIGHT, 34, f"{story['kind']} · {moment_text(story, moment)}", "dim", anchor="end"),
        _box(24, 54, 210, 66),
        _text(38, 80, "Producer"),
        _text(38, 102, _produces(story), "dim"),
        _text(250, 92, "→", "dim"),
        _box(276, 54, 330, 66),
        _text(290, 80, f"Coordinator: {state}"),
        _text(290, 102, f"{story['protocol']}, generation {generation}", "dim"),
        _text(622, 92, "→", "dim"),
        _box(648, 54, WIDTH - RIGHT - 648, 66),
        _text(662, 80, f"Can the group process now? {lit} of {of}"),
        _text(662, 102, story["legend"]["states"].get(state, ""), "dim"),
    ]


def _produces(story: Mapping[str, Any]) -> str:
    if story["produces"] is None:
        return "how much is not known yet"
    return f"{'' if 'wall' in story else 'steady: '}{story['produces']:,.0f} records/s"


def _lanes(story: Mapping[str, Any], moment: float, top: float, row: float) -> list[str]:
    window = strip_window(story, moment)
    members = story["members"]
    signs = story["legend"]["lanes"]
    parts: list[str] = []
    for number, lane in enumerate(_rows(story, row)):
        y = top + number * row
        spans = lane["spans"]
        if row >= ROW_WITH_TEXT:
            _, state, owner, _ = span_at(spans, moment)
            name = members[owner]["name"] if owner >= 0 and state != "dark" else "nobody"
            parts.append(_text(24, y + row * 0.7, f"{signs[state]['sign']} {lane['label']} → {name}", "small"))
        cuts: list[str] = []
        worker = -1
        for index, (since, state, owner, _) in enumerate(spans):
            if state == "working":
                if worker not in (-1, owner) and since >= window[0] and row >= ROW_WITH_TEXT:
                    x = _x(since, window) - 1
                    cuts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="2" height="{row * 0.82:.1f}" class="bg"/>')
                worker = owner
            until = min(window[1], spans[index + 1][0] if index + 1 < len(spans) else story["end"])
            since = max(window[0], since)
            share = signs[state]["height"]
            if share and since <= until:
                parts.append(_segment(_x(since, window), _x(until, window), y, row, state, owner, share))
        parts += cuts
    return parts


def _rows(story: Mapping[str, Any], row: float) -> list[Mapping[str, Any]]:
    """Thin rows lie together by their first owner: strewn, a thousand of them blend into grey."""
    lanes = list(story["partitions"])
    if row >= ROW_WITH_TEXT:
        return lanes
    later = len(story["members"])
    return sorted(lanes, key=lambda lane: next((span[2] for span in lane["spans"] if span[1] == "working"), later))


def _x(at: float, window: tuple[float, float]) -> float:
    return LEFT + STRIP * (at - window[0]) / (window[1] - window[0])


def _segment(x: float, to: float, y: float, row: float, state: str, owner: int, share: float) -> str:
    width = max(0.8, to - x)
    full = row * 0.82 if row > 4 else row
    high = max(0.8, full * share)
    style = f"o{owner % len(OWNERS)}" if state == "working" else state
    return f'<rect x="{x:.1f}" y="{y + full - high:.1f}" width="{width:.1f}" height="{high:.1f}" class="{style}"/>'


def _axis(story: Mapping[str, Any], moment: float, top: float, height: float) -> list[str]:
    window = strip_window(story, moment)
    bottom = top + height
    parts = []
    step = next((each for each in TICKS_MS if (window[1] - window[0]) / each <= 8), TICKS_MS[-1])
    for number in range(int(-(-window[0] // step)), int(window[1] // step) + 1):
        words = f"{number * step / 60_000:g} min" if step >= 60_000 else f"{number * step / 1000:g} s"
        words = moment_text(story, number * step).partition(".")[0] if "wall" in story else words
        parts.append(_text(_x(number * step, window), bottom + 18, words, "dim small", anchor="middle"))
    for when, kind, _ in story["steps"]:
        if kind == "happened" and window[0] <= when <= window[1]:
            parts.append(_text(_x(when, window), top - 6, "▼", "event small", anchor="middle"))
    x = _x(min(moment, story["end"]), window)
    parts.append(f'<line class="head" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4:.1f}" y2="{bottom + 4:.1f}"/>')
    return parts


def _members(story: Mapping[str, Any], moment: float, top: float) -> tuple[list[str], float]:
    """A box for each member, as many as fit into three rows; of the others only the number is shown."""
    across, shown = 6, 18
    names = [m for m in story["members"] if span_at(m["spans"], moment)[1] != "absent"]
    owned: dict[int, list[str]] = {}
    for lane in story["partitions"]:
        _, state, owner, _ = span_at(lane["spans"], moment)
        if owner >= 0 and state in OWNS:
            owned.setdefault(owner, []).append(lane["label"])
    wide = (WIDTH - 24 - RIGHT) / across
    parts = []
    for place, member in enumerate(names[:shown]):
        number = story["members"].index(member)
        x, y = 24 + (place % across) * wide, top + (place // across) * 62
        state = span_at(member["spans"], moment)[1]
        sign = story["legend"]["members"][state]["sign"]
        parts += [
            _box(x, y, wide - 10, 54),
            f'<rect x="{x:.0f}" y="{y:.0f}" width="5" height="54" class="o{number % len(OWNERS)}"/>',
            _text(x + 14, y + 21, f"{sign} {_cut(member['name'], 14)} · {'static' if member['static'] else 'dynamic'}"),
            _text(x + 14, y + 42, _owns(owned.get(number, [])), "dim small"),
        ]
    rows = -(-min(len(names), shown) // across)
    if len(names) > shown:
        parts.append(_text(24, top + rows * 62 + 14, f"and {len(names) - shown} more members", "dim"))
    return parts, rows * 62 + (24 if len(names) > shown else 0)


def _owns(labels: Sequence[str]) -> str:
    if not labels:
        return "owns nothing"
    return f"owns {', '.join(labels)}" if len(labels) <= 4 else f"owns {len(labels)} partitions"


def _bars(waits: Mapping[str, Mapping[str, float]], top: float) -> list[str]:
    most = max((wait["paused"] for wait in waits.values()), default=0.0) or 1.0
    first = next(iter(waits.values()))["paused"]
    parts = [_text(24, top + 14, "Wait time: paused by rebalances, all partitions together")]
    for number, (kind, wait) in enumerate(waits.items()):
        y = top + 28 + number * 26
        long = (STRIP - 190) * wait["paused"] / most
        words = time_text(wait["paused"])
        if number and (compared := times_less(first, wait["paused"])):
            stood = wait["paused"] <= 0 < wait["dark"]  # the owner had left, say, and the next one restored its state
            words += f" · {'none by rebalances' if stood else compared}"
        parts += [
            _text(24, y + 14, kind),
            f'<rect class="bar-bg" x="{LEFT}" y="{y}" width="{STRIP - 190}" height="18" rx="3"/>',
            f'<rect class="dark" x="{LEFT}" y="{y}" width="{max(1.0, long):.1f}" height="18" rx="3"/>',
            _text(WIDTH - RIGHT, y + 14, words, anchor="end"),
        ]
    return parts


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6"/>'


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    clean = escape(one_line(words))
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{clean}</text>'


def _attr(words: str) -> str:
    return escape(one_line(words), {'"': "&quot;"})


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else words[: width - 1] + "…"
