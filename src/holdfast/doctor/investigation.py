"""The checks for the worst findings: crash loops, members beyond max.poll.interval.ms, instance-id collisions, and
eager assignors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

from holdfast.doctor import causes
from holdfast.doctor import events as e
from holdfast.doctor.finding import (
    AGAIN,
    COLLISION,
    CRASH_LOOP,
    CRASHES,
    EAGER,
    EVIDENCE_KEPT,
    HANG,
    STORM,
    Evidence,
    Finding,
    by_process,
    caused_by,
    cost_of,
    evidence_of,
    host_of,
    instance_id_for,
    lives_evidence,
    session_for,
    session_key,
    share_of,
    shorter_session,
    span_of,
    times_text,
)
from holdfast.doctor.history import History
from holdfast.doctor.people import EXPELLED, REPLACED, Life
from holdfast.doctor.rounds import GATHERING_MS

STATIC_AGAIN = 3
"""So often within `STATIC_WITHIN_MS`, and so much more often than its neighbours: a deploy replaces every instance."""

STATIC_WITHIN_MS = 3_600_000.0
"""Kubernetes restarts a crashed container after five minutes at the most. Deploys of a week are no crash loop."""

RESTART_MS = 5_000.0
"""The shortest time that a restart takes; used where the logs do not tell."""


def crashes(history: History) -> list[Finding]:
    """Processes that crashed; a crash loop if one did so twice, and was back before the coordinator had noticed."""
    found = []
    for lives in by_process(history, causes.CRASH).values():
        ended = [life for life in lives if life.how == causes.CRASH]
        back = any(_back_within_its_session(gone, lives, history.session_ms) for gone in ended)
        culprit = ended[-1]
        rebalances = caused_by(history, lives, causes.CRASH)
        # Its partitions also stood still until its session ended. The new owners' pauses already include that.
        cost, measured = cost_of(history, rebalances)
        session = history.session_ms
        if len(ended) >= AGAIN and back:
            found.append(
                Finding(
                    kind=CRASH_LOOP,
                    culprit=culprit.name,
                    host=host_of(lives),
                    times=len(ended),
                    cost_ms=cost,
                    measured=measured,
                    what=f"{culprit.name} crashed {times_text(len(ended))} and was back before its session had ended: "
                    "every time the group waits for its dead predecessor.",
                    change={"group.instance.id": instance_id_for(culprit), session_key(history): session_for(session)},
                    do="Find why it dies (its own log, OOMKilled, failing probes). With an instance id a restart "
                    "within the session moves nothing; holdfast's watchdog leaves in a dead process's name at once.",
                    evidence=lives_evidence(ended, "its session ended"),
                )
            )
        elif _not_the_end(history, ended):
            found.append(
                Finding(
                    kind=CRASHES,
                    culprit=culprit.name,
                    host=host_of(lives),
                    times=len(ended),
                    cost_ms=cost,
                    measured=measured,
                    what=f"{culprit.name} was silent for its whole session {times_text(len(ended))}: it crashed, was "
                    "killed or cut off. Its partitions stood still for all of it.",
                    change=shorter_session(history),
                    do="Stop processes with SIGTERM and let them close. "
                    + ("A shorter session notices sooner; holdfast's" if shorter_session(history) else "Holdfast's")
                    + " watchdog notices at once.",
                    evidence=lives_evidence(ended, "its session ended"),
                )
            )
    return found


def static_crashes(history: History) -> list[Finding]:
    """Instances that came back within their session several times without anybody fenced: they crash."""
    fenced = {history.people.lives[one.member].instance for one in history.events
              if one.kind == e.FENCED and one.member in history.people.lives}  # fmt: skip
    fenced |= {one.instance or _instance_in(one.said) for one in history.events if one.kind == e.FENCED}
    found = []
    replaced = by_process(history, REPLACED)
    crashing = _crashing(history, replaced)
    for process, lives in replaced.items():
        ended = [life for life in lives if life.how == REPLACED]
        instance = process.removeprefix("instance ")
        if instance in fenced or process not in crashing:
            continue
        found.append(
            Finding(
                kind=CRASH_LOOP,
                culprit=instance,
                host=host_of(lives),
                times=len(ended),
                cost_ms=len(ended) * RESTART_MS * share_of(history),
                what=f"{instance} came back {times_text(len(ended))} within its session: it crashes and is restarted. "
                "Its instance id spares the others a rebalance; its own partitions stand still each time.",
                do="Find why it dies: its own log, OOMKilled, failing probes.",
                evidence=lives_evidence(ended, "came back under another member id"),
            )
        )
    return found


def _crashing(history: History, replaced: Mapping[str, list[Life]]) -> set[str]:
    """Those of which one hour has so many more ends than of a usual neighbour. An instance that stayed has none."""
    instances = {history.people.process_of(life) for life in history.people.lives.values() if life.instance}
    hour = _Hour({*instances, *replaced})
    ends = sorted((life.to_ms, who) for who, lives in replaced.items() for life in lives if life.how == REPLACED)
    found: set[str] = set()
    gone = 0
    for at_ms, now in groupby(ends, key=itemgetter(0)):
        ended = [who for _, who in now]
        for who in ended:
            hour.count(who, 1)
        while ends[gone][0] < at_ms - STATIC_WITHIN_MS:
            hour.count(ends[gone][1], -1)
            gone += 1
        found.update(who for who in ended if hour.ends[who] - hour.usual_beside(who) >= STATIC_AGAIN)
    return found


class _Hour:
    """How often each instance ended within an hour that is moved over the history."""

    def __init__(self, instances: Collection[str]) -> None:
        self.ends: Counter[str] = Counter()
        self._others = len(instances) - 1
        self._alike = Counter({0: len(instances)})
        """How many instances ended so often: few numbers, however many instances there are."""

    def count(self, who: str, more: int) -> None:
        self._alike[self.ends[who]] -= 1
        if not self._alike[self.ends[who]]:
            del self._alike[self.ends[who]]
        self.ends[who] += more
        self._alike[self.ends[who]] += 1

    def usual_beside(self, who: str) -> int:
        """The median of the others; 0 if there are none."""
        fewer, middle = 0, max(0, self._others - 1) // 2
        for times, instances in sorted(self._alike.items()):
            fewer += instances - (times == self.ends[who])
            if fewer > middle:
                return times
        return 0


def watched_crashes(history: History) -> list[Finding]:
    """Processes that died again and again, and holdfast's watchdog left in their name: the session never ended."""
    found = []
    for lives in by_process(history, causes.WATCHDOG).values():
        ended = [life for life in lives if life.how == causes.WATCHDOG and _back_soon(life, lives, history.session_ms)]
        if len(ended) < AGAIN:
            continue
        cost, measured = cost_of(history, caused_by(history, lives, causes.WATCHDOG, causes.JOIN))
        culprit = ended[-1]
        found.append(
            Finding(
                kind=CRASH_LOOP,
                culprit=culprit.name,
                host=host_of(lives),
                times=len(ended),
                cost_ms=cost,
                measured=measured,
                what=f"{culprit.name} died {times_text(len(ended))} and was started again soon. Its watchdog left for "
                "it at once, so nobody waited for its session; each time its partitions move away and back.",
                do="Find why it dies: its own log, OOMKilled, failing probes.",
                evidence=lives_evidence(ended, "it died, and its watchdog left for it"),
            )
        )
    return found


def _back_within_its_session(gone: Life, lives: Sequence[Life], session_ms: float) -> bool:
    """Whether one of its process's `lives` began while the dead member's session was still running."""
    return _back_between(gone, lives, gone.to_ms - session_ms, gone.to_ms)


def _back_soon(gone: Life, lives: Sequence[Life], session_ms: float) -> bool:
    """Whether the process was started again sooner than its session would have ended."""
    return _back_between(gone, lives, gone.to_ms, gone.to_ms + session_ms)


def _back_between(gone: Life, lives: Sequence[Life], from_ms: float, until_ms: float) -> bool:
    later = bisect_right(lives, gone.since_ms, key=lambda one: one.since_ms)
    again = bisect_left(lives, from_ms, lo=later, key=lambda one: one.since_ms)
    return again < len(lives) and lives[again].from_ms < until_ms


def _not_the_end(history: History, ended: Iterable[Life]) -> bool:
    """Whether any member was left to take over. If everybody was killed, nobody was disturbed."""
    return any(history.people.any_outlasts(life.to_ms, life.to_ms + GATHERING_MS) for life in ended)


# -- 2. beyond max.poll.interval.ms


def too_slow(history: History) -> list[Finding]:
    found = []
    for lives in by_process(history, causes.TOO_SLOW, EXPELLED).values():
        ended = [life for life in lives if life.how in (causes.TOO_SLOW, EXPELLED)]
        culprit = ended[-1]
        rebalances = caused_by(history, lives, causes.TOO_SLOW, causes.JOIN)
        cost, measured = cost_of(history, rebalances)
        limit = max(history.people.poll_ms_of(life) for life in ended)
        away = [
            later.from_ms - life.to_ms
            for life, later in pairwise(lives)
            if life.how in (causes.TOO_SLOW, EXPELLED) and later.from_ms > life.to_ms
        ]
        longest = limit + max(away, default=0.0)
        storm = len(ended) >= AGAIN
        found.append(
            Finding(
                kind=STORM if storm else HANG,
                culprit=culprit.name,
                host=host_of(lives),
                times=len(ended),
                cost_ms=cost,
                measured=measured,
                what=f"{culprit.name} exceeded max.poll.interval.ms {times_text(len(ended))}"
                + (f", away for up to {max(away) / 1000:.0f} s" if away else "")
                + (": out, back, and out again, with a rebalance each time." if storm else "."),
                change={"max.poll.records": _fewer(limit, longest), "max.poll.interval.ms": str(int(2 * longest))},
                do="Poll fewer records at a time, so that a batch stays well below the limit, or move slow work off "
                "the polling thread; a longer interval only hides it. A stack dump shows where it hangs.",
                evidence=lives_evidence(ended, "left: max.poll.interval.ms was exceeded"),
            )
        )
    return found


def _fewer(limit_ms: float, longest_ms: float) -> str:
    """How many of the default 500 records to poll, so that the longest batch takes half of the limit."""
    return str(max(1, int(500 * limit_ms / (2 * max(longest_ms, 1.0)))))


# -- 3. instance ids


def collisions(history: History) -> list[Finding]:
    found = []
    fenced: dict[str, list[Evidence]] = defaultdict(list)
    owners: dict[str, set[str]] = defaultdict(set)
    for event in history.events:
        if event.kind == e.FENCED:
            life = history.people.lives.get(event.member)
            instance = event.instance or (life.instance if life is not None else "") or _instance_in(event.said)
            evidence = Evidence(
                at_ms=event.at_ms, what="fenced: another process has its instance id", where=event.where
            )
            fenced[instance].append(evidence)
        if event.kind in (e.JOINED, e.ADDED) and event.client:
            life = history.people.lives.get(event.member)
            if event.instance or (life is not None and life.instance):
                owners[event.instance or (life.instance if life is not None else "")].add(event.client)
    replaced = by_process(history, REPLACED)
    for instance in sorted({*fenced, *(key.removeprefix("instance ") for key in replaced)}):
        lives = [life for life in replaced.get(f"instance {instance}", ()) if life.how == REPLACED]
        if not fenced.get(instance):
            continue
        times = max(len(lives), len(fenced[instance]))
        shown = instance or "an instance id"
        found.append(
            Finding(
                kind=COLLISION,
                culprit=instance,
                times=times,
                cost_ms=span_of(lives) * share_of(history),
                what=f"Two processes use group.instance.id {shown}: it was taken"
                f" over {times_text(max(1, len(lives)))}, "
                f"and its last owner was fenced {times_text(len(fenced[instance]))}."
                + (f" They are {', '.join(sorted(owners[instance]))}." if len(owners[instance]) > 1 else ""),
                change={"group.instance.id": "${HOSTNAME}"},
                do="Give every process an id of its own: the pod's name in a StatefulSet. A Deployment that surges, or "
                "an id in a shared file, gives two processes the same id.",
                evidence=[*fenced[instance], *lives_evidence(lives, "its instance id was taken over")][:EVIDENCE_KEPT],
            )
        )
    return found


def _instance_in(said: str) -> str:
    """Java: "The group instance id Some(x)/Optional[x] has been fenced"."""
    for mark in ("Optional[", "Some("):
        if mark in said:
            return said.partition(mark)[2].partition("]" if mark.endswith("[") else ")")[0]
    return ""


# -- 4. cooperative


def eager(history: History) -> list[Finding]:
    disturbed = history.disturbances
    if history.cooperative is not False or not disturbed:
        return []
    cost, measured = cost_of(history, disturbed)
    return [
        Finding(
            kind=EAGER,
            times=len(disturbed),
            cost_ms=cost,
            measured=measured,
            what=f"The group runs {history.protocol}, which is eager: "
            + ("its rebalance" if len(disturbed) == 1 else f"each of {len(disturbed)} rebalances")
            + " stopped every partition of every member.",
            change={"partition.assignment.strategy": "cooperative-sticky"},
            do="Two rolling bounces: first list cooperative-sticky before the old one, then it alone. `holdfast "
            "preflight GROUP --to cooperative-sticky` says which step is safe.",
            evidence=[evidence_of(one) for one in disturbed[:EVIDENCE_KEPT]],
        )
    ]
