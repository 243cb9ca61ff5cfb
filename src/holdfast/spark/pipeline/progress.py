"""A running pipeline's progress: what it owns, its lag, its rate, and how often the group rebalanced.

The member's report has the group and the lag, Spark's progress the batches. Everything here is a pure function of
these two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import TopicPartition, by_topic, flatten
from holdfast.trace import partitions_text

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InGroup:
    """The query in its group, from its reader's report."""

    member: str = ""
    generation: int | None = None
    owned: frozenset[TopicPartition] = frozenset()
    lag: int | None = None
    """Records between the positions and the ends of owned partitions; None as long as it is unknown."""
    rebalances: int = 0
    """How often the group has rebalanced, our own join included."""


def in_group(report: Mapping[str, Any]) -> InGroup:
    """From one reader's report in `holdfast.spark.report`."""
    return InGroup(
        member=str(report["member"]),
        generation=int(report["generation"]),
        owned=flatten(report["owned"]),
        lag=int(report["lag"]),
        rebalances=int(report["rebalances"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches that Spark has finished since the last report."""

    count: int = 0
    rows: int = 0
    longest_ms: int = 0
    last_id: int = -1


def count_batches(progress: Sequence[Mapping[str, Any]], after: int) -> Batches:
    """Count those with an id above `after`. Spark also reports idle times, under the id of the next batch."""
    done = {int(one["batchId"]): one for one in progress if int(one["batchId"]) > after and one.get("numInputRows")}
    return Batches(
        count=len(done),
        rows=sum(int(one["numInputRows"]) for one in done.values()),
        longest_ms=max((int(one.get("durationMs", {}).get("triggerExecution", 0)) for one in done.values()), default=0),
        last_id=max(done, default=after),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One line of live progress."""

    at_s: float
    name: str
    event: str = "progress"
    """started, progress, draining, stopped or failed."""
    in_group: InGroup = field(default_factory=InGroup)
    batches: Batches = field(default_factory=Batches)
    seconds: float = 0.0
    total_rows: int = 0
    message: str = ""

    @property
    def rows_per_s(self) -> float:
        return self.batches.rows / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "at_s": round(self.at_s, 3),
            "name": self.name,
            "event": self.event,
            "member": self.in_group.member,
            "generation": self.in_group.generation,
            "owned": dict(by_topic(self.in_group.owned)),
            "rebalances": self.in_group.rebalances,
            "batches": self.batches.count,
            "rows": self.batches.rows,
            "rows_per_s": round(self.rows_per_s, 1),
            "longest_batch_ms": self.batches.longest_ms,
            "total_rows": self.total_rows,
            "lag": self.in_group.lag,
            **({"message": self.message} if self.message else {}),
        }

    def as_line(self) -> str:
        start = f"{self.at_s:7.1f} s  {self.name:<12} {self.event:<9}"
        if self.event not in ("progress", "draining"):
            return f"{start} {self.message}".rstrip()
        owned = partitions_text(dict(by_topic(self.in_group.owned))) or "-"
        generation = "-" if self.in_group.generation is None else self.in_group.generation
        lag = "?" if self.in_group.lag is None else f"{self.in_group.lag:,}"
        return (
            f"{start} gen {generation:<4} owns {len(self.in_group.owned):>2} {owned:<18} lag {lag:>7}  "
            f"{self.rows_per_s:>8,.0f} rows/s  {self.batches.count:>3} batches, longest {self.batches.longest_ms} ms  "
            f"{self.in_group.rebalances} rebalances"
        )
