"""Who owned each partition from when to when, and when nobody did.

The logs of members tell when partitions were assigned and revoked: those times are measured. For members without a log
the times are bounds from the leader's plan and the rounds. A plan holds from the round's end. An eager member owns
nothing from the round's beginning. A crashed member has owned nothing since its last sign of life. Between two
rebalances a member of whom nothing is told may have owned what nobody else did: that is no pause.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event
from holdfast.doctor.people import REPLACED, Life, People, plan_of, stopped_polling_ms
from holdfast.doctor.rounds import Rebalance

_Span = tuple[float, float]

KEPT = 200_000
"""Changes of ownership that are drawn and counted; later ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    partition: str
    who: str
    from_ms: float
    to_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    partition: str
    from_ms: float
    to_ms: float
    before: str
    after: str
    measured: bool

    @property
    def ms(self) -> float:
        return self.to_ms - self.from_ms


@dataclass(slots=True)
class Lanes:
    lanes: list[Lane] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    plans: dict[int, dict[str, frozenset[str]]] = field(default_factory=dict)
    """By generation: member id to partitions, as far as the logs tell."""
    partitions: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Open:
    who: str = ""
    since_ms: float = 0.0
    told: bool = False
    off_ms: float = float("nan")
    off_told: bool = False
    last: str = ""


def lanes_of(
    events: Sequence[Event], people: People, rebalances: Sequence[Rebalance], *, cooperative: bool | None
) -> Lanes:
    found = Lanes()
    found.plans = _plans(events)
    tell = {one.client for one in events if one.kind in (e.ADDED, e.REVOKED) and one.client}
    silent = {member for member, life in people.lives.items() if life.client not in tell}
    changes = _changes(events, people, rebalances, found.plans, silent, cooperative=cooperative)
    hidden = _hidden(people, rebalances, found.plans, silent)
    open_: dict[str, _Open] = {}
    held: dict[str, set[str]] = defaultdict(set)
    for at_ms, _, partition, who, told, whose in changes[:KEPT]:
        for at in sorted(held[whose]) if partition == ALL else (partition,):
            one = open_.setdefault(at, _Open())
            if who == one.who or (not who and whose != one.who):
                continue
            held[one.who].discard(at)
            held[who].add(at)
            _take_and_give(found, at, one, at_ms, who, told=told, hidden=hidden)
    end_ms = max((one.at_ms for one in events if one.at_ms == one.at_ms), default=0.0)
    for partition, one in open_.items():
        if one.who:
            found.lanes.append(Lane(partition=partition, who=one.who, from_ms=one.since_ms, to_ms=end_ms))
    found.partitions = frozenset(open_)
    found.lanes.sort(key=lambda one: (one.partition, one.from_ms))
    found.pauses.sort(key=lambda one: (one.from_ms, one.partition))
    return found


def _take_and_give(
    found: Lanes, partition: str, one: _Open, at_ms: float, who: str, *, told: bool, hidden: Sequence[_Span]
) -> None:
    """End the lane of its owner, if it has one, and the pause, if there is a new one. Where somebody of whom nothing is
    told may have owned it meanwhile, it was no pause."""
    if one.who:
        found.lanes.append(Lane(partition=partition, who=one.who, from_ms=one.since_ms, to_ms=at_ms))
        one.last, one.off_ms, one.off_told = one.who, at_ms, told
    if who:
        if one.off_ms == one.off_ms and at_ms > one.off_ms and not _falls_into(hidden, one.off_ms, at_ms):
            pause = Pause(partition=partition, from_ms=one.off_ms, to_ms=at_ms, before=one.last, after=who,
                          measured=told and one.off_told)  # fmt: skip
            found.pauses.append(pause)
        one.since_ms = at_ms
    one.who = who


def _hidden(
    people: People,
    rebalances: Sequence[Rebalance],
    plans: Mapping[int, Mapping[str, frozenset[str]]],
    silent: set[str],
) -> list[_Span]:
    """From each rebalance's end to the next one's begin, where somebody was in the group of whom nothing is told."""
    ended = sorted(rebalances, key=lambda one: one.ended_ms)
    there = people.at_each([one.ended_ms for one in ended])
    return [
        (one.ended_ms, after.began_ms)
        for (one, after), alive in zip(pairwise(ended), there, strict=False)
        if any(life.member in silent and life.member not in plans.get(one.generation, {}) for life in alive)
    ]


def _falls_into(hidden: Sequence[_Span], from_ms: float, to_ms: float) -> bool:
    """Whether one of these times lies between."""
    place = bisect_left(hidden, from_ms, key=lambda one: one[0])
    return place < len(hidden) and hidden[place][1] <= to_ms


def _plans(events: Sequence[Event]) -> dict[int, dict[str, frozenset[str]]]:
    plans: dict[int, dict[str, frozenset[str]]] = {}
    for event in events:
        if event.kind == e.PLANNED and event.generation >= 0:
            plans.setdefault(event.generation, {}).update(plan_of(event.partitions))
        elif event.kind == e.SYNCED and event.source == e.TRACE and event.member and event.generation >= 0:
            held = frozenset(event.partitions.split())
            plans.setdefault(event.generation, {})[event.member] = held
    return plans


_Change = tuple[float, int, str, str, bool, str]
"""(time, 0 for taken or 1 for given, partition, new owner or "", whether a member's log tells it, old owner).

The second field sorts a take before a give at the same time."""

ALL = ""
"""As a change's partition: all that the old owner holds. A fleet may have one name, and a leave for each minute: a
change for each partition that anybody of the name ever held would fill the memory."""


def _changes(
    events: Sequence[Event],
    people: People,
    rebalances: Sequence[Rebalance],
    plans: Mapping[int, Mapping[str, frozenset[str]]],
    silent: set[str],
    *,
    cooperative: bool | None,
) -> list[_Change]:
    changes = _from_logs(events, people)
    held: Mapping[str, frozenset[str]] = {}
    for one in rebalances:
        if cooperative is False:
            changes += _dropped(people, held, silent, one.began_ms, frozenset())
        for each in one.rounds:
            plan = plans.get(each.generation)
            if plan is None or each.ended_ms != each.ended_ms:
                continue
            taken = frozenset(at for had in plan.values() for at in had)
            changes += _dropped(people, held, silent, each.ended_ms, taken)
            changes += [
                (each.ended_ms, 1, at, people.name_of(who), False, "")
                for who, had in plan.items()
                if who in silent
                for at in had
            ]
            held = plan
    changes += _ended(people)
    changes.sort(key=lambda change: (change[0], change[1], change[2]))
    return changes


def _from_logs(events: Sequence[Event], people: People) -> list[_Change]:
    """Changes from the members' own logs."""
    changes: list[_Change] = []
    for event in events:
        if event.kind == e.ADDED:
            changes += [(event.at_ms, 1, at, _named(people, event), True, "") for at in event.partitions.split()]
        elif event.kind in (e.REVOKED, e.LOST):
            whose = _named(people, event)
            changes += [(event.at_ms, 0, at, "", True, whose) for at in event.partitions.split()]
    return changes


def _dropped(
    people: People, held: Mapping[str, frozenset[str]], silent: set[str], at_ms: float, kept: frozenset[str]
) -> list[_Change]:
    return [
        (at_ms, 0, at, "", False, people.name_of(who))
        for who, had in held.items()
        if who in silent
        for at in sorted(had - kept)
    ]


def _named(people: People, event: Event) -> str:
    if event.member:
        return people.name_of(event.member)
    alive = (one for one in reversed(people.of_client(event.client)) if not one.to_ms <= event.at_ms)
    return next((one.name for one in alive), event.client)


def _ended(people: People) -> list[_Change]:
    """Members that are gone own nothing, from their leave, their last poll or their last sign of life on."""
    gone = (life for life in people.lives.values() if life.over and life.how != REPLACED)
    return [(stopped_ms(life, people), 0, ALL, "", False, life.name) for life in gone]


def stopped_ms(life: Life, people: People) -> float:
    """When a member worked last, as closely as is known. For one that crashed: when its successor joined, or else one
    session before the coordinator noticed. For one that hung: max.poll.interval.ms before it exceeded it."""
    if life.how == causes.TOO_SLOW:
        return stopped_polling_ms(life, people)
    if life.how != causes.CRASH:
        return life.to_ms
    lives = people.of_process(life)
    again = bisect_right(lives, life.since_ms, key=lambda one: one.since_ms)
    if again < len(lives) and lives[again].from_ms < life.to_ms:
        return lives[again].from_ms
    return life.to_ms - people.session_ms
