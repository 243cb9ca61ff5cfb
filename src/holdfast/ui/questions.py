"""Questions about a moment of a story, and their answers, with that moment's numbers from the trace.

"What if" questions have no answer yet: `WHAT_IFS` says what to simulate, `compared` compares the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.sim.played import time_text
from holdfast.sim.setup import Setup
from holdfast.ui.story import at as span_at
from holdfast.ui.story import moment_text

MOST_LANES = 2
"""For how many dark lanes there is a question each."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Another setup to compare with this one."""

    text: str
    change: Callable[[Setup], Setup]


WHAT_IFS: Mapping[str, WhatIf] = {
    "static": WhatIf("What if the members were static?", lambda s: replace(s, static=True)),
    "dynamic": WhatIf("What if the members were dynamic?", lambda s: replace(s, static=False)),
    "quick": WhatIf("What if a batch took 200 ms?", lambda s: replace(s, batch="200ms", spread=0.0)),
    "patient": WhatIf("What if max.poll.interval.ms were 10 min?", lambda s: replace(s, max_poll="10m")),
}


def questions(story: Mapping[str, Any], moment: float, setup: Setup | None) -> list[dict[str, Any]]:
    """The likeliest questions first. Without a setup it is a live group, which can't be played again."""
    asked: list[tuple[str, str, str | None]] = []
    rebalance = _latest(story, moment)
    for lane in _not_lit(story, moment)[:MOST_LANES]:
        zombie = span_at(lane["spans"], moment)[1] == "zombie"
        text = f"Why is work on {lane['label']} in vain?" if zombie else f"Why does nobody process {lane['label']}?"
        asked.append((f"lane-{lane['label']}", text, _why_dark(story, lane, moment)))
    if span_at(story["coordinator"], moment)[1] == "PreparingRebalance":
        asked.append(("waiting", "What does the group wait for?", _waits_for(story, moment)))
    if rebalance is not None:
        asked.append(("cause", "Who caused this rebalance?", _cause(story, rebalance, moment)))
        if story["kind"] == "eager":
            asked.append(("everybody", "Why did everybody stop?", _everybody(story, rebalance)))
        else:
            asked.append(("nobody", "Why did nobody else pause?", _nobody(story, rebalance)))
    asked.append(("lag", "How far is the group behind?", _lag(story, moment)))
    usual = Setup()
    for name, what_if in WHAT_IFS.items() if setup is not None else ():
        assert setup is not None
        changed = what_if.change(setup)
        if changed != setup and (name != "quick" or setup.batch != usual.batch):
            asked.append((name, what_if.text, None))
    return [{"id": name, "text": text, "answer": answer} for name, text, answer in asked]


def compared(mine: Mapping[str, float], other: Mapping[str, float]) -> str:
    """The same events and seed, simulated with both setups."""
    words = [
        f"{what}: {show(mine[key])} as it is, {show(other[key])} then"
        for what, key, show in (
            ("Paused by rebalances", "paused", time_text),
            ("longest pause", "longest", time_text),
            ("partitions that paused", "partitions", lambda n: f"{n:.0f}"),
            ("without processing for any reason", "dark", time_text),
        )
    ]
    return "; ".join(words) + "."


def _not_lit(story: Mapping[str, Any], moment: float) -> list[Mapping[str, Any]]:
    return [lane for lane in story["partitions"] if span_at(lane["spans"], moment)[1] not in ("working", "waiting")]


def _latest(story: Mapping[str, Any], moment: float) -> Mapping[str, Any] | None:
    """The current or last rebalance; the one in which the group began does not count."""
    begun = [each for each in story["rebalances"][story["birth"] :] if each["from"] <= moment]
    return begun[-1] if begun else None


def _name(story: Mapping[str, Any], number: int) -> str:
    return str(story["members"][number]["name"]) if number >= 0 else "nobody"


def _why_dark(story: Mapping[str, Any], lane: Mapping[str, Any], moment: float) -> str:
    spans: Sequence[Sequence[Any]] = lane["spans"]
    now = max((index for index, span in enumerate(spans) if span[0] <= moment), default=0)
    first = now
    while first > 0 and spans[first - 1][1] not in ("working", "waiting"):
        first -= 1
    last = now
    while last < len(spans) and spans[last][1] != "working":
        last += 1
    since = spans[first][0]
    meaning = story["legend"]["lanes"][spans[now][1]]["text"]
    answer = f"{meaning.capitalize()}. {_since(story, spans, first)}."
    rebalance = _latest(story, moment)
    if rebalance is not None and rebalance["to"] >= since:
        answer += f" The rebalance began because {rebalance['cause']}."
    if last < len(spans):
        until, _, taker, how = spans[last]
        answer += (
            f" {_name(story, taker)} goes on at {moment_text(story, until)}{f' ({how})' if how else ''}, "
            f"after {time_text(until - since)}."
        )
    else:
        words = "has gone on so far" if "wall" in story else "goes on until the end"
        answer += f" Nobody {words}, {time_text(story['end'] - since)} later."
    return answer


def _since(story: Mapping[str, Any], spans: Sequence[Sequence[Any]], first: int) -> str:
    """What began with this span, the first in which nobody works, or works for the group."""
    at, state, owner, why = spans[first]
    name, when = _name(story, owner), moment_text(story, at)
    if state == "zombie":
        return f"{name} works on, but has been out of the group since {when}"
    if first == 0 or spans[first - 1][1] == "waiting":
        return f"Nobody has worked on it yet; {name} has had it since {when}{f' ({why})' if why else ''}"
    return f"{name} stopped at {when} ({why or 'it ended'})"


def _waits_for(story: Mapping[str, Any], moment: float) -> str:
    since = span_at(story["coordinator"], moment)[0]
    joined = {m["name"] for m in story["members"] if span_at(m["spans"], moment)[1] == "joining"}
    missing = [m["name"] for m in story["members"] if span_at(m["spans"], moment)[1] in ("in", "hung", "frozen")]
    if not missing:
        return f"For nobody any more: all {len(joined)} have joined."
    named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return (
        f"For {named}. They join when they hear of it, by heartbeat or poke, and have finished what they are at. "
        f"{len(joined)} have joined; the round has lasted {time_text(moment - since)}."
    )


def _cause(story: Mapping[str, Any], rebalance: Mapping[str, Any], moment: float) -> str:
    culprit = rebalance["culprit"]
    times = sum(each["culprit"] == culprit and each["from"] <= moment for each in story["rebalances"][story["birth"] :])
    again = f" It is the cause of {times} rebalances so far." if times > 1 and culprit else ""
    when = moment_text(story, rebalance["from"])
    return f"{culprit or 'Nobody in particular'}: {rebalance['cause']}, at {when}.{again}"


def _everybody(story: Mapping[str, Any], rebalance: Mapping[str, Any]) -> str:
    of = len(story["partitions"])
    return (
        f"Eager members give up everything before they join. {rebalance['paused']} of {of} partitions paused, "
        f"{rebalance['needless']} of them only to be given back; the longest for {time_text(rebalance['longest'])}."
        f"{_round(story, rebalance)}"
    )


def _round(story: Mapping[str, Any], rebalance: Mapping[str, Any]) -> str:
    """How much of it was the round; the rest goes into closing and taking up. Nothing if no round was seen."""
    spans = [span for span in story["coordinator"] if rebalance["from"] <= span[0] <= rebalance["to"]]
    stable = next((at for at, state, _ in spans if state == "Stable"), None)
    if stable is None or stable <= rebalance["from"]:
        return ""
    return (
        f" The first to stop waits for the last to come: the round took {time_text(stable - rebalance['from'])}. "
        f"The rest is what it takes to take them up again."
        if rebalance["longest"] > stable - rebalance["from"]
        else " That is how long the first to stop waited for the last to come."
    )


def _nobody(story: Mapping[str, Any], rebalance: Mapping[str, Any]) -> str:
    of = len(story["partitions"])
    moved = ", ".join(rebalance["moved"][:6]) or "nothing"
    more = f" and {len(rebalance['moved']) - 6} more" if len(rebalance["moved"]) > 6 else ""
    return (
        f"Members join with what they own and work on. Only what moves is given up: {moved}{more}. "
        f"{rebalance['paused']} of {of} partitions were paused by it, the longest for "
        f"{time_text(rebalance['longest'])}; {_undisturbed(story, rebalance)} were worked on all along."
    )


def _undisturbed(story: Mapping[str, Any], rebalance: Mapping[str, Any]) -> int:
    """Partitions that were worked on throughout, by one member: a hang or a crash is no pause, but no work either."""

    def within(spans: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        later = [span for span in spans if rebalance["from"] < span[0] <= rebalance["to"]]
        return [span_at(spans, rebalance["from"]), *later]

    found = [within(lane["spans"]) for lane in story["partitions"]]
    return sum(all(span[1] == "working" for span in each) and len({span[2] for span in each}) == 1 for each in found)


def _lag(story: Mapping[str, Any], moment: float) -> str:
    lags = {lane["label"]: lag_at(lane["lag"], moment) for lane in story["partitions"] if lane["lag"]}
    if not lags and story["partitions"]:
        return "That is not known: nobody has told an offset yet."
    worst = max(lags, key=lambda label: lags[label], default="")
    if not worst or lags[worst] < 1:
        return "Nothing waits: every partition is read as it is written."
    return f"{sum(lags.values()):,.0f} records wait in all; most of them in {worst}: {lags[worst]:,.0f}."


def lag_at(points: Sequence[Sequence[float]], moment: float) -> float:
    """Lag is interpolated between two points; before the first point it has that point's value."""
    before = points[0]
    if moment <= before[0]:
        return before[1]
    for point in points:
        if point[0] > moment:
            share = (moment - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]
