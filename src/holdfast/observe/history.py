"""What happened to a group, learnt by looking at it again and again.

A coordinator reports its state and its members, and keeps no history. A series of looks gives one: a state that left
Stable and came back is a rebalance with a duration; a change between two Stable looks is a rebalance too short to be
seen; the members that came or went in between are its cause.

How the causes are told apart. Client id and host together stand for a process. A process that is killed and restarted
comes back under a new member id, while its old id stays until its session ends. Both are in the group during the round
that this starts, and never after it, because the round expels the silent one. If both were seen in the round, the old
id has `expired`. Otherwise the process was restarted (`restart`), and a crash can't be told from a deploy. If two live
processes share client id and host, an old id can't be recognised. A member that exceeds max.poll.interval.ms leaves by
itself and comes back later under another id (`return`). Two processes with one instance id take it from each other: its
member id changes again and again (`replaced`).

Pure: a look is a snapshot and its time in milliseconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.model import TopicPartition
from holdfast.model.text import one_line
from holdfast.observe.snapshot import IN_A_ROUND, NOBODY_IN_IT, DescribedMember, GroupSnapshot, is_cooperative

KEPT = 1_000
"""Rebalances that are remembered one by one; the sums go on."""

REMEMBERED_MS = 3_600_000.0
"""How long a member that left is remembered: one that comes back later counts as a new one."""

FOLLOW_UP_MS = 10_000.0
"""How soon after a cooperative round its second one begins: with everybody's next heartbeat, 3 s by default."""

CAUSES = ("replaced", "restart", "expired", "return", "leave", "join", "subscription", "partitions", "unknown")
"""In the order in which they explain a rebalance: the first that is found names it."""

Process = tuple[str, str]
"""Client id and host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that happened to one member."""

    cause: str
    who: str
    """The instance id, or the client id, and the host."""
    away_ms: float = 0.0
    """For a return: how long it was away."""

    def __str__(self) -> str:
        away = f" after {self.away_ms / 1000:.0f} s" if self.cause == "return" else ""
        return f"{self.who} {_PAST[self.cause]}{away}"


_PAST = {
    "replaced": "took over its own instance id",
    "restart": "restarted or was redeployed",
    "expired": "was restarted, and its old membership has expired",
    "return": "came back",
    "leave": "left",
    "join": "joined",
    "subscription": "changed its subscription",
    "partitions": "has more partitions",
    "unknown": "rejoined",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    began_ms: float
    ended_ms: float
    seen: bool
    """Whether a state of a rebalance was seen. If not, it was shorter than the time between two looks."""
    changes: tuple[Change, ...] = ()
    moved: int = 0
    """Partitions that have another owner than before."""
    rounds: int = 1

    @property
    def took_ms(self) -> float:
        return self.ended_ms - self.began_ms if self.seen else 0.0

    @property
    def cause(self) -> str:
        return min((change.cause for change in self.changes), key=CAUSES.index, default="unknown")

    @property
    def culprit(self) -> str:
        return next((change.who for change in self.changes if change.cause == self.cause), "")


@dataclass(slots=True)
class Commits:
    """What was seen of one partition's commits."""

    committed: int
    since_ms: float
    """When this was seen first, or last without anything left to commit."""
    longest_ms: float = 0.0
    """The longest time between two commits while there was something to commit."""

    def see(self, committed: int, lag: int, now_ms: float) -> None:
        if committed != self.committed:
            self.longest_ms = max(self.longest_ms, now_ms - self.since_ms)
            self.committed, self.since_ms = committed, now_ms
        elif not lag:
            self.since_ms = now_ms


@dataclass(slots=True)
class History:
    """One group's. `see` takes the looks in their order."""

    looks: int = 0
    first_ms: float = 0.0
    last_ms: float = 0.0
    first: GroupSnapshot | None = None
    last: GroupSnapshot | None = None
    rebalances: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=KEPT))
    total: int = 0
    rebalancing_ms: float = 0.0
    """Time seen in a rebalance, the one that is under way included."""
    moved: int = 0
    """Partitions that got another owner."""
    causes: Counter[str] = field(default_factory=Counter)
    culprits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(cause, who)"""
    commits: dict[TopicPartition, Commits] = field(default_factory=dict)
    _missed: bool = False
    """Whether a look has failed since the last one: nobody knows what was in between."""
    _blind_ms: float = 0.0
    """Time between two looks of which one in between has failed."""
    _settled: GroupSnapshot | None = None
    """The last look outside of a rebalance: what the next one is compared with."""
    _began_ms: float | None = None
    _ghosts: set[str] = field(default_factory=set)
    """Old ids: members from before the round under way that were seen in it beside a new id of the same process."""
    _shared: set[Process] = field(default_factory=set)
    """Client ids and hosts that two live members had at once: more than one process."""
    _left: dict[Process, float] = field(default_factory=dict)
    _owner: dict[TopicPartition, str] = field(default_factory=dict)
    """Who held each partition last: in the middle of a handover nobody does."""

    @property
    def cooperative(self) -> bool | None:
        """By the last look, or the last one outside a rebalance: during one the coordinator does not say."""
        told = None if self.last is None else is_cooperative(self.last.described)
        return told if told is not None or self._settled is None else is_cooperative(self._settled.described)

    @property
    def protocol(self) -> str:
        """The assignor in force, or the one before the round; empty where neither was seen."""
        looks = [one.described.protocol for one in (self.last, self._settled) if one is not None]
        return next(filter(None, looks), "")

    @property
    def watched_ms(self) -> float:
        return self.last_ms - self.first_ms - self._blind_ms

    @property
    def share(self) -> float:
        """The share of the watched time that was spent in rebalances."""
        return self.rebalancing_ms / self.watched_ms if self.watched_ms > 0 else 0.0

    @property
    def rebalancing(self) -> bool:
        return self._began_ms is not None

    def per_hour(self) -> float:
        """Rebalances in the last hour; in the time watched, scaled up, if that is shorter."""
        if self.watched_ms <= 0:
            return 0.0
        since = max(self.first_ms, self.last_ms - 3_600_000.0)
        recent = sum(1 for one in self.rebalances if one.ended_ms >= since)
        return recent * 3_600_000.0 / (self.last_ms - since) if self.last_ms > since else 0.0

    def miss(self) -> None:
        """A look has failed. The time from the look before to the next one counts as not watched."""
        self._missed = True

    def see(self, look: GroupSnapshot, now_ms: float) -> Rebalance | None:
        """Take in a look. Returns the rebalance that has ended with it, if one has."""
        before_ms, self.last_ms = self.last_ms, now_ms
        self.looks += 1
        if self.first is None:
            self.first, self.first_ms, before_ms = look, now_ms, now_ms
        blind, self._missed = self._missed, False
        if blind:
            self._blind_ms += now_ms - before_ms
            self.commits.clear()  # perhaps nobody could commit meanwhile
        elif self._began_ms is not None:
            self.rebalancing_ms += now_ms - before_ms
        self.last = look
        self._note_commits(look, now_ms)
        if look.described.state in IN_A_ROUND:
            if self._began_ms is None:
                self._began_ms = now_ms
            self._ghosts |= _ghosts(self._settled, look)
            return None
        self._note_shared(look)
        ended = self._ended(look, before_ms, now_ms, blind=blind)
        self._settled, self._began_ms = look, None
        self._ghosts.clear()
        self._owner.update({at: _holder(owner) for at, owner in look.owners.items()})
        return ended

    def _ended(self, look: GroupSnapshot, before_ms: float, now_ms: float, *, blind: bool) -> Rebalance | None:
        settled = self._settled
        if settled is None:
            if self._began_ms is None:
                return None
            changes: tuple[Change, ...] = ()  # it had begun before the first look
            moved = 0
        else:
            changes, moved = self._changes(settled, look, now_ms), self._moved(look)
            if self._began_ms is None and not _rebalanced(settled, look, changes, moved):
                self._count(changes)
                return None
        seen = self._began_ms is not None and not blind
        began_ms = before_ms if self._began_ms is None else self._began_ms
        last = self.rebalances[-1] if self.rebalances else None
        if last is not None and not changes and last.rounds == 1 and began_ms - last.ended_ms <= FOLLOW_UP_MS:
            # A cooperative handover's second round: the same rebalance.
            both = replace(last, ended_ms=now_ms, seen=last.seen or seen, moved=last.moved + moved, rounds=2)
            self.rebalances[-1] = both
            self.moved += moved
            return both
        ended = Rebalance(began_ms=began_ms, ended_ms=now_ms, seen=seen, changes=changes, moved=moved)
        self.rebalances.append(ended)
        self.total += 1
        self.moved += moved
        self.causes[ended.cause] += 1
        self._count(changes)
        return ended

    def _note_commits(self, look: GroupSnapshot, now_ms: float) -> None:
        self.commits = {at: seen for at, seen in self.commits.items() if at in look.offsets}
        for at, one in look.offsets.items():
            if one.committed is not None and one.lag is not None:
                self.commits.setdefault(at, Commits(one.committed, now_ms)).see(one.committed, one.lag, now_ms)

    def _note_shared(self, look: GroupSnapshot) -> None:
        held = Counter(map(_process, look.described.members))
        now = {who for who, count in held.items() if count > 1}
        self._shared = self._shared | now if len(self._shared) < KEPT else now  # hosts come and go

    def _count(self, changes: tuple[Change, ...]) -> None:
        self.culprits.update({(change.cause, change.who): 1 for change in changes})
        if len(self.culprits) > KEPT:  # pods have new names after each deploy
            self.culprits = Counter(dict(self.culprits.most_common(KEPT // 2)))

    def _changes(self, before: GroupSnapshot, after: GroupSnapshot, now_ms: float) -> tuple[Change, ...]:
        was = {member.member_id: member for member in before.described.members}
        now = {member.member_id: member for member in after.described.members}
        came = [now[name] for name in sorted(now.keys() - was.keys())]
        went = [was[name] for name in sorted(was.keys() - now.keys())]
        self._left = {who: at for who, at in self._left.items() if now_ms - at < REMEMBERED_MS}
        found = _take_replaced(came, went)
        found += self._take_restarted(came, went)
        found += [self._gone(member, now_ms) for member in went]
        found += [self._new(member, now_ms) for member in came]
        if not found:
            found = self._otherwise(before, after)
        return tuple(sorted(found, key=lambda change: (CAUSES.index(change.cause), change.who)))

    def _take_restarted(self, came: list[DescribedMember], went: list[DescribedMember]) -> list[Change]:
        """Processes that went and came back within one rebalance; they are removed from both lists."""
        found = []
        for gone, new in _taken(came, went, _process):
            ghost = gone.member_id in self._ghosts and _process(new) not in self._shared
            found.append(Change(cause="expired" if ghost else "restart", who=name(new)))
        return found

    def _gone(self, member: DescribedMember, now_ms: float) -> Change:
        self._left[_process(member)] = now_ms
        return Change(cause="leave", who=name(member))

    def _new(self, member: DescribedMember, now_ms: float) -> Change:
        left_ms = self._left.pop(_process(member), None)
        if left_ms is not None:
            return Change(cause="return", who=name(member), away_ms=now_ms - left_ms)
        return Change(cause="join", who=name(member))

    def _otherwise(self, before: GroupSnapshot, after: GroupSnapshot) -> list[Change]:
        """What else can start a rebalance, when nobody came or went."""
        was = {member.member_id: member for member in before.described.members}
        found = []
        for member in after.described.members:
            earlier = was.get(member.member_id)
            if earlier is not None and earlier.topics != member.topics:
                found.append(Change(cause="subscription", who=name(member)))
        if not found and self._owner:
            topics = sorted({at.topic for at in after.owners if at not in self._owner})
            found = [Change(cause="partitions", who=topic) for topic in topics]
        return found

    def _moved(self, look: GroupSnapshot) -> int:
        return sum(1 for at, owner in look.owners.items() if self._owner.get(at, _holder(owner)) != _holder(owner))


def name(member: DescribedMember) -> str:
    """A member's name for people: its instance id or client id, and where it runs."""
    return one_line(f"{member.instance_id or member.client_id or member.member_id}@{member.host.lstrip('/')}")


def _holder(member: DescribedMember) -> str:
    """Who holds a partition: the instance id, where there is one, because it stays the same over restarts."""
    return member.member_id if member.instance_id is None else f"instance {member.instance_id}"


def _rebalanced(before: GroupSnapshot, after: GroupSnapshot, changes: tuple[Change, ...], moved: int) -> bool:
    """Whether there was a rebalance between two looks that show none.

    The last member that leaves rebalances nobody. An instance that comes back within its session takes over what it
    held, and its group's generation goes on (KIP-345).
    """
    if after.described.state in NOBODY_IN_IT:
        return False
    generations = before.described.generation, after.described.generation
    went_on = min(generations) >= 0 and generations[0] != generations[1]
    return bool(moved) or went_on or any(change.cause != "replaced" for change in changes)


def _process(member: DescribedMember) -> Process:
    return member.client_id, member.host


def _ghosts(settled: GroupSnapshot | None, look: GroupSnapshot) -> set[str]:
    """Members from before that are still there, beside a new one of the same process."""
    if settled is None:
        return set()
    known = {member.member_id for member in settled.described.members}
    anew = {_process(member) for member in look.described.members if member.member_id not in known}
    return {one.member_id for one in look.described.members if one.member_id in known and _process(one) in anew}


def _take_replaced(came: list[DescribedMember], went: list[DescribedMember]) -> list[Change]:
    """Instance ids with another member id than before; they are removed from both lists."""
    pairs = _taken(came, went, lambda one: one.instance_id)
    return [Change(cause="replaced", who=name(new)) for _, new in pairs]


def _taken(
    came: list[DescribedMember], went: list[DescribedMember], key: Callable[[DescribedMember], Any]
) -> list[tuple[DescribedMember, DescribedMember]]:
    """Pairs of one that went and one that came with the same key, taken out of both lists. None is no key."""
    waiting: dict[Any, deque[DescribedMember]] = {}
    for one in came:
        waiting.setdefault(key(one), deque()).append(one)
    waiting.pop(None, None)
    pairs = [(gone, waiting[key(gone)].popleft()) for gone in went if waiting.get(key(gone))]
    paired = {one.member_id for pair in pairs for one in pair}
    came[:] = [one for one in came if one.member_id not in paired]
    went[:] = [one for one in went if one.member_id not in paired]
    return pairs
