"""The checks for the worst findings: crash loops, members beyond max.poll.interval.ms, instance-id collisions, and
eager assignors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median_low

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
    STORM_AGAIN,
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
from holdfast.doctor.people import EXPELLED, POLL_MS, REPLACED, Life
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
    for process, lives in by_process(history, causes.CRASH).items():
        ended = [life for life in lives if life.how == causes.CRASH]
        if not ended:
            continue
        back = [life for life in lives if any(_back_within(gone, life, history.session_ms) for gone in ended)]
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
        elif process and _not_the_end(history, ended):
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
    for process, lives in replaced.items():
        ended = [life for life in lives if life.how == REPLACED]
        instance = process.removeprefix("instance ")
        if instance in fenced or not _again_and_again(ended, _neighbours(history, replaced, process)):
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


def _neighbours(history: History, replaced: Mapping[str, list[Life]], process: str) -> list[list[Life]]:
    """The replaced lives of each other instance of the group; none for an instance that stayed."""
    instances = {f"instance {life.instance}" for life in history.people.lives.values() if life.instance}
    return [[life for life in replaced.get(one, ()) if life.how == REPLACED] for one in sorted(instances - {process})]


def _again_and_again(ended: Sequence[Life], others: Sequence[Sequence[Life]]) -> bool:
    """Whether one hour has so many more ends of this instance than of a usual neighbour."""
    ends = [life.to_ms for life in ended]
    for last, end_ms in enumerate(ends):
        began_ms = end_ms - STATIC_WITHIN_MS
        own = last + 1 - bisect_left(ends, began_ms)
        usual = median_low([sum(began_ms <= life.to_ms <= end_ms for life in each) for each in others] or [0])
        if own - usual >= STATIC_AGAIN:
            return True
    return False


def _back_within(gone: Life, again: Life, session_ms: float) -> bool:
    """Whether `again` joined while the dead member's session was still running."""
    return again is not gone and gone.from_ms < again.from_ms and gone.to_ms - session_ms <= again.from_ms < gone.to_ms


def _not_the_end(history: History, ended: Iterable[Life]) -> bool:
    """Whether any member was left to take over. If everybody was killed, nobody was disturbed."""
    return any(
        other.from_ms < life.to_ms and not other.to_ms <= life.to_ms + GATHERING_MS
        for life in ended
        for other in history.people.lives.values()
        if other is not life
    )


# -- 2. beyond max.poll.interval.ms


def too_slow(history: History) -> list[Finding]:
    found = []
    for lives in by_process(history, causes.TOO_SLOW, EXPELLED).values():
        ended = [life for life in lives if life.how in (causes.TOO_SLOW, EXPELLED)]
        if not ended:
            continue
        culprit = ended[-1]
        rebalances = caused_by(history, lives, causes.TOO_SLOW, causes.JOIN)
        cost, measured = cost_of(history, rebalances)
        limit = max((history.people.poll_ms_of(life) for life in ended), default=POLL_MS)
        away = [
            later.from_ms - life.to_ms
            for life, later in pairwise(lives)
            if life.how in (causes.TOO_SLOW, EXPELLED) and later.from_ms > life.to_ms
        ]
        longest = limit + max(away, default=0.0)
        storm = len(ended) >= STORM_AGAIN
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
        if not fenced.get(instance) or (not instance and not fenced[instance]):
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
