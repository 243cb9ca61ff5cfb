"""What a change would save: the history is simulated twice, as it was and with the new settings.

The simulator runs the same machines as the product, on virtual time. It gets the history's shape: as many members and
partitions (within bounds), the same kind of assignor and timeouts, and the same events at the same times. If the change
cuts the simulated time without processing by a third, it is taken to save a third of the history's own cost. Of long
histories only a part is simulated.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.doctor import causes
from holdfast.doctor import finding as f
from holdfast.doctor.finding import Finding
from holdfast.doctor.history import History
from holdfast.doctor.lanes import stopped_ms
from holdfast.doctor.people import EXPELLED, POLL_MS
from holdfast.doctor.rounds import Rebalance
from holdfast.model import HoldfastError
from holdfast.sim.played import play
from holdfast.sim.setup import Setup

MOST_MEMBERS, MOST_PARTITIONS, MOST_EVENTS = 8, 48, 12
MOST_S = 900.0
"""Simulating a quarter of an hour of eight members takes about a second."""

Plays = tuple[tuple[Setup, str], tuple[Setup, str]]
"""A setup and the kind of group to simulate: as it was, and with the change."""

LEAD_S = 12.0
"""The first event comes when all members have joined."""


def with_savings(history: History, found: list[Finding]) -> list[Finding]:
    """The findings, each with what its change is expected to save, if the simulator can play it."""
    for one in found:
        if not one.change:
            one.saves_how = "no setting is to be changed"
            continue
        plays = _plays(history, one)
        if plays is None:
            one.saves_how = "the simulator can't play this"
            continue
        (before, kind), (after, new_kind) = plays
        try:
            was, now = play(before, kind).summary.dark_ms, play(after, new_kind).summary.dark_ms
        except HoldfastError as error:
            one.saves_how = f"could not be played: {error.what}"
            continue
        one.saves_ms = one.cost_ms * (1.0 - min(was, now) / was) if was > 0 else 0.0
        one.saves_how = (
            f"played in the simulator: {was / 1000:.1f} partition-seconds without processing as it was, "
            f"{now / 1000:.1f} with the change (holdfast sim {before.as_options()})"
        )
    return found


def _plays(history: History, one: Finding) -> Plays | None:
    setup = _setup(history)
    kind = "eager" if history.cooperative is False else "cooperative"
    if one.kind in (f.STORM, f.HANG):
        return _hangs(history, setup, kind, one)
    if one.kind in (f.CRASH_LOOP, f.CRASHES):
        return _crashes(history, setup, kind, one)
    if one.kind == f.RESTARTS:
        return _restarts(history, setup, kind, one)
    if one.kind == f.COLLISION:
        twins = ",".join(f"twin:c0@{LEAD_S + 20 * n:g}s" for n in range(min(one.times, 5)))
        before = replace(setup, static=True, events=twins, duration=_length(LEAD_S + 100))
        return (before, kind), (replace(before, events=""), kind)
    events = _events(history, [each for each in history.disturbances if each.trigger != causes.CRASH])
    if not events:
        return None
    before = replace(setup, events=events, duration=_length(_last_s(events)))
    if one.kind == f.EAGER:
        return (before, "eager"), (before, "cooperative")
    if one.kind == f.SLOW_LISTENER:
        return _slow(history, before, kind)
    if one.kind == f.FLAPPING:
        joins = ",".join(word for word in events.split(",") if word.startswith("join"))
        return (before, kind), (replace(before, events=joins.partition(",")[0]), kind)
    return None


def _setup(history: History) -> Setup:
    members = min(MOST_MEMBERS, max(2, history.members))
    partitions = min(MOST_PARTITIONS, max(members, history.partitions))
    return Setup(members=members, partitions=partitions, max_poll="5m", duration="60s")


def _hangs(history: History, setup: Setup, kind: str, one: Finding) -> Plays:
    lives = [life for life in history.people.lives.values() if life.how in (causes.TOO_SLOW, EXPELLED)]
    limit_s = max((history.people.poll_ms_of(life) for life in lives), default=POLL_MS) / 1000
    every_s = limit_s + 20.0
    count = max(1, min(one.times, int((MOST_S - LEAD_S) / every_s)))
    hangs = ",".join(f"hang:c0@{LEAD_S + n * (every_s + 5):g}s+{limit_s + 5:g}s" for n in range(count))
    session = f"{min(45.0, max(6.0, limit_s)):g}s"
    before = replace(setup, events=hangs, max_poll=f"{limit_s:g}s", session=session,
                     duration=_length(LEAD_S + count * (every_s + 5)))  # fmt: skip
    return (before, kind), (replace(before, events=""), kind)


def _crashes(history: History, setup: Setup, kind: str, one: Finding) -> Plays:
    gone = [life for life in history.people.lives.values() if life.how == causes.CRASH]
    session_s = history.session_ms / 1000
    away = [max(1.0, (life.to_ms - stopped_ms(life, history.people)) / 1000) for life in gone]
    away_s = min(max(1.0, min(away, default=2.0)), session_s - 1) if one.kind == f.CRASH_LOOP else session_s + 5
    count = max(1, min(one.times, int((MOST_S - LEAD_S) / (session_s + 20))))
    bounces = ",".join(f"bounce:c0@{LEAD_S + n * (session_s + 15):g}s+{away_s:.1f}s" for n in range(count))
    before = replace(setup, events=bounces, session=f"{max(6.0, session_s):g}s",
                     duration=_length(LEAD_S + count * (session_s + 15)))  # fmt: skip
    if one.kind == f.CRASH_LOOP:
        return (before, kind), (replace(before, static=True), kind)
    return (before, kind), (replace(before, session="10s", heartbeat="3s"), kind)


def _restarts(history: History, setup: Setup, kind: str, one: Finding) -> Plays:
    away_s = 5.0
    count = min(one.times, setup.members, MOST_EVENTS)
    restarts = ",".join(f"restart:c{n % setup.members}@{LEAD_S + 25 * n:g}s+{away_s:g}s" for n in range(count))
    before = replace(setup, events=restarts, duration=_length(LEAD_S + 25 * count))
    return (before, kind), (replace(before, static=True, session="45s"), kind)


def _slow(history: History, setup: Setup, kind: str) -> Plays:
    """Members join, so that the slow one must revoke something; its listener takes as long as rounds waited."""
    waits = [each.barrier_ms - each.began_ms for one in history.rebalances for each in one.rounds]
    waits += [one.between_ms for one in history.disturbances]
    slow_s = min(60.0, max((wait for wait in waits if wait == wait), default=0.0) / 1000)
    joins = f"join@{LEAD_S:g}s,join@{LEAD_S + slow_s + 20:g}s"
    partitions = max(setup.partitions, 4 * setup.members)
    after = replace(setup, partitions=partitions, events=joins, duration=_length(LEAD_S + 80))
    slowed = ",".join(f"slow:c{number}@1s+{slow_s:.1f}s" for number in range(setup.members))
    return (replace(after, events=f"{slowed},{after.events}"), kind), (after, kind)


_EVENTS = {causes.JOIN: "join", causes.LEAVE: "leave", causes.DRAIN: "leave", causes.WATCHDOG: "leave",
           causes.TOO_SLOW: "leave", causes.FORCED: "enforce", causes.SUBSCRIPTION: "enforce"}  # fmt: skip


def _events(history: History, rebalances: list[Rebalance]) -> str:
    """What happened, in the syntax of `holdfast sim --events`."""
    played = [one for one in rebalances if one.trigger in _EVENTS][:MOST_EVENTS]
    if not played:
        return ""
    words, at_s, alive = [], LEAD_S, min(MOST_MEMBERS, max(2, history.members))
    joined: list[str] = []
    number = alive
    for before, one in zip([None, *played], played, strict=False):
        gap_s = 25.0 if before is None else (one.began_ms - before.began_ms) / 1000
        at_s += 0.0 if before is None else min(30.0, max(8.0, gap_s))
        kind = _EVENTS[one.trigger]
        if kind == "join":
            words.append(f"join@{at_s:g}s")
            joined.append(f"c{number}")
            number += 1
        elif kind == "leave" and (joined or alive > 1):
            who = joined.pop() if joined else f"c{alive - 1}"
            alive -= 0 if who != f"c{alive - 1}" else 1
            words.append(f"leave:{who}@{at_s:g}s")
        elif kind == "enforce":
            words.append(f"enforce:c0@{at_s:g}s")
    return ",".join(words)


def _last_s(events: str) -> float:
    return max(float(word.partition("@")[2].partition("s")[0]) for word in events.split(","))


def _length(last_s: float) -> str:
    return f"{min(MOST_S, last_s + 60):g}s"
