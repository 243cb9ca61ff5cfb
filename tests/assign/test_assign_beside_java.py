"""Beside Kafka's own assignors, run from its jars on the same random cases.

Range and round robin must agree in every list, whatever the subscriptions. Sticky and cooperative-sticky must agree
where subscriptions are equal and racks don't matter; with racks, and where subscriptions differ, ours is never worse.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from assign_cases import Member, lists, plan, settle
from assign_oracle import cost

from holdfast.model import ClusterView, TopicPartition, TopicView
from holdfast.testing.java import compile_java, java_command, kafka_classpath

pytestmark = pytest.mark.java

Case = tuple[str, ClusterView, dict[str, Member]]


def random_case(seed: int, strategy: str, *, equal: bool, racks: bool) -> Case:
    rng = random.Random(f"{seed} {strategy} {equal} {racks}")
    topics = {}
    for t in range(rng.randint(1, 6)):
        count = rng.randint(1, 9)
        spots = tuple(frozenset(rng.sample("abc", rng.randint(1, 3))) for _ in range(count)) if racks else ()
        topics[f"topic{t}"] = TopicView(count, spots)
    names = sorted(topics)
    holders = {(topic, p): rng.randrange(9) for topic, view in topics.items() for p in range(view.partitions)}
    members = {}
    for m in range(rng.randint(1, 8)):
        owned = {TopicPartition(*part) for part, who in holders.items() if who == m and seed % 3}
        members[f"consumer-{rng.randrange(10**6):06d}"] = Member(
            topics=tuple(names) if equal else tuple(rng.sample(names, rng.randint(1, len(names)))),
            owned=frozenset(owned),
            generation=3,
            rack=rng.choice(["a", "b", "c", "d", None]) if racks else None,
            instance=rng.choice([None, f"instance{rng.randrange(10**6)}"]),
        )
    return strategy, ClusterView(topics), members


def line(case: Case) -> str:
    strategy, view, members = case
    topics = ",".join(
        f"{name}=" + "|".join("".join(sorted(one.racks[p])) if one.racks else "-" for p in range(one.partitions))
        for name, one in sorted(view.topics.items())
    )
    people = ";".join(
        ",".join(
            (
                name,
                one.instance or "~",
                one.rack or "~",
                str(one.generation),
                "+".join(one.topics) or "~",
                "+".join(f"{t}:{p}" for t, p in sorted(one.owned)) or "~",
            )
        )
        for name, one in sorted(members.items())
    )
    return f"{strategy}\t{topics}\t{people}"


def java_answers(cases: list[Case]) -> list[dict[str, frozenset[TopicPartition]]]:
    classes = compile_java([Path(__file__).parent / "java" / "PlanCases.java"])
    done = subprocess.run(
        java_command("PlanCases", classpath=kafka_classpath(classes)),
        input="\n".join(map(line, cases)) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    found = []
    for answered in done.stdout.splitlines():
        given: dict[str, frozenset[TopicPartition]] = {}
        for entry in answered.split(";"):
            name, _, parts = entry.partition("=")
            split = [part.split(":") for part in parts.split("+") if part]
            given[name] = frozenset(TopicPartition(topic, int(number)) for topic, number in split)
        found.append(given)
    assert len(found) == len(cases)
    return found


@pytest.mark.parametrize(
    ("strategy", "equal", "racks"),
    [
        ("range", False, False),
        ("range", False, True),
        ("range", True, True),
        ("roundrobin", False, False),
        ("sticky", True, False),
        ("cooperative-sticky", True, False),
    ],
)
def test_the_lists_are_javas(strategy: str, equal: bool, racks: bool) -> None:
    """Cooperative: what the first round gives, so that withholding is compared too."""
    cases = [random_case(seed, strategy, equal=equal, racks=racks) for seed in range(300)]
    for case, theirs in zip(cases, java_answers(cases), strict=True):
        ours = plan(strategy, case[1], case[2]).assignment
        assert lists(ours) == lists(theirs), line(case)


@pytest.mark.parametrize("equal", [True, False])
def test_ours_is_never_worse_than_java_with_racks_or_differing_subscriptions(equal: bool) -> None:
    """Eager sticky gives its whole plan in one round, so both plans can be weighed at once."""
    cases = [random_case(seed, "sticky", equal=equal, racks=equal or seed % 2 == 0) for seed in range(300)]
    better = 0
    for case, theirs in zip(cases, java_answers(cases), strict=True):
        _, view, members = case
        ours: Mapping[str, frozenset[TopicPartition]] = settle("sticky", view, members).plan.target
        assert cost(view, members, ours) <= cost(view, members, theirs), line(case)
        better += cost(view, members, ours) < cost(view, members, theirs)
    assert better > 0  # or the cases are too tame to tell
