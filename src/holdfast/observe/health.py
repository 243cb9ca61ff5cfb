"""Whether a group is healthy: a checklist, and, if something is wrong, an investigation.

The checklist: Stable; rebalances near zero; instance ids; every partition owned; cooperative in use; lag moving. Then
four questions, each answered by what was seen: does a member crash and restart within its session; does one exceed
max.poll.interval.ms; do two processes share an instance id; is the cooperative assignor really in use.

Pure: it judges a `History`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.group.user_data import read_member_note
from holdfast.model import TopicPartition
from holdfast.observe.history import History, name
from holdfast.observe.snapshot import NOBODY_IN_IT, STABLE, DescribedMember, GroupSnapshot

MOST_PER_HOUR = 5.0
"""Rebalances an hour beyond which one should look for the reason."""

COMMITS_EVERY_MS = 5_000.0
"""Kafka's auto.commit.interval.ms: a member that reads commits within twice this time."""

AGAIN = 2
"""Once is an accident; twice is a pattern."""


class Verdict(StrEnum):
    FINE = "ok"
    ADVICE = "advice"
    """Worth a change, but the group is healthy."""
    FINDING = "FINDING"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One line of the checklist or of the investigation."""

    about: str
    verdict: Verdict
    said: str
    do: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    checklist: tuple[Answer, ...]
    investigation: tuple[Answer, ...] = ()
    """Empty where nothing is off."""

    @property
    def findings(self) -> list[Answer]:
        return [one for one in (*self.checklist, *self.investigation) if one.verdict is Verdict.FINDING]


def judge(history: History) -> Health:
    """What the looks so far say. At least one is needed."""
    look = history.last
    assert look is not None
    checklist = (
        _state(look),
        _rate(history),
        _instance_ids(look),
        _limbo(look),
        _cooperative(history),
        _lag(history),
    )
    investigation = investigate(history)
    unwell = any(one.verdict is Verdict.FINDING for one in (*checklist, *investigation))
    return Health(checklist=checklist, investigation=investigation if unwell else ())


# -- the checklist


def _state(look: GroupSnapshot) -> Answer:
    state, count = look.described.state, len(look.described.members)
    about = "state is Stable"
    if state == STABLE:
        return Answer(about=about, verdict=Verdict.FINE, said=f"Stable, {_counted(count, 'member')}")
    do = "Deploying? Then look again when that is done. Else the investigation below says who keeps it from settling."
    if state in NOBODY_IN_IT:
        do = "Start its consumers, or delete the group if it is not needed any more."
    return Answer(about=about, verdict=Verdict.FINDING, said=f"{state}, {_counted(count, 'member')}", do=do)


def _rate(history: History) -> Answer:
    about = "rebalance rate is near zero"
    watched = f"in {history.watched_ms / 1000:.0f} s"
    if history.looks < 2:
        return Answer(about=about, verdict=Verdict.UNKNOWN, said="seen once only", do="Watch it for longer with --for.")
    rate = history.per_hour()
    share = f", {history.share:.0%} of the time" if history.rebalancing_ms else ""
    said = f"{_counted(history.total, 'rebalance')} {watched}{share}"
    if rate <= MOST_PER_HOUR and not history.rebalancing:
        return Answer(about=about, verdict=Verdict.FINE, said=said)
    last = history.rebalances[-1] if history.rebalances else None
    why = "" if last is None or not last.changes else f"; the last because {last.changes[0]}"
    do = f"More than {MOST_PER_HOUR:g} an hour need a reason. If this was a deploy, watch for longer with --for."
    return Answer(about=about, verdict=Verdict.FINDING, said=f"{said}{why}", do=do)


def _instance_ids(look: GroupSnapshot) -> Answer:
    about = "INSTANCE-ID is populated"
    members = look.described.members
    without = [member for member in members if not member.instance_id]
    if not members:
        return Answer(about=about, verdict=Verdict.UNKNOWN, said="nobody is in the group")
    if not without:
        return Answer(about=about, verdict=Verdict.FINE, said=f"all of {len(members)}")
    do = "Set group.instance.id to the pod's name, say, so that a restart within the session moves nothing."
    if len(without) == len(members):
        said = "no member has one: every restart is a rebalance"
        return Answer(about=about, verdict=Verdict.ADVICE, said=said, do=do)
    said = f"{len(without)} of {len(members)} have none: {_listed(without)}"
    return Answer(about=about, verdict=Verdict.FINDING, said=said, do=do)


def _limbo(look: GroupSnapshot) -> Answer:
    about = "no empty CONSUMER-ID"
    described = look.described
    if described.state != STABLE:
        said = f"{described.state}: nobody holds anything for certain"
        return Answer(about=about, verdict=Verdict.UNKNOWN, said=said)
    nameless = [member for member in described.members if not member.member_id]
    read = {topic for member in described.members for topic in member.topics}
    owners = look.owners  # made anew each time it is asked for
    ownerless = sorted(at for at in look.offsets if at.topic in read and at not in owners)
    if nameless or ownerless:
        said = f"{len(nameless)} members without an id; {_counted(len(ownerless), 'partition')} of nobody"
        if ownerless:
            said += f", first {ownerless[0]}"
        do = "In the middle of a handover that passes; if it stays, force a rebalance by restarting one member."
        return Answer(about=about, verdict=Verdict.FINDING, said=said, do=do)
    idle = [member for member in described.members if not member.assigned]
    if idle:
        said = f"{_counted(len(idle), 'member')} with nothing to do: {_listed(idle)}"
        do = "There are more members than partitions: add partitions or stop some."
        return Answer(about=about, verdict=Verdict.ADVICE, said=said, do=do)
    return Answer(about=about, verdict=Verdict.FINE, said="every partition has its owner")


def _cooperative(history: History) -> Answer:
    about = "cooperative assignor in use"
    assert history.last is not None
    used, described = history.cooperative, history.last.described
    protocol = history.protocol or "none named in mid-rebalance"
    if described.kind == "consumer":
        return Answer(about=about, verdict=Verdict.FINE, said=f"the new protocol (KIP-848), {protocol}")
    if used is None and described.state in NOBODY_IN_IT:
        return Answer(about=about, verdict=Verdict.UNKNOWN, said="nobody is in the group")
    if used is None:
        do = "A coordinator tells its assignor when a rebalance is over: watch for longer with --for."
        return Answer(about=about, verdict=Verdict.UNKNOWN, said=protocol, do=do)
    if used:
        return Answer(about=about, verdict=Verdict.FINE, said=protocol)
    return Answer(
        about=about,
        verdict=Verdict.FINDING,
        said=f"{protocol} is eager: each rebalance stops everybody",
        do=_TO_COOPERATIVE,
    )


_TO_COOPERATIVE = (
    "Move to cooperative-sticky in two rolling bounces; `holdfast preflight GROUP --to cooperative-sticky` says which "
    "step is safe."
)


def _lag(history: History) -> Answer:
    about = "lag is moving"
    first, last = history.first, history.last
    assert first is not None and last is not None
    unread = [at for at, one in last.offsets.items() if one.problem]
    if last.lag is None or last.problems:
        why = last.problems[0] if last.problems else "nothing is committed"
        return Answer(about=about, verdict=Verdict.UNKNOWN, said=why)
    stuck = _stuck(history, last)
    said = f"{_counted(last.lag, 'record')} behind"
    if unread:
        said += f"; {_counted(len(unread), 'partition')} can't be read, first {min(unread)}"
    if stuck:
        at, behind = max(stuck.items(), key=lambda item: item[1])
        owner = last.owners.get(at)
        who = "nobody" if owner is None else name(owner)
        said = f"{_counted(len(stuck), 'partition')} stood still, first {at} of {who}, {behind} behind"
        do = (
            _UNREAD
            if owner is None
            else "Is its consumer stuck in a record, or not committing? Its log and a stack dump tell."
        )
        return Answer(about=about, verdict=Verdict.FINDING, said=said, do=do)
    if history.watched_ms < 2 * COMMITS_EVERY_MS and last.lag:
        return Answer(about=about, verdict=Verdict.UNKNOWN, said=said, do="Watch for 10 s or more with --for.")
    grown = _grown(first, last)
    if grown > _between_commits(first, last, history.watched_ms):
        pace = grown * 1000.0 / history.watched_ms
        do = "If that goes on, add members or partitions, or make the work on a record shorter."
        return Answer(about=about, verdict=Verdict.ADVICE, said=f"{said}, {pace:.0f} a second more", do=do)
    return Answer(about=about, verdict=Verdict.FINE, said=said)


_UNREAD = (
    "Nobody reads it: start its consumers. If it is not to be read any more, `holdfast groups delete-offsets` forgets "
    "its offsets."
)


def _stuck(history: History, last: GroupSnapshot) -> dict[TopicPartition, int]:
    """Partitions that are behind, and where nothing was committed for twice as long as is usual: Kafka's interval, or
    the longest that was seen there."""
    found = {}
    for at, seen in history.commits.items():
        usual_ms = max(COMMITS_EVERY_MS, seen.longest_ms)
        lag = last.offsets[at].lag
        if lag and history.last_ms - seen.since_ms >= 2 * usual_ms:
            found[at] = lag
    return found


def _grown(first: GroupSnapshot, last: GroupSnapshot) -> int:
    """By how much lag has grown where it was known at both looks: what could not be read before has not grown."""
    lags = ((first.offsets[at].lag, one.lag) for at, one in last.offsets.items() if at in first.offsets)
    return sum(now - before for before, now in lags if before is not None and now is not None)


def _between_commits(first: GroupSnapshot, last: GroupSnapshot, watched_ms: float) -> float:
    """Records that arrive between two commits: the lag of a group that keeps up varies by this much."""
    both = [(first.offsets[at].end, one.end) for at, one in last.offsets.items() if at in first.offsets]
    came = sum(end - before for before, end in both if before is not None and end is not None)
    return came * COMMITS_EVERY_MS / watched_ms if watched_ms else 0.0  # looked at once: nothing came in between


# -- the investigation


def investigate(history: History) -> tuple[Answer, ...]:
    """Four questions, in this order. What was not seen is reported as not seen: watching for longer may show it."""
    assert history.last is not None
    return (
        _crashing(history),
        _too_slow(history),
        _collision(history),
        _really_cooperative(history),
    )


def _worst(history: History, *causes: str) -> tuple[str, int]:
    """The member that did this most often, and how often."""
    counted: dict[str, int] = {}
    for (cause, who), times in history.culprits.items():
        if cause in causes:
            counted[who] = counted.get(who, 0) + times
    return max(sorted(counted.items()), key=lambda item: item[1], default=("", 0))


def _not_seen(history: History, about: str, what: str) -> Answer:
    said = f"{what} in {history.watched_ms / 1000:.0f} s"
    return Answer(about=about, verdict=Verdict.FINE, said=said)


def _crashing(history: History) -> Answer:
    about = "1. an instance that crashes and restarts within session.timeout.ms?"
    who, times = _worst(history, "expired", "restart")
    gone, returns = _worst(history, "return")
    if times < AGAIN and returns >= AGAIN:  # a process that leaves before it ends looks like one that polled too late
        return Answer(about=about, verdict=Verdict.UNKNOWN, said=f"{gone} left first, and came back: see 2")
    if times < AGAIN:
        return _not_seen(history, about, "nobody was restarted twice" if times else "nobody was restarted")
    do = (
        "If that was no deploy, look for why it dies (its log, OOMKilled, failing probes). A group.instance.id makes a "
        "restart within the session cost nothing; `holdfast run` hands over before a stop."
    )
    return Answer(about=about, verdict=Verdict.FINDING, said=f"{who} was restarted or redeployed {times} times", do=do)


def _too_slow(history: History) -> Answer:
    """A coordinator keeps no reason of a leave. Who exceeds max.poll.interval.ms leaves; so does who closes and is
    started again, and holdfast's watchdog leaves for who was killed."""
    about = "2. an instance beyond max.poll.interval.ms?"
    who, times = _worst(history, "return")
    if times < AGAIN:
        return _not_seen(history, about, "nobody left and came back twice" if times else "nobody left and came back")
    away = [
        change.away_ms
        for one in history.rebalances
        for change in one.changes
        if change.cause == "return" and change.who == who
    ]
    mean = f" (for {sum(away) / len(away) / 1000:.0f} s)" if away else ""
    do = (
        "Its log and its restart count tell which. Beyond the interval: poll fewer records (max.poll.records), do less "
        "with each, or allow more time; a rebalance storm is this one member, again and again. Restarted: look for why "
        "it ends (an error, OOMKilled, a failing probe)."
    )
    said = f"{who} left and came back {times} times{mean}: it is beyond it, or is restarted each time"
    return Answer(about=about, verdict=Verdict.FINDING, said=said, do=do)


def _collision(history: History) -> Answer:
    about = "3. two processes with one group.instance.id?"
    who, times = _worst(history, "replaced")
    if times < AGAIN:
        return _not_seen(
            history, about, "no instance id changed hands twice" if times else "no instance id changed hands"
        )
    do = "Two processes take it from each other, and each is fenced in turn. Give every process an id of its own."
    return Answer(about=about, verdict=Verdict.FINDING, said=f"{who} changed hands {times} times", do=do)


def _really_cooperative(history: History) -> Answer:
    assert history.last is not None
    found = _cooperative(history)
    lists = sorted({_lists(member) for member in history.last.described.members} - {""})
    said = found.said + (f"; members list {' / '.join(lists)}" if lists else "")
    about = "4. is the cooperative assignor really in use?"
    return Answer(about=about, verdict=found.verdict, said=said, do=found.do)


def _lists(member: DescribedMember) -> str:
    note = None if member.subscription is None else read_member_note(member.subscription.user_data)
    return "" if note is None else ",".join(note.assignors)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(members: list[DescribedMember]) -> str:
    names = sorted(map(name, members))
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
