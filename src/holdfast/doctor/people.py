"""Who was in a group, from when to when, and how each one went.

A life is one member id's. Client id (or instance id) and host together stand for a process; where several live at once
under one client id and nobody tells hosts, each member id is a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of
from holdfast.model.text import one_line

REPLACED = "replaced"
EXPELLED = "expelled"

NEAR_MS = 5_000.0
"""How far a client's own word about why it left may be from the coordinator's note of it, clocks put right."""

LIVES_KEPT = 20_000
"""A storm of a day has thousands. Beyond this a history tells its sums, and no more lives."""


@dataclass(slots=True, kw_only=True)
class Life:
    member: str
    client: str = ""
    instance: str = ""
    host: str = ""
    from_ms: float
    to_ms: float = float("nan")
    how: str = ""
    """How it ended: a cause, "replaced" or "expelled"; empty while it lives."""
    where: str = ""
    """The line that tells its end."""
    session_ms: float = float("nan")
    poll_ms: float = float("nan")
    """Its max.poll.interval.ms, where it told when it exceeded that."""

    @property
    def name(self) -> str:
        who = self.instance or self.client or self.member
        return one_line(f"{who}@{self.host}" if self.host else who)

    @property
    def over(self) -> bool:
        return self.to_ms == self.to_ms

    @property
    def ms(self) -> float:
        return self.to_ms - self.from_ms


@dataclass(slots=True)
class People:
    lives: dict[str, Life] = field(default_factory=dict)
    """By member id, in order of their beginning."""
    shared: frozenset[str] = frozenset()
    """Client ids that several live processes had at once."""

    def name_of(self, member_id: str) -> str:
        life = self.lives.get(member_id)
        return life.name if life is not None else one_line(client_of(member_id) or member_id)

    def process_of(self, life: Life) -> str:
        """What stays the same when it is restarted."""
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
        process = self.process_of(life)
        return any(one.from_ms < life.from_ms and self.process_of(one) == process for one in self.lives.values())

    def alive(self, at_ms: float) -> list[Life]:
        return [one for one in self.lives.values() if one.from_ms <= at_ms and not one.to_ms <= at_ms]


def people_of(events: Sequence[Event]) -> People:
    lives: dict[str, Life] = {}
    too_slow = [(one.client, one.at_ms, one.said) for one in events if one.kind == e.TOO_SLOW]
    dead = {one.member for one in events if one.kind == e.LEAVING and causes.of_leave(one.said) == causes.DRAIN}
    for event in events:
        if event.kind == e.PLANNED:
            for member in plan_of(event.partitions):
                _seen(lives, event, member)
            continue
        if event.kind == e.REPLACED:
            _adopt(lives, event.said)
            _end(lives, event, event.said, REPLACED)
            if not event.member:  # Kafka does not say under which id it came back
                name = f"{event.instance} (life {len(lives) + 1})"
                lives[name] = Life(member=name, instance=event.instance, from_ms=event.at_ms)
                continue
        if not event.member or event.kind in (e.LEAVING, e.WANTS, e.JOINING, e.FENCED):
            continue
        _adopt(lives, event.member)
        if event.kind == e.PREPARING and "dding" not in event.said:
            continue
        if event.kind in (e.LEFT, e.EXPIRED, e.EXPELLED):
            known = lives.get(event.member)
            client = event.client or (known.client if known is not None else "")
            _end(lives, event, event.member, _how(event, client, too_slow, dead))
            _poll_interval(lives[event.member], too_slow)
            continue
        _seen(lives, event, event.member)
    return People(lives, _shared(lives.values()))


def described(people: People, rows: Iterable[Event]) -> None:
    """What a saved --describe knows of members: their hosts and instance ids."""
    for row in rows:
        life = people.lives.get(row.member)
        if life is not None:
            life.host, life.instance = life.host or row.host, life.instance or row.instance


def _adopt(lives: dict[str, Life], member: str) -> None:
    """A member id that was not known: the one of an instance that came back without telling it."""
    if member in lives:
        return
    instance = client_of(member)
    known = [one for one in lives.values() if one.instance == instance and instance and not one.over]
    if known and known[-1].member.endswith(")") and known[-1].member.startswith(f"{instance} (life "):
        life = lives.pop(known[-1].member)
        life.member = member
        lives[member] = life


def _seen(lives: dict[str, Life], event: Event, member: str) -> None:
    life = lives.get(member)
    if life is None:
        if len(lives) >= LIVES_KEPT:
            return
        life = lives[member] = Life(member=member, from_ms=event.at_ms)
        life.client = client_of(member)
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
    life = lives.get(member)
    if life is None:
        life = lives[member] = Life(member=member, client=client_of(member), from_ms=float("nan"))
    if life.over:
        return
    life.to_ms, life.how, life.where = event.at_ms, how, event.where
    if event.member == member:
        life.client, life.host = event.client or life.client, event.host or life.host
        life.instance = event.instance or life.instance
        if event.kind == e.LEFT and event.number > 0:
            life.session_ms = event.number


def _poll_interval(life: Life, too_slow: list[tuple[str, float, str]]) -> None:
    for client, at_ms, said in too_slow:
        told = said.partition("max.poll.interval.ms=")[2]
        if client == life.client and abs(at_ms - life.to_ms) <= NEAR_MS and told.isdigit():
            life.poll_ms = float(told)


def _how(event: Event, client: str, too_slow: list[tuple[str, float, str]], draining: set[str]) -> str:
    if event.kind == e.EXPIRED:
        return causes.CRASH
    if event.kind == e.EXPELLED:
        return EXPELLED
    told = causes.of_leave(event.said)
    if told == causes.LEAVE and event.member in draining:
        return causes.DRAIN
    if told == causes.LEAVE and any(who == client and abs(at - event.at_ms) <= NEAR_MS for who, at, _ in too_slow):
        return causes.TOO_SLOW
    return told


def _shared(lives: Iterable[Life]) -> frozenset[str]:
    """Client ids of which two lived at once, and not one as the other's ghost."""
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
    """A plan as the leader wrote it down: member id to partitions."""
    found = {}
    for part in text.split(";"):
        who, equals, held = part.partition("=")
        if equals:
            found[who] = frozenset(held.split())
    return found
