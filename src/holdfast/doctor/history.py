"""One group's history: its rebalances with cause, culprit and cost, its members' lives, its partitions' lanes.

`history_of` takes the events of one group, from any number of files, in any order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.clocks import put_right
from holdfast.doctor.events import Event
from holdfast.doctor.lanes import Lanes, lanes_of, stopped_ms
from holdfast.doctor.once import told_once
from holdfast.doctor.people import EXPELLED, REPLACED, Life, People, described, people_of
from holdfast.doctor.rounds import Rebalance, Round, from_members, rebalances_of, rounds_of

PROMPT_MS = 250.0
"""A join barrier completes within this time after the last member's join."""

EAGER = frozenset({"range", "roundrobin", "sticky"})
COOPERATIVE = frozenset({"cooperative-sticky", "uniform"})


@dataclass(kw_only=True)
class History:
    group: str
    events: list[Event]
    """In order of time, on one clock."""
    off_ms: dict[str, float] = field(default_factory=dict)
    """Files whose clock was corrected, and by how much."""
    protocol: str = ""
    level: str = "classic"
    people: People = field(default_factory=People)
    rebalances: list[Rebalance] = field(default_factory=list)
    lanes: Lanes = field(default_factory=Lanes)
    from_coordinator: bool = True
    """Whether the rounds come from a coordinator's log; otherwise they come from those members that left logs."""

    @cached_property
    def first_ms(self) -> float:
        return min((one.at_ms for one in self.events if one.at_ms == one.at_ms), default=0.0)

    @cached_property
    def last_ms(self) -> float:
        return max((one.at_ms for one in self.events if one.at_ms == one.at_ms), default=0.0)

    @property
    def span_ms(self) -> float:
        return self.last_ms - self.first_ms

    @property
    def cooperative(self) -> bool | None:
        """None if no log tells which assignor ran."""
        return cooperative(self.protocol, self.level)

    @cached_property
    def disturbances(self) -> list[Rebalance]:
        return [one for one in self.rebalances if one.counts]

    @cached_property
    def disturbances_by(self) -> dict[str, list[Rebalance]]:
        """By member id, those that it caused."""
        found: dict[str, list[Rebalance]] = {}
        for one in self.disturbances:
            found.setdefault(one.culprit, []).append(one)
        return found

    @property
    def share(self) -> float:
        """The share of time spent in rebalances since the group's first round was over."""
        began = next((one.ended_ms for one in self.rebalances if one.trigger == causes.START), self.first_ms)
        whole = self.last_ms - began
        return min(1.0, sum(one.took_ms for one in self.disturbances) / whole) if whole > 0 else 0.0

    @cached_property
    def partitions(self) -> int:
        told = {one.partitions for one in self.events if one.kind == e.HOLDS}
        return len(self.lanes.partitions | told)

    @cached_property
    def members(self) -> int:
        """The largest number of members at once: of a generation if the log tells (the new protocol's does not), else
        counted from the members' lives."""
        told = max((each.members for one in self.rebalances for each in one.rounds), default=0)
        told = max([told, *(int(one.number) for one in self.events if one.kind == e.LOADED)])
        if told > 0:
            return told
        came = sorted(life.from_ms for life in self.people.lives.values() if life.from_ms == life.from_ms)
        return max((len(there) for there in self.people.at_each(came)), default=len(self.people.lives))

    @cached_property
    def session_ms(self) -> float:
        return self.people.session_ms

    @property
    def partition_ms(self) -> float:
        return sum(one.partition_ms for one in self.disturbances)

    def causes(self) -> Counter[str]:
        return Counter(one.trigger for one in self.disturbances)


def cooperative(protocol: str, level: str) -> bool | None:
    if level == "consumer":
        return True
    if protocol in EAGER:
        return False
    return True if protocol in COOPERATIVE else None


def history_of(group: str, events: Iterable[Event]) -> History:
    ordered, off = put_right(told_once(events))
    timed = [one for one in ordered if one.at_ms == one.at_ms]
    found = History(group=group, events=ordered, off_ms=off)
    told = [one for one in timed if one.kind in e.COORDINATOR_KINDS]
    found.from_coordinator = any(one.kind in (e.PREPARING, e.GENERATION) for one in told)
    if not found.from_coordinator:
        told = from_members(timed)
        timed = sorted([*timed, *told], key=lambda one: one.at_ms)
    found.level = "consumer" if any(one.level == "consumer" for one in told) else "classic"
    found.protocol = _protocol(timed)
    found.people = people_of(timed)
    described(found.people, (one for one in ordered if one.kind == e.HOLDS))
    found.rebalances = rebalances_of(rounds_of(told), found.people.returned)
    found.lanes = lanes_of(timed, found.people, found.rebalances, cooperative=found.cooperative)
    plans = sorted(found.lanes.plans)
    for one in found.rebalances:
        _complete(one, found, plans)
    _came_and_went(found)
    _who_came_last(found, timed)
    _costs(found)
    return found


def _protocol(events: Sequence[Event]) -> str:
    """The assignor that was used last."""
    said = [one.said for one in events if one.kind in (e.JOINED, e.GENERATION) and one.said]
    if said:
        return said[-1]
    lists = [set(one.partitions.split(",")) for one in events if one.kind == e.LEFT and one.partitions]
    common = set.intersection(*lists) if lists else set()
    if len(common) == 1 or (common and common <= EAGER):
        return min(common)  # the only assignor they share; or all are eager, and then which one does not matter
    return ""


def _complete(one: Rebalance, history: History, plans: Sequence[int]) -> None:
    people = history.people
    if one.culprit:
        life = people.life_at(one.culprit, one.began_ms)
        one.who = people.name_of(one.culprit)
        one.host = "" if life is None else life.host
        if life is not None and one.trigger == causes.LEAVE and life.how in (causes.TOO_SLOW, causes.DRAIN):
            one.trigger = life.how  # the client's own log says why it left
        if life is not None and one.trigger == causes.JOIN:
            one.trigger = _ghost(life, one, people) or one.trigger
        if life is not None and one.trigger == causes.CRASH and life.how in (causes.COORDINATOR, causes.TOO_SLOW):
            one.trigger = life.how
        if one.trigger == causes.COORDINATOR:
            one.who = one.host = ""  # no member is to blame
    one.moved, one.needless = _moved(one, history, plans)


def _came_and_went(history: History) -> None:
    lives = history.people.lives.values()
    came = sorted((life.from_ms, life.name) for life in lives if life.from_ms == life.from_ms)
    went = sorted((life.to_ms, life.name) for life in lives if life.over and life.how != REPLACED)
    for one in history.rebalances:
        within = (one.began_ms - 500.0, ""), (one.ended_ms, "\U0010ffff")
        one.joined = [name for _, name in came[bisect_left(came, within[0]) : bisect_right(came, within[1])]]
        one.left = [name for _, name in went[bisect_left(went, within[0]) : bisect_right(went, within[1])]]


def _ghost(life: Life, one: Rebalance, people: People) -> str:
    """How the member's own predecessor ended, if the round that the member began waited for its session; or ""."""
    return people.silent_end_within(life, one.began_ms, one.ended_ms + 1_000.0)


def _moved(one: Rebalance, history: History, numbers: Sequence[int]) -> tuple[int, int]:
    """How many partitions moved, and how many of those need not have: their owner stayed, within its fair share."""
    plans = history.lanes.plans
    after = plans.get(one.generation)
    earlier = bisect_left(numbers, one.rounds[0].generation)
    if after is None or not earlier:
        return -1, -1
    before = plans[numbers[earlier - 1]]
    owner = {at: _stays(who, history) for who, had in before.items() for at in had}
    holder = {at: _stays(who, history) for who, had in after.items() for at in had}
    staying = {_stays(who, history) for who in after}
    changed = [at for at in owner if at in holder and owner[at] != holder[at]]
    taken = sum(1 for at in changed if owner[at] in staying)
    held = Counter(owner.values())
    counts = sorted((held[who] for who in staying), reverse=True)
    total, share = divmod(len(holder), max(1, len(staying)))
    needed = sum(max(0, count - (total + (1 if place < share else 0))) for place, count in enumerate(counts))
    return len(changed), max(0, taken - needed)


def _stays(member: str, history: History) -> str:
    life = history.people.lives.get(member)
    return f"instance {life.instance}" if life is not None and life.instance else member


def _who_came_last(history: History, events: Sequence[Event]) -> None:
    """Set who joined each round last, and when the last member that logs it had its assignment."""
    asked = [one for one in events if one.kind == e.JOINING]
    synced: dict[int, float] = {}
    for event in events:
        if event.kind == e.SYNCED:
            synced[event.generation] = max(event.at_ms, synced.get(event.generation, event.at_ms))
    out = sorted((life.to_ms, life.name) for life in history.people.lives.values() if life.how == EXPELLED)
    rounds = [each for one in history.rebalances for each in one.rounds if each.barrier_ms == each.barrier_ms]
    rounds.sort(key=lambda each: each.barrier_ms)
    for each, there in zip(rounds, history.people.at_each([each.barrier_ms for each in rounds]), strict=True):
        first = bisect_left(asked, each.began_ms, key=lambda event: event.at_ms)
        came = asked[first : bisect_right(asked, each.barrier_ms, key=lambda event: event.at_ms)]
        late = bisect_left(out, (each.barrier_ms - 1_000.0, ""))
        if late < len(out) and out[late][0] <= each.barrier_ms + 1_000.0:
            each.suspects = frozenset({out[late][1]})  # it did not join at all
        else:
            each.suspects = _suspects(each, came, there, history.people)
        each.slowest = next(iter(each.suspects)) if len(each.suspects) == 1 else ""
        if each.generation in synced and each.ended_ms == each.ended_ms:
            each.synced_ms = synced[each.generation]


def _suspects(each: Round, came: Sequence[Event], there: Sequence[Life], people: People) -> frozenset[str]:
    """Who may have joined last: the last member with a log, if the barrier completed right after its join; else the
    members without a log. Who began the round is never one of them."""
    last = {event.client or event.member: event for event in came}
    late = [event for event in last.values() if each.barrier_ms - event.at_ms <= PROMPT_MS]
    if late:
        newest = max(late, key=lambda event: event.at_ms)
        own = [life for life in there if life.client == newest.client and newest.client]
        return frozenset({own[-1].name if own else newest.client or people.name_of(newest.member)})
    told = {*last, each.culprit}
    return frozenset(life.name for life in there if not {life.client, life.member} & told)


def _costs(history: History) -> None:
    """Count each pause for the rebalance in which it ended."""
    for one in history.rebalances:
        one.partition_ms, one.measured = 0.0, False
    begun = [one.began_ms for one in history.rebalances]
    for pause in history.lanes.pauses:
        place = bisect_right(begun, pause.to_ms + 1.0) - 1
        if place < 0:
            continue
        if place and pause.to_ms <= history.rebalances[place - 1].ended_ms + 2_000.0:
            place -= 1  # the pause belongs to the rebalance before, and another one has begun since
        owner = history.rebalances[place]
        if owner.trigger in (causes.CRASH, causes.TOO_SLOW) and owner.partition_ms:
            owner.measured = owner.measured and pause.measured  # nobody logs when a silent member stopped
        else:
            owner.measured = owner.measured or pause.measured
        owner.partition_ms += pause.ms
    for one in history.disturbances:
        if not one.partition_ms:
            one.partition_ms = _silent_ms(one, history) + (bound_ms(one, history) if one.moved else 0.0)


def _silent_ms(one: Rebalance, history: History) -> float:
    """For how long the partitions of a member that crashed or hung had stood still before anybody noticed, at most."""
    life = history.people.life_at(one.culprit, one.began_ms)
    if life is None or not life.over or one.trigger not in (causes.CRASH, causes.TOO_SLOW) or life.to_ms > one.ended_ms:
        return 0.0
    share = max(1.0, history.partitions / max(1, history.members))
    return max(0.0, life.to_ms - stopped_ms(life, history.people)) * share


def bound_ms(one: Rebalance, history: History) -> float:
    """The most it can have cost if no log names partitions: all of them if it was eager, else the share that moves."""
    partitions = history.partitions or max(1, history.members)
    if history.cooperative is False or history.cooperative is None:
        return one.took_ms * partitions
    members = max(1, one.rounds[-1].members or history.members)
    moving = one.moved if one.moved >= 0 else max(1, round(partitions / members))
    return one.took_ms * moving
