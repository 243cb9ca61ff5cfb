"""The documentation knows every event, mutation, invariant and step there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli.sim_options import EVENT_HELP
from holdfast.sim.checkers import CHECKERS
from holdfast.sim.happenings import KINDS
from holdfast.sim.mutations import MUTATIONS
from holdfast.sim.swarm import random_world
from holdfast.sim.world import World

DOCS = Path(__file__).parents[2] / "docs"


def test_the_simulators_page_lists_every_event_mutation_and_invariant() -> None:
    page = (DOCS / "simulator.md").read_text()
    for kind in KINDS:
        assert re.search(rf"`{kind}[:@]", page), kind
        assert re.search(rf"\b{kind}[,.]", EVENT_HELP), kind
    for mutation in MUTATIONS:
        assert f"`{mutation.name}`" in page, mutation.name
    for checker in CHECKERS:
        assert f"| {checker.invariant} |" in page, checker.invariant


@pytest.mark.slow
def test_the_traces_page_explains_every_step_that_random_worlds_take() -> None:
    page = (DOCS / "trace.md").read_text()
    words = set(re.findall(r"`([a-z-]+)`", page))
    known = words | {f"{head}{tail}" for head in ("process", "application") for tail in words if tail.startswith("-")}
    seen = {record.step for seed in range(30) for record in World(random_world(seed)).run().records}
    assert seen - known == set()
