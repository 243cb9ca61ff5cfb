"""Against an independent optimum: never less balanced, no needless move, settled in two rounds, whatever the order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest
from assign_cases import STICKY, Member, fed_back, joined, plan, settle
from assign_oracle import cost, optimum

from holdfast.assign import plan_round
from holdfast.model import ClusterView, TopicPartition, TopicView


def random_case(seed: int) -> tuple[ClusterView, dict[str, Member]]:
    """A small group with anything in it: differing topics, stale and doubled claims, racks, statics."""
    rng = random.Random(seed)
    racks = rng.choice([(), (), ("a", "b"), ("a", "b", "c")])
    view = {}
    for t in range(rng.randint(1, 5)):
        count = rng.randint(1, 5)
        spots = tuple(frozenset(rng.sample(racks, rng.randint(1, len(racks)))) for _ in range(count)) if racks else ()
        view[f"t{t}"] = TopicView(count, spots)
    parts = [TopicPartition(topic, n) for topic, one in view.items() for n in range(one.partitions)]
    names = sorted(view)
    equal = rng.random() < 0.3
    held = {part: rng.randrange(8) for part in parts} if rng.random() < 0.8 else {}
    members = {}
    for m in range(rng.randint(1, 6)):
        topics = tuple(names) if equal else tuple(rng.sample(names, rng.randint(0, len(names))))
        owned = {part for part, who in held.items() if who == m or rng.random() < 0.03}
        members[f"m{m}"] = Member(
            topics=topics,
            owned=frozenset(owned),
            generation=rng.choice([3, 3, 3, 2, -1]),
            rack=rng.choice((*racks, None)) if racks else None,
            instance=rng.choice([None, f"i{9 - m}"]),
        )
    return ClusterView(view), members


@pytest.mark.parametrize("strategy", STICKY)
@pytest.mark.parametrize("block", range(4))
def test_random_groups_get_the_best_plan_there_is(strategy: str, block: int) -> None:
    """edge A12 K-8767, edge A17 librdkafka 3306: no move that is not needed, and none less balanced than possible."""
    for seed in range(block * 50, block * 50 + 50):
        view, members = random_case(seed)
        planned = plan(strategy, view, members)
        assert cost(view, members, planned.target) == optimum(view, members), f"seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_random_groups_settle_in_two_rounds_and_then_stay(block: int) -> None:
    """edge A8 K-15106, edge A15 librdkafka 4783: no loop, nothing revoked and given back, a fixed point."""
    for seed in range(block * 50, block * 50 + 50):
        view, members = random_case(seed)
        first = plan("cooperative-sticky", view, members)
        settled = settle("cooperative-sticky", view, members)
        assert cost(view, members, settled.plan.target)[:2] == cost(view, members, first.target)[:2]
        kept = {part: name for name, given in first.assignment.items() for part in given}
        for name, given in settled.plan.target.items():
            assert all(kept.get(part, name) == name for part in given), f"seed {seed}: given, then taken away"
        again = plan("cooperative-sticky", view, settled.members)
        assert again.target == settled.plan.target
        assert again.rounds == 1


@pytest.mark.slow
def test_the_answer_does_not_depend_on_any_order() -> None:
    """edge A25: Java's answer follows its hash maps. Ours is the same for every order of members, topics and claims."""
    for seed in range(60):
        view, members = random_case(seed)
        rng = random.Random(seed)
        for strategy in ("range", "roundrobin", *STICKY):
            expected = plan(strategy, view, members).encode()
            for _ in range(4):
                people = list(members.items())
                topics = list(view.topics.items())
                rng.shuffle(people)
                rng.shuffle(topics)
                shuffled = {name: shuffled_topics(one, rng) for name, one in people}
                again = plan_round(strategy, ClusterView(dict(topics)), joined(strategy, shuffled))
                assert again.encode() == expected, f"seed {seed}, {strategy}"


def shuffled_topics(one: Member, rng: random.Random) -> Member:
    topics = list(one.topics)
    rng.shuffle(topics)
    return Member(
        topics=tuple(topics),
        owned=one.owned,
        generation=one.generation,
        rack=one.rack,
        instance=one.instance,
    )


SHAPES: list[Mapping[str, int]] = [{"a": 4}, {"a": 3, "b": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 1}, {"a": 3}]


EVERYTHING = [
    # Three members with differing subscriptions have thousands of states: seconds, where the others take none.
    pytest.param(shape, count, marks=[pytest.mark.slow] if count == 3 and len(shape) > 1 else [])
    for shape in SHAPES
    for count in (1, 2, 3)
]


@pytest.mark.parametrize(("shape", "count"), EVERYTHING)
def test_every_owned_state_of_small_groups_is_planned_best(shape: Mapping[str, int], count: int) -> None:
    """Exhaustive: up to 3 members × 4 partitions × who owns what, with equal and with differing subscriptions."""
    view = ClusterView({topic: TopicView(n) for topic, n in shape.items()})
    parts = [TopicPartition(topic, n) for topic, size in sorted(shape.items()) for n in range(size)]
    names = [f"m{m}" for m in range(count)]
    subsets = [frozenset(s) for k in range(len(shape), 0, -1) for s in itertools.combinations(sorted(shape), k)]
    for topics in itertools.combinations_with_replacement(subsets, count):
        if not frozenset().union(*topics) >= set(shape):
            continue
        best = Exhaustive(parts, topics)
        for owners in itertools.product(range(-1, count), repeat=len(parts)):
            members = {
                name: Member(
                    topics=tuple(sorted(topics[m])),
                    owned=frozenset(part for part, owner in zip(parts, owners, strict=True) if owner == m),
                    generation=1,
                )
                for m, name in enumerate(names)
            }
            planned = plan_round("cooperative-sticky", view, joined("cooperative-sticky", members))
            where = {part: names.index(name) for name, given in planned.target.items() for part in given}
            answer = tuple(where[part] for part in parts)
            assert best.balance(answer) == best.least
            assert best.moves(answer, owners) == best.fewest_moves(owners), (topics, owners, answer)
            if planned.transferring:
                following = fed_back(members, planned, 2)
                again = plan_round("cooperative-sticky", view, joined("cooperative-sticky", following))
                assert not again.transferring


class Exhaustive:
    """All assignments of a small group, tried one by one."""

    def __init__(self, parts: list[TopicPartition], topics: tuple[frozenset[str], ...]) -> None:
        choices = [[m for m, wanted in enumerate(topics) if part.topic in wanted] for part in parts]
        self.count = len(topics)
        every = list(itertools.product(*choices))
        self.least = min(map(self.balance, every))
        self.balanced = [answer for answer in every if self.balance(answer) == self.least]

    def balance(self, answer: tuple[int, ...]) -> int:
        return sum(answer.count(m) ** 2 for m in range(self.count))

    @staticmethod
    def moves(answer: tuple[int, ...], owners: tuple[int, ...]) -> int:
        return sum(owner not in (-1, to) for to, owner in zip(answer, owners, strict=True))

    def fewest_moves(self, owners: tuple[int, ...]) -> int:
        return min(self.moves(answer, owners) for answer in self.balanced)
