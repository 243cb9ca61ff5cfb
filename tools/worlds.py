"""Two versions of the code beside each other: do they play the same worlds, and how fast does each?

    git worktree add /tmp/before main
    .venv/bin/python tools/worlds.py /tmp/before/src src --seeds 300 --turns 3

For whoever makes the machines or the simulator faster: a change that is meant to change nothing must leave the trace of
every world as it was, byte by byte. The versions take turns, each in a process of its own, and processor time is
counted: on a busy machine the clock on the wall measures the others. Exit code 1 if a world differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

WARM_UP = 3
"""Worlds that are played first and not timed: they import what is imported late."""


def digests(first: int, count: int) -> dict[int, str]:
    """By seed: one hash over the whole trace, and how the world ended."""
    from holdfast.sim.swarm import random_world
    from holdfast.sim.world import World
    from holdfast.trace import encode

    found = {}
    for seed in range(first, first + count):
        result = World(random_world(seed)).run()
        lines = [encode(record) for record in result.records]
        lines.append(f"{result.rounds} {result.ended_at_ms} {[str(each) for each in result.violations]}")
        found[seed] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return found


def processor_s(first: int, count: int) -> float:
    """What the swarm takes for these worlds."""
    from holdfast.sim.swarm import run_worlds

    run_worlds(first, WARM_UP)
    began = time.process_time()
    run_worlds(first, count)
    return time.process_time() - began


def asked(source: Path, what: str, first: int, count: int) -> str:
    """The answer of one version, from a process of its own."""
    command = [sys.executable, __file__, "--answer", what, "--first", str(first), "--seeds", str(count)]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("sources", nargs="*", type=Path, help="two source directories: before and after")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3, help="how often each version is timed; 0 compares alone")
    parser.add_argument("--answer", choices=("digests", "time"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        answer = digests if options.answer == "digests" else processor_s
        say(json.dumps(answer(options.first, options.seeds)))
        return 0
    if len(options.sources) != 2:
        parser.error("give two source directories")
    before, after = (json.loads(asked(each, "digests", options.first, options.seeds)) for each in options.sources)
    different = [seed for seed in before if before[seed] != after[seed]]
    rest = f"; different: {', '.join(different[:20])}" if different else ""
    say(f"{len(before) - len(different)} of {len(before)} worlds are the same{rest}")
    times: list[list[float]] = [[], []]
    for _ in range(options.turns):
        for source, spent in zip(options.sources, times, strict=True):
            spent.append(float(asked(source, "time", options.first, options.seeds)))
    if options.turns:
        for source, spent in zip(options.sources, times, strict=True):
            rates = sorted(options.seeds / each for each in spent)
            say(f"{source}: {', '.join(f'{rate:.1f}' for rate in rates)} worlds per second of processor time")
        say(f"ratio of the best: {min(times[0]) / min(times[1]):.2f}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
