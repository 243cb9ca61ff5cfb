"""Who was in a group, from when to when, and how each member's time in it ended.

A life belongs to one member id. Client id (or instance id) and host together identify a process. If several members
have one client id at once and the logs tell no hosts, each member id counts as a process of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of
from holdfast.model.text import one_line

REPLACED = "replaced"
EXPELLED = "expelled"

NEAR_MS = 5_000.0
"""How far apart, on corrected clocks, the client's and the coordinator's line about the same leave may be."""

INFINITY = float("inf")

TooSlow = dict[str, list[Event]]
"""By client: its lines about max.poll.interval.ms being exceeded, in order of time."""

LIVES_KEPT = 20_000
"""A rebalance storm of a day has thousands of lives. Beyond this number no more are kept."""


@dataclass(slots=True, kw_only=True)
class Life:
    member: str
    client: str = ""
    instance: str = ""
    host: str = ""
    from_ms: float
    to_ms: float = float("nan")
    how: str = ""
    """How it ended: a cause, "replaced" or "expelled"; empty while the member is in the group."""
    where: str = ""
    """The line that tells its end."""
    session_ms: float = float("nan")
    poll_ms: float = float("nan")
    """Its max.poll.interval.ms, if it logged that value when it exceeded it."""

    @property
    def name(self) -> str:
        who = self.instance or self.client or self.member
        return one_line(f"{who}@{self.host}" if self.host else who)

    @property
    def since_ms(self) -> float:
        """`from_ms`; before everything for a member that was there when the log began. Lives are sorted by it: with
        NaN among its keys a sort returns any order."""
        return self.from_ms if self.from_ms == self.from_ms else -INFINITY

    @property
    def over(self) -> bool:
        return self.to_ms == self.to_ms

    @property
    def ms(self) -> float:
        return self.to_ms - self.from_ms


@dataclass(slots=True)
class People:
    lives: dict[str, Life] = field(default_factory=dict)
    """By member id, in the order in which they began."""
    shared: frozenset[str] = frozenset()
    """Client ids that several processes used at the same time."""
    _processes: dict[str, list[Life]] | None = None
    _crashes: dict[str, list[float]] | None = None
    _last_end: list[tuple[float, float]] | None = None
    """(when somebody came, the latest time at which any of those who had come by then left)"""
    _clients: dict[str, list[Life]] | None = None

    def name_of(self, member_id: str) -> str:
        life = self.lives.get(member_id)
        return life.name if life is not None else one_line(client_of(member_id) or member_id)

    def process_of(self, life: Life) -> str:
        """A name for the process that stays the same across restarts."""
        if life.instance:
            return f"instance {life.instance}"
        if not life.client:
            return life.member
        if life.client in self.shared:
            return f"{life.client}@{life.host}" if life.host else life.member
        return life.client

    def returned(self, member_id: str) -> bool:
        """Whether its process had been in the group before."""
        life = self.lives.get(member_id)
        if life is None or (not life.client and not life.instance):
            return False
        return any(one.from_ms < life.from_ms for one in self.of_process(life)[:1])

    def of_process(self, life: Life) -> list[Life]:
        """All lives of the same process, oldest first. Sorted once, because a rebalance storm has thousands."""
        if self._processes is None:
            self._processes = {}
            for one in sorted(self.lives.values(), key=lambda one: one.since_ms):
                self._processes.setdefault(self.process_of(one), []).append(one)
        return self._processes[self.process_of(life)]

    def crashed_within(self, life: Life, from_ms: float, to_ms: float) -> bool:
        """Whether the coordinator noticed in this time that an earlier or later life of the process had crashed."""
        if self._crashes is None:
            self._crashes = {}
            for one in sorted(self.lives.values(), key=lambda one: one.to_ms if one.over else INFINITY):
                if one.how == causes.CRASH:
                    self._crashes.setdefault(self.process_of(one), []).append(one.to_ms)
        ends = self._crashes.get(self.process_of(life), [])
        first, last = bisect_left(ends, from_ms), bisect_right(ends, to_ms)
        own = life.how == causes.CRASH and from_ms <= life.to_ms <= to_ms
        return last - first > own

    def any_outlasts(self, at_ms: float, until_ms: float) -> bool:
        """Whether anybody who came before the first time was still there after the second."""
        if self._last_end is None:
            lives = sorted(self.lives.values(), key=lambda one: one.since_ms)
            ends = accumulate((one.to_ms if one.over else INFINITY for one in lives), max)
            self._last_end = list(zip((one.since_ms for one in lives), ends, strict=True))
        before = bisect_left(self._last_end, (at_ms, -INFINITY))
        return before > 0 and self._last_end[before - 1][1] > until_ms

    def of_client(self, client: str) -> list[Life]:
        """All lives under a client id, oldest first."""
        if self._clients is None:
            self._clients = {}
            for one in self.lives.values():
                self._clients.setdefault(one.client, []).append(one)
        return self._clients.get(client, [])

    def at_each(self, times_ms: Sequence[float]) -> Iterator[list[Life]]:
        """Who was in the group at each of these ascending times."""
        coming = sorted(self.lives.values(), key=lambda one: one.from_ms if one.from_ms == one.from_ms else INFINITY)
        there: dict[str, Life] = {}
        place = 0
        for at_ms in times_ms:
            while place < len(coming) and coming[place].from_ms <= at_ms:
                there[coming[place].member] = coming[place]
                place += 1
            there = {member: life for member, life in there.items() if not life.to_ms <= at_ms}
            yield list(there.values())


def people_of(events: Sequence[Event]) -> People:
    lives: dict[str, Life] = {}
    unnamed: dict[str, str] = {}  # instances that came back under a member id that no line has told yet
    too_slow: TooSlow = defaultdict(list)
    for one in events:
        if one.kind == e.TOO_SLOW:
            too_slow[one.client].append(one)
    drained = {one.member for one in events if one.kind == e.LEAVING and causes.of_leave(one.said) == causes.DRAIN}
    for event in events:
        if event.kind == e.PLANNED:
            for member in plan_of(event.partitions):
                _seen(lives, event, member)
            continue
        if event.kind == e.REPLACED:
            _adopt(lives, unnamed, event.said)
            _end(lives, event, event.said, REPLACED)
            if not event.member:  # Kafka's line does not say under which member id it came back
                name = f"{event.instance} (life {len(lives) + 1})"
                if _begun(lives, Life(member=name, instance=event.instance, from_ms=event.at_ms)) is not None:
                    unnamed[event.instance] = name
                continue
        if not event.member or event.kind in (e.LEAVING, e.WANTS, e.JOINING, e.FENCED):
            continue
        _adopt(lives, unnamed, event.member)
        if event.kind == e.PREPARING and "dding" not in event.said:
            continue
        if event.kind in (e.LEFT, e.EXPIRED, e.EXPELLED):
            known = lives.get(event.member)
            client = event.client or (known.client if known is not None else "")
            _end(lives, event, event.member, _how(event, client, too_slow, drained))
            if event.member in lives:
                _poll_interval(lives[event.member], too_slow)
            continue
        _seen(lives, event, event.member)
    return People(lives, _shared(lives.values()))


def described(people: People, rows: Iterable[Event]) -> None:
    """Add what a saved --describe tells about members: their hosts and instance ids."""
    for row in rows:
        life = people.lives.get(row.member)
        if life is not None:
            life.host, life.instance = life.host or row.host, life.instance or row.instance


def _adopt(lives: dict[str, Life], unnamed: dict[str, str], member: str) -> None:
    """Give an instance that came back without a known member id this one, if it fits."""
    name = unnamed.get(client_of(member))
    if member in lives or name is None:
        return
    life = lives.pop(name)
    life.member = member
    lives[member] = life
    del unnamed[client_of(member)]


def _begun(lives: dict[str, Life], life: Life) -> Life | None:
    """Keep this life; None if there are too many."""
    if len(lives) >= LIVES_KEPT:
        return None
    return lives.setdefault(life.member, life)


def _seen(lives: dict[str, Life], event: Event, member: str) -> None:
    life = lives.get(member) or _begun(lives, Life(member=member, client=client_of(member), from_ms=event.at_ms))
    if life is None:
        return
    if event.member == member:
        life.client = event.client or life.client
        life.instance = event.instance or life.instance
        life.host = event.host or life.host
    if life.instance and life.client == life.instance:
        life.client = ""
    if "group instance id " in event.said and event.member == member:
        told = event.said.partition("group instance id ")[2].partition(";")[0].strip(" .")
        told = told.removeprefix("Some(").removesuffix(")")
        life.instance = "" if told in ("null", "None", "") else told


def _end(lives: dict[str, Life], event: Event, member: str, how: str) -> None:
    life = lives.get(member) or _begun(lives, Life(member=member, client=client_of(member), from_ms=float("nan")))
    if life is None or life.over:
        return
    life.to_ms, life.how, life.where = event.at_ms, how, event.where
    if event.member == member:
        life.client, life.host = event.client or life.client, event.host or life.host
        life.instance = event.instance or life.instance
        if event.kind == e.LEFT and event.number > 0:
            life.session_ms = event.number


def _poll_interval(life: Life, too_slow: TooSlow) -> None:
    for event in _near(too_slow.get(life.client, ()), life.to_ms):
        told = event.said.partition("max.poll.interval.ms=")[2]
        if told.isdigit():
            life.poll_ms = float(told)


def _near(events: Sequence[Event], at_ms: float) -> Sequence[Event]:
    """Those within NEAR_MS. By bisection: a fleet with one client id for all logs thousands of them a day."""
    first = bisect_left(events, at_ms - NEAR_MS, key=lambda one: one.at_ms)
    return events[first : bisect_right(events, at_ms + NEAR_MS, key=lambda one: one.at_ms)]


def _how(event: Event, client: str, too_slow: TooSlow, draining: set[str]) -> str:
    if event.kind == e.EXPIRED:
        return causes.CRASH
    if event.kind == e.EXPELLED:
        return EXPELLED
    told = causes.of_leave(event.said)
    if told == causes.LEAVE and event.member in draining:
        return causes.DRAIN
    if told == causes.LEAVE and _near(too_slow.get(client, ()), event.at_ms):
        return causes.TOO_SLOW
    return told


def _shared(lives: Iterable[Life]) -> frozenset[str]:
    """Client ids that two members used at once. A crashed member whose session still runs does not count."""
    by_client: dict[str, list[Life]] = {}
    for one in lives:
        if one.client and one.from_ms == one.from_ms:
            by_client.setdefault(one.client, []).append(one)
    found = set()
    for client, each in by_client.items():
        each.sort(key=lambda one: one.from_ms)
        for before, after in pairwise(each):
            beside = not before.over or before.to_ms > after.from_ms + NEAR_MS
            ghost = before.how in (causes.CRASH, REPLACED, EXPELLED) or (before.instance and after.instance)
            if beside and not ghost:
                found.add(client)
    return frozenset(found)


def plan_of(text: str) -> Mapping[str, frozenset[str]]:
    """A leader's plan as member id to partitions; see `events.PLANNED`."""
    found = {}
    for part in text.split(";"):
        who, equals, held = part.partition("=")
        if equals:
            found[who] = frozenset(held.split())
    return found
