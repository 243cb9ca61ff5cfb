"""Play a combination on both classes and compare."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from dropin_callbacks import CALLBACKS
from dropin_happenings import play
from dropin_offsets import KEEPINGS
from dropin_outcome import Difference, Outcome, differences
from dropin_programs import PROGRAMS
from dropin_run import Run
from dropin_table import Combination
from dropin_world import World, embedded_world

RUN_LIMIT_S = 150.0
"""Every wait within a run has its own, shorter limit."""

Worlds = Callable[[Combination, Path], AbstractContextManager[World]]


def embedded(combination: Combination, folder: Path) -> AbstractContextManager[World]:
    return combination.happening.embedded(folder)


def outcome(combination: Combination, kind: str, worlds: Worlds = embedded) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, worlds(combination, Path(folder)) as world:
        run = Run(world, kind, combination.keeping, combination.callbacks, combination.strategy)
        play(run, combination.happening)
        return run.recorder.outcome()


def side_by_side(play_on: Callable[[str], Outcome], kinds: tuple[str, str]) -> tuple[Outcome, Outcome]:
    """Both at the same time: most of a run is waiting."""
    found: dict[int, Outcome] = {}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            found[number] = play_on(kinds[number])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RUN_LIMIT_S)
    if failed:
        raise failed[0]
    late = [kinds[number] for number in range(2) if number not in found]
    assert not late, f"{late[0]} did not end in {RUN_LIMIT_S:g} s"
    return found[0], found[1]


def outcomes(combination: Combination, kinds: tuple[str, str], worlds: Worlds = embedded) -> tuple[Outcome, Outcome]:
    return side_by_side(lambda kind: outcome(combination, kind, worlds), kinds)


def compare(
    combination: Combination, kinds: tuple[str, str] = ("confluent", "holdfast"), worlds: Worlds = embedded
) -> list[Difference]:
    found = differences(*outcomes(combination, kinds, worlds))
    return [each for each in found if each.kind not in combination.happening.chance]


def compare_program(name: str, kinds: tuple[str, str] = ("confluent", "holdfast")) -> list[Difference]:
    return differences(*side_by_side(lambda kind: _played(name, kind), kinds))


def _played(name: str, kind: str) -> Outcome:
    with embedded_world(racks=2 if "moved" in name else 0) as world:
        run = Run(world, kind, KEEPINGS["auto"], CALLBACKS["nothing"])
        PROGRAMS[name](run)
        return run.recorder.outcome()
