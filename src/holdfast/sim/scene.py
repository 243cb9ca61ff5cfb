"""A world on the terminal: what happened step by step, the timeline of every partition, and the gaps. Needs rich.

Everything is drawn from trace records. Colours only help; every cell also has its letter, so that a log file or a
colour-blind reader loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.model import TraceRecord
from holdfast.sim.timeline import Gap, Summary, Timeline
from holdfast.sim.world import WorldResult
from holdfast.trace import HEADER, render

QUIET = frozenset(
    {
        "commit-taken", "join-granted", "group-written", "joined", "sync-sent", "join-sent", "planned", "assigned",
        "stable", "subscribed", "topic-changed", "lane-opened", "lane-stopped", "process-started", "commit-refused",
    }
)  # fmt: skip
"""Steps that the short form leaves out: they say again, or in more detail, what the others say."""

STYLES = {
    "happened": "bold yellow",
    "violation": "bold red",
    "rebalance-started": "cyan",
    "generation": "bold cyan",
    "revoking": "magenta",
    "losing": "red",
    "member-expired": "red",
    "member-expelled": "red",
    "poll-expired": "red",
    "process-died": "red",
    "healed": "bold green",
}
COLOURS = ("green", "blue", "magenta", "cyan", "yellow", "bright_green", "bright_blue", "bright_magenta", "bright_cyan")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MIN_SLICES, MAX_SLICES = 20, 240
DARK, PARTLY = "·", "▒"


def print_steps(console: Console, records: Sequence[TraceRecord], *, everything: bool) -> None:
    """One line per step, in fixed columns."""
    console.print(Text(HEADER, style="dim"))
    for record in records:
        if everything or not is_quiet(record):
            console.print(Text(render(record), style=STYLES.get(record.step, "")), soft_wrap=True)


def is_quiet(record: TraceRecord) -> bool:
    if record.step == "called":
        return record.data.get("partitions") == {}
    if record.source == "coordinator" and record.step == "stable":
        return False
    return record.step in QUIET


def print_timeline(console: Console, line: Timeline, happenings: Sequence[TraceRecord], title: str) -> None:
    """A row per partition, a column per slice of time."""
    label = max([len(str(p)) for p in line.stretches] or [4])
    slices = max(MIN_SLICES, min(MAX_SLICES, console.width - label - 3))
    width_ms = line.end_ms / slices
    console.print()
    console.print(Text(title, style="bold"))
    legend = Text("  ")
    for index, member in enumerate(line.members):
        legend.append(f" {letter(index)} ", style=f"black on {colour(index)}")
        legend.append(f" {member}   ")
    legend.append(f" {DARK} ", style="white on grey11")
    legend.append(" nobody   ")
    legend.append(f" {PARTLY} ", style="white on red")
    legend.append(f" nobody for a part of the {width_ms:.0f} ms that a column stands for")
    console.print(legend)
    index_of = {member: index for index, member in enumerate(line.members)}
    for partition in line.stretches:
        row = Text(f"{partition!s:>{label}} ")
        for column in range(slices):
            from_ms, to_ms = column * width_ms, (column + 1) * width_ms
            owner = line.owner_at(partition, from_ms, to_ms)
            if not owner:
                row.append(DARK, style="grey50 on grey11")
            elif line.dark_in(partition, from_ms, to_ms) > 0.5 and from_ms > line.stretches[partition][0].from_ms:
                row.append(PARTLY, style="white on red")
            else:
                index = index_of[owner]
                row.append(letter(index), style=f"black on {colour(index)}")
        console.print(row, soft_wrap=True)
    console.print(axis(label, slices, line.end_ms, happenings), soft_wrap=True)


def axis(label: int, slices: int, end_ms: float, happenings: Sequence[TraceRecord]) -> Text:
    """Seconds below the rows, and arrows where something was done to the world."""
    marks = [" "] * slices
    for record in happenings:
        marks[min(slices - 1, int(record.at / end_ms * slices))] = "▲"
    ruler = [" "] * (slices + 8)
    every = max(1, round(slices / 8))
    digits = 0 if end_ms * every / slices >= 2_000 else 1
    for column in range(0, slices, every):
        for offset, char in enumerate(f"{column * end_ms / slices / 1000:.{digits}f}s"):
            ruler[column + offset] = char
    words = "   ".join(str(record.data.get("what", "")) for record in happenings)
    text = Text(" " * (label + 1) + "".join(marks) + "\n", style="yellow")
    text.append(" " * (label + 1) + "".join(ruler).rstrip() + "\n", style="dim")
    if words:
        text.append(" " * (label + 1) + "▲ " + words + "\n", style="yellow")
    return text


def letter(index: int) -> str:
    return LETTERS[index % len(LETTERS)]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def print_gaps(console: Console, line: Timeline) -> None:
    """What each partition went through."""
    table = Table(title="gaps: when nobody processed a partition", title_justify="left", header_style="bold")
    for name in ("partition", "gaps", "total", "longest"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    table.add_column("each: from, how long, why, who before → who after")
    gaps = line.gaps()
    for partition in line.stretches:
        own = [gap for gap in gaps if gap.partition == partition]
        table.add_row(
            str(partition),
            str(len(own)),
            duration(sum(gap.ms for gap in own)),
            duration(max((gap.ms for gap in own), default=0.0)),
            "\n".join(_gap_line(gap) for gap in own) or "-",
        )
    console.print(table)


def _gap_line(gap: Gap) -> str:
    return f"{gap.from_ms / 1000:8.3f} s  {duration(gap.ms):>9}  {gap.cause:<8} {gap.before} → {gap.after or 'nobody'}"


def duration(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 10_000 else f"{ms:.0f} ms"


def print_summary(console: Console, result: WorldResult, summary: Summary) -> None:
    rounds = "1 round" if summary.rounds == 1 else f"{summary.rounds} rounds"
    console.print(
        f"{rounds}; paused by rebalances: {duration(summary.rebalanced_ms)} in all, longest "
        f"{duration(summary.rebalanced_longest_ms)}, {summary.paused_partitions} partitions, {summary.needless} times "
        f"taken and given back; without processing for any reason: {duration(summary.dark_ms)}"
    )
    for violation in result.violations:
        console.print(Text(str(violation), style="bold red"))


def print_comparison(console: Console, of: Mapping[str, Summary]) -> None:
    """All kinds on one seed, and how many times less the others cost than the first."""
    first, *others = of
    title = f"{first} beside {' and '.join(others)}, the same seed and events"
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("what")
    for kind in of:
        table.add_column(kind, justify="right")
    for kind in others:
        table.add_column(f"{first} : {kind}", justify="right")
    rows: list[tuple[str, Callable[[Summary], float], bool]] = [
        ("paused by rebalances, all partitions", lambda s: s.rebalanced_ms, True),
        ("longest pause by a rebalance", lambda s: s.rebalanced_longest_ms, True),
        ("partitions that a rebalance paused", lambda s: s.paused_partitions, False),
        ("taken from a member and given back to it", lambda s: s.needless, False),
        ("without processing for any reason", lambda s: s.dark_ms, True),
        ("rounds", lambda s: s.rounds, False),
    ]
    for what, value, is_time in rows:
        shown = [duration(value(each)) if is_time else f"{value(each):.0f}" for each in of.values()]
        table.add_row(what, *shown, *(ratio(value(of[first]), value(of[kind])) for kind in others))
    console.print(table)


def print_claims(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """What is told of a scene beside what was played."""
    table = Table(title="told, and played", title_justify="left", header_style="bold")
    kinds = list(rows[0]["played"])
    for name in ("what", "of", "told", *kinds, ""):
        table.add_column(name, justify="right" if name in kinds else "left")
    for row in rows:
        played = [Text(text, style="bold" if kind == row["about"] else "") for kind, text in row["played"].items()]
        table.add_row(row["what"], row["about"], row["told"], *played, "as told" if row["holds"] else "differs")
    console.print(table)
    for row in rows:
        if not row["holds"]:
            console.print(f"{row['told']} ({row['about']}): {row['why']}", markup=False)


def ratio(left: float, right: float) -> str:
    if right == 0:
        return "-" if left == 0 else "∞"
    return f"{left / right:.1f}"
