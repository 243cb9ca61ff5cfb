"""The judge of the chaos: which records were lost, which were done twice, and which fault each of the latter is due to.

The rule, exactly. A *doing* is one line of a member's log: this member did this record at this time.

1. Lost: a record that the producer was told is stored, and that nobody did. Nothing excuses it.
2. Faults, from what the conductor did and from what the members wrote themselves:
   *killed* at a time; *murdered*, killed together with the watchdog that would have spoken for it; *frozen* for longer
   than the session less one heartbeat (after the last heartbeat the session lasts no longer than that); *hung*, not
   polling for longer than max.poll.interval.ms; *starved*, as frozen, but by the machine. A member that was frozen or
   hung for less was not hit.
3. A doing is *late*, and asks nobody to explain it, if the record was in the application's hands while its member was
   hit (handed out before, done after): no client can take it back. A client that is not ours is late as well with what
   it hands out after it was frozen or hung and before it tells its application, as it does then, that something is
   lost, or is killed before it can; for a session at most: librdkafka and Java go on with what they had fetched, and
   librdkafka even begins with what it was given meanwhile. Ours must know that it may be out of the group.
4. Of the other doings of a record every one but the last must have been *left behind*: its doer was hit after the doing
   and before the next one, had not heard until then that a commit covers the record, and did it no longer
   than COMMIT_KNOWN_S before it was hit; by then ours must have heard of a commit. Or it is a client that is not ours,
   was closed after the doing, and says itself that it could not commit: Java's, closed in a round, calls what it held
   *lost*; librdkafka's last commit comes when the round is over, and its on_commit hears that it was *refused*.
5. Whatever is done twice and not explained by 3 and 4 is a failure, whoever did it.
6. When everybody has left, the group has committed everything; but for a partition whose last record was done last by a
   client that is not ours and that says, as in 4, that it could not commit when it was closed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.testing.groupcheck import Doubled, doubled, lost
from holdfast.testing.members.log import MemberLog

SESSION_MS, HEARTBEAT_MS, MAX_POLL_MS = 10_000, 3_000, 12_000
"""The members' settings: a short session, so that faults come to something often; the heartbeat is the default."""

COMMIT_KNOWN_S = 30.0
"""auto.commit.interval.ms is 5 s; a commit that falls between two generations waits for the round, which waits for the
slowest member for max.poll.interval.ms, 12 s; and as much again for a busy machine."""

ROUNDED_MS = 1.0
"""How long a record was held is written in whole milliseconds."""

SHOWN = 12


@dataclass(frozen=True, slots=True)
class Fault:
    member: str
    kind: str
    start_ms: float
    end_ms: float
    """When it was over; of a kill, when the process was gone."""


@dataclass(slots=True)
class Findings:
    """What came out. `due_to` counts the doings beyond the first, by the fault."""

    records: int = 0
    lost: Mapping[int, Sequence[int]] = field(default_factory=dict)
    doubled: int = 0
    due_to: Counter[str] = field(default_factory=Counter)
    unexplained: list[Doubled] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.lost and not self.unexplained

    def __str__(self) -> str:
        due = ", ".join(f"{count} {reason}" for reason, count in sorted(self.due_to.items())) or "none"
        faults = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(f.kind for f in self.faults).items())) or "none"
        lines = [
            f"records {self.records}, lost {sum(map(len, self.lost.values()))}, done twice {self.doubled} "
            f"(due to: {due}), of them unexplained {len(self.unexplained)}; faults: {faults}"
        ]
        lines += [f"lost of partition {p}: {list(offsets)[:SHOWN]}" for p, offsets in sorted(self.lost.items())]
        lines += [f"unexplained {each}" for each in self.unexplained[:SHOWN]]
        return "\n".join(lines)


def beyond(faults: Iterable[Fault]) -> list[Fault]:
    """Those freezes and hangs that were long enough to be faults."""
    long_ms = {"frozen": SESSION_MS - HEARTBEAT_MS, "starved": SESSION_MS - HEARTBEAT_MS, "hung": MAX_POLL_MS}
    return [fault for fault in faults if fault.end_ms - fault.start_ms > long_ms.get(fault.kind, -1.0)]


def written_faults(log: MemberLog, frozen: Iterable[Fault]) -> list[Fault]:
    """What a member's own log says: when it hung, and when it did not run though nobody froze it."""
    ours = [fault for fault in frozen if fault.member == log.name]
    found = []
    began_ms: float | None = None
    for event in log.events:
        if event.name == "hang":
            began_ms = event.time_ms
        elif event.name == "awake" and began_ms is not None:
            found.append(Fault(log.name, "hung", began_ms, event.time_ms))
            began_ms = None
        elif event.name == "stalled":
            stalled = Fault(log.name, "starved", event.time_ms - float(event.text), event.time_ms)
            if not any(fault.start_ms <= stalled.end_ms and stalled.start_ms <= fault.end_ms for fault in ours):
                found.append(stalled)
    if began_ms is not None:  # killed meanwhile, or hangs to the end
        found.append(Fault(log.name, "hung", began_ms, float("inf")))
    return found


def judge(
    acknowledged: Mapping[int, Sequence[int]],
    logs: Sequence[MemberLog],
    played: Sequence[Fault],
    foreign: frozenset[str],
) -> Findings:
    """`played` is what the conductor did, short or long; `foreign` names the members that are not holdfast's."""
    frozen = [fault for fault in played if fault.kind == "frozen"]
    faults = beyond([*played, *(fault for log in logs for fault in written_faults(log, frozen))])
    bench = _Bench({log.name: log for log in logs}, faults, foreign)
    findings = Findings(records=sum(map(len, acknowledged.values())), lost=lost(acknowledged, logs), faults=faults)
    for record in doubled(logs):
        findings.doubled += 1
        reasons = bench.explain(record)
        if reasons is None:
            findings.unexplained.append(record)
        else:
            findings.due_to.update(reasons)
    return findings


def failed_closing_ms(log: MemberLog) -> float | None:
    """When a member that was being closed last said that it could not commit; None if it did not say so."""
    closing, failed_ms = False, None
    for event in log.events:
        closing = closing or event.name == "closing"
        if closing and event.name in {"lost", "refused"}:
            failed_ms = event.time_ms
    return failed_ms


def short(
    ends: Mapping[int, int], committed: Mapping[int, int], logs: Sequence[MemberLog], foreign: frozenset[str]
) -> dict[int, tuple[int, int]]:
    """Partitions that are not committed to their end when everybody has left, without an excuse: (committed, end)."""
    last_by: dict[int, tuple[float, str]] = {}
    for log in logs:
        for record in log.records:
            if record.offset + 1 == ends.get(record.partition):
                doing = record.time_ms, log.name
                last_by[record.partition] = max(doing, last_by.get(record.partition, doing))
    excused = {log.name for log in logs if log.name in foreign and failed_closing_ms(log) is not None}
    return {
        partition: (committed[partition], end)
        for partition, end in ends.items()
        if committed[partition] > end
        or (committed[partition] < end and last_by.get(partition, (0.0, ""))[1] not in excused)
    }


class _Bench:
    """The logs, laid out so that a doing finds what bears on it."""

    def __init__(self, logs: Mapping[str, MemberLog], faults: Sequence[Fault], foreign: frozenset[str]) -> None:
        self._foreign = foreign
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        for fault in sorted(faults, key=lambda each: each.start_ms):
            self._faults[fault.member].append(fault)
        self._held_ms = {
            name: {event.time_ms: float(event.text) for event in log.named("held")} for name, log in logs.items()
        }
        self._losses: dict[str, list[float]] = defaultdict(list)
        """When a member told its application that it had lost something."""
        self._commits: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        self._failed_closing: dict[str, float] = {}
        """When a member that was being closed said that it could not commit."""
        for name, log in logs.items():
            failed_ms = failed_closing_ms(log)
            if failed_ms is not None:
                self._failed_closing[name] = failed_ms
            for event in log.events:
                if event.name == "lost":
                    self._losses[name].append(event.time_ms)
                elif event.name == "acknowledged" and event.text:
                    for pair in event.text.split(","):
                        number, offset = pair.split(":")
                        self._commits[name, int(number)].append((event.time_ms, int(offset)))

    def explain(self, record: Doubled) -> list[str] | None:
        """The faults that this record's doings are due to, one less than there are; None if one has no such reason."""
        late = [(doing, self._late(*doing)) for doing in record.times]
        reasons = [reason for _, reason in late if reason is not None]
        for first, second in pairwise([doing for doing, reason in late if reason is None]):
            reason = self._left_behind(record, first, second[0])
            if reason is None:
                return None
            reasons.append(reason)
        return reasons[: len(record.times) - 1]

    def _late(self, time_ms: float, member: str) -> str | None:
        handed_ms = time_ms - self._held_ms[member].get(time_ms, 0.0) - ROUNDED_MS
        for fault in self._faults[member]:
            if fault.end_ms > time_ms:
                continue
            if handed_ms <= fault.start_ms:
                return f"in hand while {fault.kind}"
            if member in self._foreign and time_ms < self._aware_ms(member, fault):
                return f"foreign and not yet aware that it was {fault.kind}"
        return None

    def _aware_ms(self, member: str, fault: Fault) -> float:
        """When a foreign client knew what had become of it. If it never said so, it knew at once."""
        died = (each.end_ms for each in self._faults[member] if each.kind in {"killed", "murdered"})
        heard = [each for each in (*self._losses[member], *died) if each > fault.end_ms]
        return min([*heard, fault.end_ms + SESSION_MS]) if heard else fault.end_ms

    def _left_behind(self, record: Doubled, first: tuple[float, str], next_ms: float) -> str | None:
        done_ms, member = first
        foreign = member in self._foreign
        for fault in self._faults[member]:
            if not (done_ms <= fault.end_ms and fault.start_ms <= next_ms):
                continue
            soon = foreign or fault.start_ms - done_ms <= COMMIT_KNOWN_S * 1000
            if soon and not self._known(record, member, done_ms, fault.start_ms):
                return fault.kind
        failed_ms = self._failed_closing.get(member)
        if foreign and failed_ms is not None and done_ms <= failed_ms <= next_ms:
            return None if self._known(record, member, done_ms, failed_ms) else "foreign and closed in a round"
        return None

    def _known(self, record: Doubled, member: str, since_ms: float, until_ms: float) -> bool:
        """Whether the member had heard that the group has this record."""
        return any(
            since_ms <= heard_ms < until_ms and offset > record.offset
            for heard_ms, offset in self._commits[member, record.partition]
        )
