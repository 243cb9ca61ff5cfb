"""Every checker can fail: seventeen faults that others shipped, put back on purpose, and who sees them."""

from __future__ import annotations

import re

import pytest

from holdfast.sim.checkers import CHECKERS
from holdfast.sim.config import WorldConfig
from holdfast.sim.grounds import CRASH_GROUND, CUT_GROUND, PROVING_GROUND, STATIC_GROUND, WAITING_GROUND
from holdfast.sim.mutations import MUTATIONS, Mutation
from holdfast.sim.world import World

GROUNDS = {
    "proving": PROVING_GROUND,
    "waiting": WAITING_GROUND,
    "static": STATIC_GROUND,
    "cut": CUT_GROUND,
    "crash": CRASH_GROUND,
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_machine_is_seen_by_the_checker_that_is_there_for_it(mutation: Mutation) -> None:
    result = World(mutation.world, break_it=mutation.break_it, keep_records=False).run()
    assert result.violations, f"nobody saw it: {mutation.story}"
    assert result.violations[0].invariant in mutation.caught_by, str(result.violations[0])


@pytest.mark.parametrize("ground", GROUNDS.values(), ids=GROUNDS.keys())
def test_sound_machines_come_through_the_same_worlds_unharmed(ground: WorldConfig) -> None:
    result = World(ground, keep_records=False).run()
    assert result.violations == []


def test_every_invariant_has_a_mutation_that_breaks_it() -> None:
    seen = {
        World(mutation.world, break_it=mutation.break_it, keep_records=False).run().violations[0].invariant
        for mutation in MUTATIONS
    }
    assert seen == {checker.invariant for checker in CHECKERS}


def test_every_mutation_names_its_edge_case() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 10
    for mutation in MUTATIONS:
        assert re.match(r"[ABC]\d+ \S", mutation.edge), mutation.name
        assert mutation.story.startswith(f"edge {mutation.edge}: "), mutation.name
