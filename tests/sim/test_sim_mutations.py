"""Every checker can fail: faults that others shipped, and rules of our own, broken on purpose, and who sees them."""

from __future__ import annotations

import re
from functools import cache

import pytest

from holdfast.sim.checkers import CHECKERS, Violation
from holdfast.sim.config import WorldConfig
from holdfast.sim.grounds import (
    CRASH_GROUND,
    CUT_GROUND,
    DEPLOY_GROUND,
    LARGE_GROUND,
    MIXED_GROUND,
    ORDERLY_GROUND,
    PROVING_GROUND,
    SLOW_GROUND,
    STATIC_GROUND,
    WAITING_GROUND,
    WATCHED_GROUND,
)
from holdfast.sim.mutations import MUTATIONS, Mutation
from holdfast.sim.world import World

GROUNDS = {
    "proving": PROVING_GROUND,
    "orderly": ORDERLY_GROUND,
    "mixed": MIXED_GROUND,
    "waiting": WAITING_GROUND,
    "large": LARGE_GROUND,
    "static": STATIC_GROUND,
    "cut": CUT_GROUND,
    "crash": CRASH_GROUND,
    "deploy": DEPLOY_GROUND,
    "watched": WATCHED_GROUND,
    "slow": SLOW_GROUND,
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


def test_every_invariant_has_a_mutation_that_breaks_it() -> None:
    seen = {violation.invariant for mutation in MUTATIONS if (violation := first_violation(mutation)) is not None}
    assert seen == {checker.invariant for checker in CHECKERS}


def test_every_mutation_names_its_edge_case_or_is_a_rule_of_our_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 10
    for mutation in MUTATIONS:
        ours = mutation.edge == "rule"
        assert ours or re.match(r"[ABC]\d+ \S", mutation.edge), mutation.name
        assert mutation.story.startswith("rule: " if ours else f"edge {mutation.edge}: "), mutation.name
