"""Rounds from a group's events, and rebalances from rounds.

A round begins with the coordinator's reason, waits for members until its barrier (the new generation), and ends when
the leader's plan has arrived. Without a coordinator's log it is put together from what members logged about the same
generation. Rounds that follow from each other are one rebalance: the second round of a cooperative handover, the round
after an interrupted one, the joins when a group starts, the leaves when it stops.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event

FOLLOW_UP_MS = 10_000.0
"""The second round of a handover begins within this time: it waits for the next heartbeats, 3 s by default."""

GATHERING_MS = 15_000.0
"""When a deployment starts, its members join within this time of each other."""

PARTING_MS = 5_000.0
"""When a deployment stops, its members leave within this time of each other."""

JUST_NOW_MS = 2_000.0
"""A coordinator logs who left this shortly before the round that the leave causes."""


@dataclass(slots=True, kw_only=True)
class Round:
    began_ms: float
    trigger: str
    reason: str = ""
    culprit: str = ""
    """The member id in the reason."""
    barrier_ms: float = float("nan")
    ended_ms: float = float("nan")
    generation: int = -1
    members: int = 0
    slowest: str = ""
    """Who joined last, if known."""
    suspects: frozenset[str] = frozenset()
    """Who may have joined last: members without a log, if none of the others was the last."""
    synced_ms: float = float("nan")
    """When the last member that logs it had its assignment."""
    interrupted: bool = False
    where: str = ""
    first: bool = False
    """The group was empty before."""


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """The rounds from the first disturbance until nobody owes a rejoin."""

    rounds: list[Round]
    trigger: str
    culprit: str = ""
    """A member id; `who` is the same member's name for people."""
    who: str = ""
    host: str = ""
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    moved: int = -1
    needless: int = -1
    partition_ms: float = 0.0
    """Time without processing that it caused, summed over all partitions."""
    measured: bool = False
    """Whether that comes from the members' logs; otherwise it is a bound from the rounds' times."""

    @property
    def began_ms(self) -> float:
        return self.rounds[0].began_ms

    @property
    def ended_ms(self) -> float:
        last = self.rounds[-1]
        return next((at for at in (last.ended_ms, last.barrier_ms) if at == at), last.began_ms)

    @property
    def generation(self) -> int:
        return self.rounds[-1].generation

    @property
    def waited_ms(self) -> float:
        """How long the rounds waited for their slowest member: from the beginning until everybody has joined."""
        return sum(one.barrier_ms - one.began_ms for one in self.rounds if one.barrier_ms == one.barrier_ms)

    @property
    def planned_ms(self) -> float:
        """From then until the leader's plan has arrived."""
        return sum(one.ended_ms - one.barrier_ms for one in self.rounds if one.ended_ms - one.barrier_ms >= 0)

    @property
    def synced_ms(self) -> float:
        """From then until the last member that logs it had its assignment."""
        return sum(max(0.0, one.synced_ms - one.ended_ms) for one in self.rounds if one.synced_ms >= one.ended_ms)

    @property
    def between_ms(self) -> float:
        """The time between its rounds: members hear of a second round on their heartbeats."""
        return max(0.0, self.took_ms - self.waited_ms - self.planned_ms)

    @property
    def took_ms(self) -> float:
        return self.ended_ms - self.began_ms

    @property
    def slowest(self) -> str:
        waits = [one for one in self.rounds if one.slowest and one.barrier_ms == one.barrier_ms]
        return max(waits, key=lambda one: one.barrier_ms - one.began_ms).slowest if waits else ""

    @property
    def where(self) -> str:
        return self.rounds[0].where

    @property
    def counts(self) -> bool:
        """Whether it disturbed a working group. Starts and stops do not count."""
        return self.trigger not in (causes.START, causes.STOP)


def rounds_of(events: Sequence[Event]) -> list[Round]:
    """The rounds in a coordinator's events, which are in order of time."""
    found: list[Round] = []
    now: Round | None = None
    recent: list[Event] = []  # who left, was expelled, joined or was replaced right before
    empty = False  # not yet known to be: a log may begin in the middle of a group's life
    for event in events:
        if event.kind in (e.LEFT, e.EXPIRED, e.EXPELLED, e.ARRIVED, e.REPLACED):
            recent = [one for one in recent if event.at_ms - one.at_ms <= JUST_NOW_MS] + [event]
        elif event.kind == e.PREPARING:
            if now is not None:
                now.interrupted = True
                found.append(now)
            now = _begun(event, recent, first=empty or event.generation == (1 if event.level == "consumer" else 0))
            empty = False
        elif event.kind == e.GENERATION:
            if now is None or now.barrier_ms == now.barrier_ms:
                now = Round(
                    began_ms=event.at_ms, trigger=causes.UNKNOWN, where=event.where, first=event.generation == 1
                )
            now.barrier_ms, now.generation = event.at_ms, event.generation
            now.members = max(0, int(event.number))
        elif event.kind == e.STABLE:
            if now is None:
                now = Round(
                    began_ms=event.at_ms, trigger=causes.UNKNOWN, where=event.where, generation=event.generation
                )
            now.ended_ms = event.at_ms
            now.generation = max(now.generation, event.generation)
            now.members = max(now.members, int(event.number))
            found.append(now)
            now = None
        elif event.kind == e.EMPTY:
            empty, now = True, None
            _mark_stop(found, event.at_ms)
    if now is not None:
        found.append(now)
    return found


def _begun(event: Event, recent: list[Event], *, first: bool) -> Round:
    culprit = event.member
    trigger = causes.of_round(event.said)
    cutoff = event.at_ms - JUST_NOW_MS
    near = [one for one in recent if one.at_ms >= cutoff and (not culprit or one.member == culprit)]
    if event.level == "consumer":  # the new protocol says only that something changed
        last = near[-1] if near else None
        kinds = {e.ARRIVED: causes.JOIN, e.LEFT: causes.LEAVE, e.EXPIRED: causes.CRASH, e.EXPELLED: causes.TOO_SLOW}
        trigger = causes.PARTITIONS if last is None else kinds.get(last.kind, causes.UNKNOWN)
        culprit = "" if last is None else last.member
    elif trigger == causes.LEAVE:
        said = next((one.said for one in reversed(near) if one.kind == e.LEFT), "")
        trigger = causes.of_leave(said)
    return Round(
        began_ms=event.at_ms, trigger=trigger, reason=event.said, culprit=culprit, where=event.where, first=first,
        generation=event.generation if event.level == "consumer" else -1,
    )  # fmt: skip


def _mark_stop(found: list[Round], at_ms: float) -> None:
    """The leaves right before a group became empty are its stop."""
    until = at_ms
    for one in reversed(found):
        done = one.ended_ms if one.ended_ms == one.ended_ms else one.began_ms
        if one.trigger not in (causes.LEAVE, causes.CRASH, causes.FOLLOW_UP) or until - done > PARTING_MS:
            return
        one.trigger = causes.STOP if one.trigger != causes.FOLLOW_UP else one.trigger
        until = one.began_ms


def rebalances_of(rounds: Iterable[Round], returned: Callable[[str], bool] = lambda member: False) -> list[Rebalance]:
    """`returned` says whether a member's process was in the group before; its join is then no part of the start."""
    found: list[Rebalance] = []
    for one in rounds:
        last = found[-1] if found else None
        if last is not None and _belongs(one, last) and not (one.trigger == causes.JOIN and returned(one.culprit)):
            last.rounds.append(one)
            if last.trigger == causes.FOLLOW_UP:  # the log began after the first round
                last.trigger = one.trigger
            continue
        trigger = causes.START if one.first else one.trigger
        found.append(Rebalance(rounds=[one], trigger=trigger, culprit=one.culprit))
    return found


def _belongs(one: Round, last: Rebalance) -> bool:
    gap_ms = one.began_ms - last.ended_ms
    if last.trigger == causes.START and one.trigger == causes.JOIN and gap_ms <= GATHERING_MS:
        return True
    if last.trigger == one.trigger == causes.STOP and gap_ms <= PARTING_MS:
        return True
    if gap_ms > FOLLOW_UP_MS:
        return False
    if last.rounds[-1].interrupted and one.trigger not in (causes.TOO_SLOW, causes.CRASH):
        return True
    if last.trigger == causes.DRAIN and one.culprit == last.culprit:
        return True
    return causes.may_follow(one.reason) and one.trigger not in (causes.TOO_SLOW, causes.CRASH, causes.JOIN)


# -- what members say about the same rounds


def from_members(events: Sequence[Event]) -> list[Event]:
    """The coordinator's events, as far as the members' logs tell them. For groups without a coordinator's log."""
    joined: dict[int, list[Event]] = defaultdict(list)
    done: dict[int, float] = {}
    wanted: dict[str, Event] = {}
    leaving: list[Event] = []
    began: dict[int, Event] = {}
    current: dict[str, int] = {}
    for event in events:
        who = event.client or event.member
        if event.kind in (e.WANTS, e.JOINING):
            before = wanted.get(who)
            if before is None or (event.kind == e.WANTS and not before.said):
                wanted[who] = event if before is None or before.kind != e.JOINING else _with_reason(before, event)
        elif event.kind == e.LEAVING:
            leaving.append(event)
        elif event.kind == e.JOINED and event.generation >= 0:
            current[who] = event.generation
            asked = wanted.pop(who, event)
            first = began.get(event.generation)
            if first is None or asked.at_ms < first.at_ms:
                began[event.generation] = asked
            joined[event.generation].append(event)
        elif event.kind == e.SYNCED:
            number = event.generation if event.generation >= 0 else current.get(who, -1)
            if number >= 0:
                done[number] = min(done.get(number, event.at_ms), event.at_ms)
    return _as_coordinator(joined, done, began, leaving)


def _with_reason(joining: Event, wants: Event) -> Event:
    joining.said = wants.said
    return joining


def _as_coordinator(
    joined: dict[int, list[Event]], done: dict[int, float], began: dict[int, Event], leaving: list[Event]
) -> list[Event]:
    made: list[Event] = []
    known: set[str] = set()
    told = 0  # of the leaves, which are in order of time
    for number in sorted(joined):
        members = joined[number]
        first, barrier = began[number], min(one.at_ms for one in members)
        until = max(told, bisect_right(leaving, barrier, key=lambda one: one.at_ms))
        left, told = leaving[told:until], until
        new = [one for one in members if (one.client or one.member) not in known]
        reason, culprit = _why(first, left, new, is_first=not known)
        group = members[0].group
        for one in left:
            made.append(_as(one, e.LEFT, group, one.at_ms, said=one.said))
            known.discard(one.client or one.member)
        for one in new:
            made.append(_as(one, e.ARRIVED, group, first.at_ms))
        start = min([first.at_ms, *(one.at_ms for one in left)])
        made.append(_as(first, e.PREPARING, group, start, said=reason, member=culprit, generation=number - 1))
        made.append(_as(members[0], e.GENERATION, group, barrier, generation=number, number=float(len(members))))
        made.append(_as(members[0], e.STABLE, group, max(barrier, done.get(number, barrier)), generation=number))
        known |= {one.client or one.member for one in members}
    return sorted(made, key=lambda one: one.at_ms)


def _why(first: Event, left: list[Event], new: list[Event], *, is_first: bool) -> tuple[str, str]:
    """A reason in the coordinator's words, and the member it names."""
    if left:
        return f"Removing member {left[0].member} on LeaveGroup; client reason: {left[0].said}", left[0].member
    if new and not is_first:
        return f"Adding new member {new[0].member}; client reason: {first.said}", new[0].member
    return f"Updating metadata for member {first.member}; client reason: {first.said}", first.member


def _as(event: Event, kind: str, group: str, at_ms: float, **told: object) -> Event:
    made = Event(
        at_ms=at_ms, kind=kind, source=event.source, group=group, member=event.member, client=event.client,
        instance=event.instance, file=event.file, line=event.line, level="classic",
    )  # fmt: skip
    for name, value in told.items():
        setattr(made, name, value)
    return made
