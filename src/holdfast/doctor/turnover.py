"""Members that come and go: an autoscaler that scales up and down, a deploy without instance ids, or one process that
keeps leaving and returning.

Who leaves tells them apart. A deploy replaces the members that were there from the beginning, each about once, under
the same client id or another. An autoscaler removes the members that joined last, while the others stay. And if a
single process leaves and returns, that process is at fault: librdkafka does not tell the coordinator that it exceeded
max.poll.interval.ms.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from holdfast.doctor import causes
from holdfast.doctor.finding import (
    AGAIN,
    FLAPPING,
    RESTARTS,
    SHORT_LIFE_MS,
    STORM,
    Finding,
    cost_of,
    counted,
    host_of,
    lives_evidence,
    session_for,
    session_key,
    times_text,
)
from holdfast.doctor.history import History
from holdfast.doctor.people import Life

SURGE_MS = 120_000.0
"""A deploy may start a new process up to this long before it stops the old one."""

FLAPS = 3


def turnover(history: History) -> list[Finding]:
    """Each member appears in at most one of the three findings."""
    back = _comes_back(history)
    explained = {life.member for lives in back.values() for life in lives}
    found = [_storm(history, lives) for lives in back.values()]
    short = [life for life in _newcomers(history) if _left_soon(life) and life.member not in explained]
    if len(short) >= FLAPS and _others_stayed(history, short):
        explained |= {life.member for life in short}
        found += _flapping(history, short)
    pairs = _replaced(history, explained)
    if len({history.people.process_of(life) for life, _ in pairs}) >= AGAIN:
        found += _restarts(history, pairs)
    return found


def _began_ms(history: History) -> float:
    return next((one.ended_ms for one in history.rebalances if one.trigger == causes.START), history.first_ms)


def _newcomers(history: History) -> list[Life]:
    """Members that joined after the group, or the log, began; in the order in which they joined."""
    began = _began_ms(history)
    return sorted((one for one in history.people.lives.values() if one.from_ms > began), key=lambda one: one.from_ms)


def _left_soon(life: Life) -> bool:
    return life.how == causes.LEAVE and life.ms < SHORT_LIFE_MS


def _others_stayed(history: History, short: list[Life]) -> bool:
    gone = {life.member for life in short}
    first, last = min(life.from_ms for life in short), max(life.to_ms for life in short)
    return any(
        not life.from_ms > first and not life.to_ms < last
        for life in history.people.lives.values()
        if life.member not in gone
    )


def _comes_back(history: History) -> dict[str, list[Life]]:
    """The only process that left and returned several times; empty if there are several such processes, or none."""
    began = _began_ms(history)
    lives: dict[str, list[Life]] = defaultdict(list)
    for life in sorted(history.people.lives.values(), key=lambda one: one.since_ms):
        lives[history.people.process_of(life)].append(life)
    again = {}
    for process, each in lives.items():
        left = [life for life in each[:-1] if life.how == causes.LEAVE and not life.instance]
        if len(left) >= AGAIN and not _scaled(each, began):
            again[process] = left
    return again if len(again) == 1 else {}


def _scaled(lives: Sequence[Life], began_ms: float) -> bool:
    """Whether this is a StatefulSet's last pod, which is added and removed under one name: it was not there from the
    beginning, and said each time that it was being closed, which nobody says who is beyond a limit."""
    over = [life for life in lives if life.over]
    return lives[0].from_ms > began_ms and len(over) >= FLAPS and all(life.closed for life in over)


def _storm(history: History, left: list[Life]) -> Finding:
    ids = {life.member for life in history.people.of_process(left[0])}
    cost, measured = cost_of(history, [one for one in history.disturbances if one.culprit in ids])
    name = left[-1].name
    return Finding(
        kind=STORM,
        culprit=name,
        host=host_of(left),
        times=len(left),
        cost_ms=cost,
        measured=measured,
        what=f"{name} left and came back {times_text(len(left))}, and no other member did: it exceeds "
        "max.poll.interval.ms, or is restarted each time. Its own log tells which.",
        change={"max.poll.records": "100"},
        do="Poll fewer records at a time, so that a batch stays well below max.poll.interval.ms. If it was restarted, "
        "find out by whom; with a group.instance.id that costs nothing.",
        evidence=lives_evidence(left, "left, to come back"),
    )


def _flapping(history: History, short: list[Life]) -> list[Finding]:
    rebalances = [one for one in history.disturbances if one.culprit in {life.member for life in short}]
    if len(rebalances) < FLAPS:
        return []
    cost, measured = cost_of(history, rebalances)
    mean_s = sum(life.ms for life in short) / len(short) / 1000
    return [
        Finding(
            kind=FLAPPING,
            culprit=", ".join(sorted({life.name for life in short})[:3]),
            times=len(short),
            cost_ms=cost,
            measured=measured,
            what=f"{len(short)} members came and left again after {mean_s:.0f} s on average, with "
            f"{len(rebalances)} rebalances: the number of members goes up and down.",
            change={"behavior.scaleDown.stabilizationWindowSeconds": "600"},
            do="Let the autoscaler wait before it takes members away, scale on lag that lasts, and never below what "
            "the usual load needs.",
            evidence=lives_evidence(short, "left again"),
        )
    ]


def _replaced(history: History, explained: set[str]) -> list[tuple[Life, Life]]:
    """Members that were there from the beginning and left, each with the member that took its place."""
    new = _newcomers(history)
    came = [life for life in new if life.member not in explained]
    later = {life.member for life in new}
    begun = [one.began_ms for one in history.disturbances]
    pairs = []
    over = (life for life in history.people.lives.values() if life.over)
    for life in sorted(over, key=lambda one: one.to_ms):
        if life.how != causes.LEAVE or life.instance or life.member in explained:
            continue
        if (life.member in later and life.ms < SHORT_LIFE_MS) or not _disturbed(history, begun, life):
            continue
        first = bisect_left(came, life.to_ms - SURGE_MS, key=lambda one: one.from_ms)
        last = bisect_right(came, life.to_ms + SHORT_LIFE_MS, key=lambda one: one.from_ms)
        near = [one for one in came[first:last] if one is not life and _in_its_place(life, one)]
        own = [one for one in near if history.people.process_of(one) == history.people.process_of(life)]
        if near:
            pairs.append((life, (own or near)[0]))
            came.remove((own or near)[0])
    return pairs


def _in_its_place(life: Life, other: Life) -> bool:
    """Whether `other` joined shortly before `life` ended and outlived it, or joined within minutes after."""
    after_ms = other.from_ms - life.to_ms
    return 0 <= after_ms <= SHORT_LIFE_MS or (-SURGE_MS <= after_ms < 0 and not other.to_ms <= life.to_ms)


def _disturbed(history: History, begun: Sequence[float], life: Life) -> bool:
    """Whether the leave fell into a rebalance that counts. When the whole group stops, none does."""
    place = bisect_right(begun, life.to_ms + 2_000.0) - 1
    return place >= 0 and life.to_ms <= history.disturbances[place].ended_ms


def _restarts(history: History, pairs: list[tuple[Life, Life]]) -> list[Finding]:
    """A rolling deploy without static ids: each restart is a leave and a join."""
    ids = {life.member for pair in pairs for life in pair}
    rebalances = [one for one in history.disturbances if one.culprit in ids]
    if not rebalances:
        return []
    cost, measured = cost_of(history, rebalances)
    away_s = max(0.0, max(again.from_ms - life.to_ms for life, again in pairs) / 1000)
    return [
        Finding(
            kind=RESTARTS,
            culprit=", ".join(sorted({life.name for life, _ in pairs})[:3]),
            times=len(pairs),
            cost_ms=cost,
            measured=measured,
            what=f"{len(pairs)} members were restarted or replaced, away for up to {away_s:.0f} s: without instance "
            f"ids that took {counted(len(rebalances), 'rebalance')}.",
            change={"group.instance.id": "${HOSTNAME}", session_key(history): session_for(away_s * 2000)},
            do="Give each process a stable group.instance.id (a StatefulSet's pod name) and a session longer than a "
            "restart takes. Or run it with `holdfast run`, which hands over before it stops.",
            evidence=lives_evidence([life for life, _ in pairs], "left, to be replaced"),
        )
    ]
