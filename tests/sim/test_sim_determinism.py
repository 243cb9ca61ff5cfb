"""One seed, one history, byte by byte: in one process, and whatever the hash seed of the interpreter is."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from holdfast.sim.scenarios import scene_config
from holdfast.sim.swarm import random_world
from holdfast.sim.world import World
from holdfast.trace import encode

SEEDS = (3, 17, 64)

PROGRAM = """
import hashlib, sys
from holdfast.sim.swarm import random_world
from holdfast.sim.world import World
from holdfast.trace import encode
for seed in map(int, sys.argv[1:]):
    lines = "\\n".join(encode(record) for record in World(random_world(seed)).run().records)
    print(seed, hashlib.sha256(lines.encode()).hexdigest())
"""


def digest(seed: int) -> str:
    lines = "\n".join(encode(record) for record in World(random_world(seed)).run().records)
    return hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    assert digest(seed) == digest(seed)


def test_different_seeds_give_different_worlds() -> None:
    assert len({digest(seed) for seed in range(6)}) == 6


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_trace_does_not_depend_on_the_order_of_sets(hash_seed: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert answer.stdout.split() == [word for seed in SEEDS for word in (str(seed), digest(seed))]


def test_the_seed_alone_decides_where_chance_decides() -> None:
    one, two = (
        [encode(record) for record in World(scene_config(seed=seed, events="join@5s", duration="8s")).run().records]
        for seed in (1, 2)
    )
    assert one != two, "how far an application is in its batch is drawn from the seed"
