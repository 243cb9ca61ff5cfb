"""What a doctor that follows tells: a line for each change, and none for what is as it was."""

from __future__ import annotations

from typing import Any

from holdfast.doctor import finding as f
from holdfast.doctor.changes import changes_of


def finding(kind: str, culprit: str, times: int = 1, cost: float = 1.5) -> dict[str, Any]:
    return {"kind": kind, "culprit": culprit, "times": times, "cost_partition_seconds": cost, "measured": False}


def told(before: list[dict[str, Any]], after: list[dict[str, Any]], *, there: bool = True) -> list[str]:
    return [one.text() for one in changes_of("billing", before, after, there=there)]


def test_what_is_new_worse_or_over_is_a_line_each() -> None:
    hang, skew = finding(f.HANG, "c1"), finding(f.SKEW, "")
    assert told([], [hang]) == [
        "billing: new: beyond max.poll.interval.ms: c1, once, at most 1.5 partition-seconds",
    ]
    assert told([hang], [hang]) == []
    assert told([hang, skew], [finding(f.HANG, "c1", cost=9.0)]) == ["billing: no longer: uneven plan"]
    assert told([hang], []) == ["billing: healthy again"]
    assert told([hang], [], there=False) == ["billing: no news for a long time; dropped"]
    assert told([], []) == []


def test_a_finding_that_grows_is_the_same_finding() -> None:
    """A hang that happens again is a storm, and an autoscaler gets one culprit after the other: neither is a finding
    that ended and another that began."""
    assert told([finding(f.HANG, "c1")], [finding(f.STORM, "c1", 2)]) == [
        "billing: worse: rebalance storm: c1, twice, at most 1.5 partition-seconds"
    ]
    assert told([finding(f.FLAPPING, "a, b, c", 3)], [finding(f.FLAPPING, "a, b, c, d", 3)]) == [
        "billing: worse: flapping autoscaler: a, b, c, d, 3 times, at most 1.5 partition-seconds"
    ]


def test_another_members_finding_is_another_finding() -> None:
    """c1's hang became a storm when c2 hung for the first time: c2 was taken for c1, and nothing was said of it."""
    before = [finding(f.HANG, "c1")]
    after = [finding(f.HANG, "c2"), finding(f.STORM, "c1", 2)]
    assert [line.split(",")[0] for line in told(before, after)] == [
        "billing: new: beyond max.poll.interval.ms: c2",
        "billing: worse: rebalance storm: c1",
    ]
