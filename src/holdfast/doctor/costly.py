"""Other things that cost a group time: slow members, failing commits, an uneven plan, or simply too many rebalances."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event
from holdfast.doctor.finding import (
    AGAIN,
    BUSY,
    COMMITS,
    EVIDENCE_KEPT,
    MOST_PER_HOUR,
    SKEW,
    SLOW_LISTENER,
    SLOW_MS,
    Evidence,
    Finding,
    cost_of,
    evidence_of,
    times_text,
)
from holdfast.doctor.history import History
from holdfast.doctor.rounds import Rebalance, Round

REJOINS = (causes.SUBSCRIPTION, causes.PARTITIONS)
"""Causes under which a rejoin shows up: the coordinator's reason for a leader's rejoin reads like new partitions."""

JAVA_REVOKED = "need to revoke partitions"
"""Why a Java member rejoins when its listener has given partitions up."""

LISTENER_MS = 1_000.0
"""A listener call that takes longer is slow: one that only commits takes milliseconds."""


def slow_to_join(history: History) -> list[Finding]:
    """Slow listeners or long batches: a member that joins round after round last keeps everybody waiting."""
    waits = _long_waits(history)
    calls = _slow_calls(history)
    found = []
    for who in sorted({*waits, *calls}):
        late = waits.get(who, [])
        if len(late) < AGAIN and len(calls.get(who, ())) < AGAIN:
            continue
        cost, measured = cost_of(history, late)
        longest = max((_waited(each) for one in late for each in one.rounds), default=0.0)
        called = max(calls.get(who, [0.0]))
        why = f"its listener took up to {called / 1000:.1f} s" if called else "its listener or its batches are slow"
        name = who or "a member that left no log"
        found.append(
            Finding(
                kind=SLOW_LISTENER,
                culprit=who,
                times=max(len(late), len(calls.get(who, ()))),
                cost_ms=cost,
                measured=measured,
                what=f"Rounds waited up to {max(longest, called) / 1000:.1f} s for {name}, "
                f"{times_text(len(late))}: {why}.",
                change={"max.poll.records": "100"},
                do="In the listener only commit and close what is open; leave flushing and cleaning to another thread. "
                "With smaller batches a member joins a round sooner.",
                evidence=[evidence_of(one) for one in late[:EVIDENCE_KEPT]],
            )
        )
    return found


def _slow_calls(history: History) -> dict[str, list[float]]:
    """Listener calls of a second or more, by member. A trace holds the duration. Java logs a line before it calls the
    listener and another when it asks for the next round or joins."""
    calls: dict[str, list[float]] = defaultdict(list)
    began: dict[tuple[str, str], float] = {}
    for event in history.events:
        at = (event.file, event.client)
        if event.kind in (e.ADDED, e.REVOKED, e.LOST) and event.number >= LISTENER_MS:
            calls[_known_as(history, event)].append(event.number)
        if event.source != e.JAVA:
            continue
        if event.kind == e.REVOKED:
            began[at] = event.at_ms
        elif not _from_elsewhere(event):
            took = event.at_ms - began.pop(at, event.at_ms)
            if event.kind in (e.JOINING, e.WANTS) and took >= LISTENER_MS:
                calls[_known_as(history, event)].append(took)
    return calls


def _from_elsewhere(event: Event) -> bool:
    """Whether Java's heartbeat thread may have logged it while the listener was at work on the application's."""
    return event.kind == e.WANTS and "already rebalancing" in event.said


def _known_as(history: History, event: Event) -> str:
    """The name that the rest of the report uses for the event's member."""
    lives = history.people.of_client(event.client) if event.client else []
    return lives[-1].name if lives else event.client or history.people.name_of(event.member)


def _waited(each: Round) -> float:
    waited = each.barrier_ms - each.began_ms
    return waited if waited == waited and not each.first else 0.0


def _long_waits(history: History) -> dict[str, list[Rebalance]]:
    """Rebalances with a long wait, by the member that was waited for. Where several members are suspects, it is the
    one that is suspected every time."""
    waits: dict[str, list[Rebalance]] = defaultdict(list)
    open_: list[tuple[Rebalance, frozenset[str]]] = []
    for one in history.rebalances:
        if one.trigger in (causes.CRASH, causes.COORDINATOR):
            continue  # the wait was for the dead member
        for each in one.rounds:
            if _waited(each) >= SLOW_MS:
                if each.slowest:
                    waits[each.slowest].append(one)
                elif each.suspects:
                    open_.append((one, each.suspects))
        for late in _late_revokers(one):
            waits[history.people.name_of(late)].append(one)
    known = frozenset(waits)
    rest = [(one, suspects) for one, suspects in open_ if not suspects & known]
    for one, suspects in open_:
        if suspects & known:
            waits[min(suspects & known)].append(one)
    if rest:
        common = frozenset.intersection(*(suspects for _, suspects in rest))
        waits[next(iter(common)) if len(common) == 1 else ""] += [one for one, _ in rest]
    return waits


def _late_revokers(one: Rebalance) -> list[str]:
    """Members that delayed a second round. librdkafka joins a round while its application is busy, but revokes only
    when the application polls. Then all of the wait lies between two rounds, and the member whose rejoin begins the
    second one is the member that was waited for."""
    return [
        after.culprit
        for before, after in pairwise(one.rounds)
        if (after.trigger in REJOINS or JAVA_REVOKED in after.reason)
        and after.culprit
        and after.began_ms - before.ended_ms >= SLOW_MS
    ]


def commit_failures(history: History) -> list[Finding]:
    failed = [event for event in history.events if event.kind in (e.COMMIT_FAILED, e.REFUSED_COMMIT)]
    if len(failed) < 3:
        return []
    counts: dict[str, int] = defaultdict(int)
    for event in failed:
        counts[event.client or history.people.name_of(event.member)] += 1
    worst = max(sorted(counts), key=lambda who: counts[who])
    return [
        Finding(
            kind=COMMITS,
            culprit=worst,
            times=len(failed),
            cost_ms=0.0,
            what=f"{len(failed)} commits failed"
            + (f", {counts[worst]} of them by {worst}" if worst else "")
            + ": the next owner processes the same records again.",
            change={"max.poll.records": "100"},
            do="A commit fails when its member is out of the group: look at the other findings first. Commit in the "
            "revoked listener, and make the work idempotent.",
            evidence=[Evidence(at_ms=one.at_ms, what=one.said or "refused", where=one.where) for one in failed[:8]],
        )
    ]


def skew(history: History) -> list[Finding]:
    """Members with no partitions, or far more than others, in the last known plan."""
    plan = _last_plan(history)
    if len(plan) < 2:
        return []
    sizes = {who: len(held) for who, held in plan.items()}
    most, least = max(sizes.values()), min(sizes.values())
    if most - least < 2 or (least > 0 and most < 2 * least):
        return []
    if sum(sizes.values()) < len(sizes):  # fewer partitions than members: somebody must be idle
        return []
    worst = max(sorted(sizes), key=lambda who: sizes[who])
    return [
        Finding(
            kind=SKEW,
            culprit=history.people.name_of(worst),
            times=1,
            what=f"{history.people.name_of(worst)} holds {most} partitions, others {least}.",
            change={"group.remote.assignor": "uniform"}
            if history.level == "consumer"
            else {"partition.assignment.strategy": "cooperative-sticky"},
            do="range gives the first members one partition of every topic more; sticky assignors balance over all. "
            "If members subscribe to different topics, check whether that is intended.",
            evidence=[],
        )
    ]


def _last_plan(history: History) -> dict[str, frozenset[str]]:
    held: dict[str, set[str]] = defaultdict(set)
    rows = [event for event in history.events if event.kind == e.HOLDS and event.member]
    for event in rows:
        held[event.member].add(event.partitions)
    if held:
        return {who: frozenset(each) for who, each in held.items()}
    final = [one.rounds[-1] for one in history.rebalances if one.rounds[-1].generation in history.lanes.plans]
    for each in reversed(final):
        plan = history.lanes.plans[each.generation]
        if len(plan) == each.members:
            return dict(plan)
    return {}


def busy(history: History) -> list[Finding]:
    """Too many rebalances without one of the usual reasons."""
    disturbed = history.disturbances
    hours = max(history.span_ms, 3_600_000.0) / 3_600_000.0
    if len(disturbed) / hours <= MOST_PER_HOUR:
        return []
    cost, measured = cost_of(history, disturbed)
    cause, times = history.causes().most_common(1)[0]
    culprits: dict[str, int] = defaultdict(int)
    for one in disturbed:
        culprits[one.who] += one.trigger == cause
    return [
        Finding(
            kind=BUSY,
            culprit=max(sorted(culprits), key=lambda who: culprits[who]),
            times=len(disturbed),
            cost_ms=cost,
            measured=measured,
            what=f"{len(disturbed)} rebalances in {history.span_ms / 60_000:.0f} min, {times} of them because "
            f"{causes.WORDS[cause]}.",
            change={},
            do="More than 5 an hour need a reason. The table of rebalances says who caused which.",
            evidence=[evidence_of(one) for one in disturbed[:EVIDENCE_KEPT]],
        )
    ]
