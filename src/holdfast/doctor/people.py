"""Who was in a group, from when to when, and how each member's time in it ended.

A life belongs to one member id. Client id (or instance id) and host together identify a process. If several members
have one client id at once and the logs tell no hosts, each member id counts as a process of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of
from holdfast.model.text import one_line

REPLACED = "replaced"
EXPELLED = "expelled"

NEAR_MS = 5_000.0
"""How far apart, on corrected clocks, the client's and the coordinator's line about the same leave may be."""

AT_ONCE_MS = 1_000.0
"""A coordinator logs who is gone, and begins the round that this causes, within this time."""

LOADED_MS = 50_000.0
"""A coordinator that has just read a group gives each member its whole session, 45 s by default, to be heard of."""

INFINITY = float("inf")

SESSION_MS, POLL_MS = 45_000.0, 300_000.0
"""Kafka's defaults for session.timeout.ms and max.poll.interval.ms."""

TooSlow = dict[str, list[Event]]
"""By client id and by instance id: the lines about max.poll.interval.ms being exceeded, in order of time."""

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
    closed: bool = False
    """Whether it said that it was being closed. librdkafka gives no reason, closed or beyond its limit."""
    slow_ms: float = float("nan")
    """When it logged that it had exceeded it. A static member does not leave then: its session ends later."""

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


@dataclass
class People:
    lives: dict[str, Life] = field(default_factory=dict)
    """By member id, in the order in which they began."""
    shared: frozenset[str] = frozenset()
    """Client ids that several processes used at the same time."""
    _earlier: dict[str, list[Life]] | None = None
    _processes: dict[str, list[Life]] | None = None
    _silent_ends: dict[str, list[Life]] | None = None
    _last_end: list[tuple[float, float]] | None = None
    """(when somebody came, the latest time at which any of those who had come by then left)"""
    _clients: dict[str, list[Life]] | None = None
    _poll_limits: dict[str, float] = field(default_factory=dict)

    def life_at(self, member_id: str, at_ms: float) -> Life | None:
        """The member's life at that time. Under the new protocol one member id may have several."""
        if self._earlier is None:
            self._earlier = {}
            for key, life in self.lives.items():
                if key != life.member:
                    self._earlier.setdefault(life.member, []).append(life)
        earlier = self._earlier.get(member_id, [])
        place = bisect_left(earlier, at_ms - AT_ONCE_MS, key=lambda one: one.to_ms)
        return earlier[place] if place < len(earlier) else self.lives.get(member_id)

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

    @cached_property
    def session_ms(self) -> float:
        """session.timeout.ms, if a coordinator logged it for a member that left; else the most that it can be: Kafka's
        default, but no longer than anybody was in the group whose session ended."""
        told = [life.session_ms for life in self.lives.values() if life.session_ms == life.session_ms]
        ended = [life.ms for life in self.lives.values() if life.how == causes.CRASH and life.ms > 0]
        return max(told) if told else min([SESSION_MS, *ended])

    def poll_ms_of(self, life: Life) -> float:
        """A member's max.poll.interval.ms, if told; else the most that it can be: Kafka's default, but no longer than
        its process was in the group before it exceeded it."""
        if life.poll_ms == life.poll_ms:
            return life.poll_ms
        process = self.process_of(life)
        if process not in self._poll_limits:
            lives = [one for one in self.of_process(life) if one.how in (causes.TOO_SLOW, EXPELLED)]
            told = [one.poll_ms for one in lives if one.poll_ms == one.poll_ms]
            ended = [_exceeded_ms(one) - one.from_ms for one in lives]
            self._poll_limits[process] = max(told) if told else min([POLL_MS, *(ms for ms in ended if ms > 0)])
        return self._poll_limits[process]

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

    def silent_end_within(self, life: Life, from_ms: float, to_ms: float) -> str:
        """How an earlier or later life of the process ended, if its session did in this time; or ""."""
        if self._silent_ends is None:
            self._silent_ends = {}
            silent = (one for one in self.lives.values() if one.how in (causes.CRASH, causes.COORDINATOR))
            for one in sorted(silent, key=lambda one: one.to_ms):
                self._silent_ends.setdefault(self.process_of(one), []).append(one)
        ends = self._silent_ends.get(self.process_of(life), [])
        first = bisect_left(ends, from_ms, key=lambda one: one.to_ms)
        two = ends[first : first + 2]  # one of them may be the life itself
        return next((one.how for one in two if one is not life and one.to_ms <= to_ms), "")

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
            for name in {one.client, one.instance} - {""}:
                too_slow[name].append(one)
    loaded = [one.at_ms for one in events if one.kind == e.LOADED]
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
            client = event.client or (known.client or known.instance if known is not None else "")
            cut_off = event.kind == e.EXPIRED and _not_found(known, event.at_ms, loaded)
            slow = _slow_before(known, event, too_slow.get(client, ()))
            how = causes.COORDINATOR if cut_off else _how(event, slow, drained)
            _end(lives, event, event.member, how)
            if slow is not None and how == causes.TOO_SLOW and event.member in lives:
                _exceeded(lives[event.member], slow)
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


def _keep_earlier(lives: dict[str, Life], event: Event, member: str) -> None:
    """A member of the new protocol keeps its id when it leaves and joins again: that is another life."""
    before = lives.get(member)
    if before is None or not before.over or len(lives) >= LIVES_KEPT:
        return
    del lives[member]
    lives[f"{member} (life {len(lives)})"] = before
    lives[member] = Life(member=member, client=before.client, instance=before.instance, host=before.host,
                         from_ms=event.at_ms)  # fmt: skip


def _seen(lives: dict[str, Life], event: Event, member: str) -> None:
    if event.kind == e.ARRIVED:
        _keep_earlier(lives, event, member)
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
    life.closed = how == causes.LEAVE and "being closed" in event.said
    if event.member == member:
        life.client, life.host = event.client or life.client, event.host or life.host
        life.instance = event.instance or life.instance
        if event.kind == e.LEFT and event.number > 0:
            life.session_ms = event.number


def _slow_before(life: Life | None, event: Event, told: Sequence[Event]) -> Event | None:
    """What the member's own log says about max.poll.interval.ms, if that is why it is gone. A dynamic member leaves at
    once; a static one stays silent until its session ends. By bisection: a fleet with one client id for all logs
    thousands of them a day."""
    earliest = event.at_ms - (LOADED_MS if event.kind == e.EXPIRED else NEAR_MS)
    if life is not None and event.kind == e.EXPIRED:
        earliest = max(earliest, life.since_ms)
    last = bisect_right(told, event.at_ms + NEAR_MS, key=lambda one: one.at_ms) - 1
    return told[last] if last >= 0 and told[last].at_ms >= earliest else None


def _exceeded(life: Life, slow: Event) -> None:
    limit = slow.said.partition("max.poll.interval.ms=")[2]
    life.slow_ms = min(slow.at_ms, life.to_ms)
    if limit.isdecimal():
        life.poll_ms = float(limit)


def _exceeded_ms(life: Life) -> float:
    return life.slow_ms if life.slow_ms == life.slow_ms else life.to_ms


def _not_found(life: Life | None, at_ms: float, loaded: Sequence[float]) -> bool:
    """Whether the session that ends was begun anew by a coordinator that had just been started, and that the member had
    not found yet. A client that was without a coordinator for longer than its session comes back as a new member."""
    joined_ms = -INFINITY if life is None else life.since_ms
    last = bisect_right(loaded, at_ms) - 1
    return last >= 0 and loaded[last] >= max(joined_ms, at_ms - LOADED_MS)


def stopped_polling_ms(life: Life, people: People) -> float:
    """When a member that exceeded max.poll.interval.ms polled last, at the earliest."""
    return _exceeded_ms(life) - people.poll_ms_of(life)


def _how(event: Event, slow: Event | None, draining: set[str]) -> str:
    if event.kind == e.EXPIRED:
        return causes.CRASH if slow is None else causes.TOO_SLOW
    if event.kind == e.EXPELLED:
        return EXPELLED
    told = causes.of_leave(event.said)
    if told == causes.LEAVE and event.member in draining:
        return causes.DRAIN
    if told == causes.LEAVE and slow is not None:
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
            ghost = before.how in (causes.CRASH, causes.COORDINATOR, REPLACED, EXPELLED) or (
                before.instance and after.instance
            )
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
