"""Who processed which partition when, and when nobody did: computed from trace records and from nothing else.

A gap is the time from the end of one lane to the start of the next on the same partition, while no other lane is open
there. Its cause is why the first lane ended ("revoked", "crashed", "hung" …). Before the first lane there is no gap:
the group has not begun yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.model import TopicPartition, TraceRecord

REBALANCED = frozenset({"revoked", "lost"})
"""Causes that are the protocol's doing, not a crash's or the application's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One lane: one member at work on one partition without a break."""

    partition: TopicPartition
    member: str
    from_ms: float
    to_ms: float
    first: int
    end: int
    why_ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Nobody processes the partition."""

    partition: TopicPartition
    from_ms: float
    to_ms: float
    cause: str
    before: str
    """Who had it."""
    after: str
    """Who has it next; empty if nobody until the end."""

    @property
    def ms(self) -> float:
        return self.to_ms - self.from_ms

    @property
    def by_rebalance(self) -> bool:
        return self.cause in REBALANCED

    @property
    def needless(self) -> bool:
        """Taken from a member and given back to it."""
        return self.by_rebalance and self.before == self.after


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole history of all partitions, sorted."""

    end_ms: float
    stretches: dict[TopicPartition, list[Stretch]] = field(default_factory=dict)

    @property
    def members(self) -> list[str]:
        return sorted({s.member for each in self.stretches.values() for s in each}, key=lambda m: (len(m), m))

    def gaps(self, *, since_ms: float = 0.0) -> list[Gap]:
        """All gaps that end after `since_ms`, by partition and time."""
        return [gap for partition in sorted(self.stretches) for gap in self._gaps_of(partition) if gap.to_ms > since_ms]

    def _gaps_of(self, partition: TopicPartition) -> list[Gap]:
        gaps = []
        last: Stretch | None = None
        for stretch in self.stretches[partition]:
            if last is not None and stretch.from_ms > last.to_ms:
                gaps.append(_gap(last, stretch.from_ms, stretch.member))
            if last is None or stretch.to_ms >= last.to_ms:
                last = stretch
        if last is not None and last.to_ms < self.end_ms and last.why_ended != "deleted":
            gaps.append(_gap(last, self.end_ms, ""))
        return gaps

    def takeovers(self) -> list[tuple[TopicPartition, float]]:
        """Moves without a gap: a member begins while one that is out of the group still works on the partition.

        The one that goes on longer has it: who wakes and works for a moment on what it has lost takes nothing.
        """
        found = []
        for partition in sorted(self.stretches):
            last: Stretch | None = None
            for stretch in self.stretches[partition]:
                if last is not None and stretch.to_ms < last.to_ms:
                    continue
                if last is not None and stretch.from_ms <= last.to_ms and stretch.member != last.member:
                    found.append((partition, stretch.from_ms))
                last = stretch
        return found

    def owner_at(self, partition: TopicPartition, from_ms: float, to_ms: float) -> str:
        """Who worked on it for most of a slice of time; empty if nobody did for most of it."""
        best, most = "", 0.0
        dark = to_ms - from_ms
        for stretch in self.stretches.get(partition, ()):
            shared = min(stretch.to_ms, to_ms) - max(stretch.from_ms, from_ms)
            if shared > 0:
                dark -= shared
                if shared > most:
                    best, most = stretch.member, shared
        return best if most >= dark else ""

    def dark_in(self, partition: TopicPartition, from_ms: float, to_ms: float) -> float:
        """How much of a slice nobody worked on it."""
        worked = sum(max(0.0, min(s.to_ms, to_ms) - max(s.from_ms, from_ms)) for s in self.stretches.get(partition, ()))
        return max(0.0, to_ms - from_ms - worked)


def _gap(last: Stretch, to_ms: float, after: str) -> Gap:
    return Gap(
        partition=last.partition,
        from_ms=last.to_ms,
        to_ms=to_ms,
        cause=last.why_ended,
        before=last.member,
        after=after,
    )


def timeline(records: Iterable[TraceRecord], end_ms: float) -> Timeline:
    """Read the lanes out of a trace."""
    running: dict[tuple[TopicPartition, str, object], TraceRecord] = {}
    stretches: dict[TopicPartition, list[Stretch]] = {}

    def ended(opened: TraceRecord, at: float, position: int, why: str) -> None:
        partition = _partition(opened)
        first = opened.data["position"]
        assert isinstance(first, int)
        stretches.setdefault(partition, []).append(
            Stretch(
                partition=partition,
                member=opened.member,
                from_ms=opened.at,
                to_ms=at,
                first=first,
                end=position,
                why_ended=why,
            )
        )

    for record in records:
        if record.step not in ("lane-opened", "lane-stopped"):
            continue
        key = (_partition(record), record.member, record.data.get("life"))
        opened = running.pop(key, None)
        if record.step == "lane-opened":
            running[key] = record
        elif opened is not None:
            position = record.data["position"]
            assert isinstance(position, int)
            ended(opened, record.at, position, record.cause or "")
    for opened in running.values():
        ended(opened, end_ms, -1, "")
    for each in stretches.values():
        each.sort(key=lambda s: (s.from_ms, s.to_ms, s.member))
    return Timeline(end_ms, dict(sorted(stretches.items())))


def _partition(record: TraceRecord) -> TopicPartition:
    topic, number = record.data["topic"], record.data["partition"]
    assert isinstance(topic, str) and isinstance(number, int)
    return TopicPartition(topic, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a history cost, in one place."""

    rounds: int
    rebalanced_ms: float
    """Time without processing because of rebalances, all partitions together."""
    rebalanced_longest_ms: float
    needless: int
    """Partitions taken from a member and given back to it."""
    paused_partitions: int
    """Partitions that a rebalance paused at least once."""
    dark_ms: float
    """All time without processing, crashes and hangs included."""
    dark_longest_ms: float


def summarise(line: Timeline, rounds: int) -> Summary:
    gaps = line.gaps()
    moved = [gap for gap in gaps if gap.by_rebalance]
    return Summary(
        rounds=rounds,
        rebalanced_ms=sum(gap.ms for gap in moved),
        rebalanced_longest_ms=max((gap.ms for gap in moved), default=0.0),
        needless=sum(gap.needless for gap in moved),
        paused_partitions=len({gap.partition for gap in moved}),
        dark_ms=sum(gap.ms for gap in gaps),
        dark_longest_ms=max((gap.ms for gap in gaps), default=0.0),
    )
