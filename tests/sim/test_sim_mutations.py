"""Every checker can fail: faults that others shipped, and rules of our own, broken on purpose, and who sees them."""

from __future__ import annotations

import re
from functools import cache

import pytest

from holdfast.sim import grounds
from holdfast.sim.checkers import CHECKERS, Violation
from holdfast.sim.config import WorldConfig
from holdfast.sim.mutations import MUTATIONS, Mutation
from holdfast.sim.world import World

GROUNDS = {
    name.removesuffix("_GROUND").lower(): ground for name, ground in vars(grounds).items() if name.endswith("_GROUND")
}


@cache
def first_violation(mutation: Mutation) -> Violation | None:
    """What is seen first of a fault; each is played once."""
    result = World(mutation.world, break_it=mutation.break_it, keep_records=False).run()
    return result.violations[0] if result.violations else None


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_machine_is_seen_by_the_checker_that_is_there_for_it(mutation: Mutation) -> None:
    violation = first_violation(mutation)
    assert violation is not None, f"nobody saw it: {mutation.story}"
    assert violation.invariant in mutation.caught_by, str(violation)


@pytest.mark.parametrize("ground", GROUNDS.values(), ids=GROUNDS.keys())
def test_sound_machines_come_through_the_same_worlds_unharmed(ground: WorldConfig) -> None:
    result = World(ground, keep_records=False).run()
    assert result.violations == []


def test_every_mutation_is_played_in_a_world_that_sound_machines_are_seen_in() -> None:
    assert {mutation.world for mutation in MUTATIONS} <= set(GROUNDS.values())


def test_every_invariant_has_a_mutation_that_breaks_it() -> None:
    seen = {violation.invariant for mutation in MUTATIONS if (violation := first_violation(mutation)) is not None}
    assert seen == {checker.invariant for checker in CHECKERS}


def test_every_mutation_names_its_edge_case_or_is_a_rule_of_our_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 10
    for mutation in MUTATIONS:
        ours = mutation.edge == "rule"
        assert ours or re.match(r"[ABC]\d+ \S", mutation.edge), mutation.name
        assert mutation.story.startswith("rule: " if ours else f"edge {mutation.edge}: "), mutation.name
