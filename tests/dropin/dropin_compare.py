"""Play a combination on both classes and compare."""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dropin_callbacks import CALLBACKS
from dropin_happenings import play
from dropin_ledger import judge, still_open, wanted
from dropin_offsets import KEEPINGS
from dropin_outcome import Difference, Outcome, differences
from dropin_programs import PROGRAMS
from dropin_run import Run
from dropin_stories import RACKS
from dropin_table import Combination
from dropin_world import World, embedded_world

RUN_LIMIT_S = 240.0
"""Every wait within a run has its own, shorter limit."""

MODEL_TRIES = 3

VARIES = "the model had two outcomes"
"""How the warning of that begins: shown at the end of a run, and no failure of ours. Python's own class, since the
process that gathers what parallel workers tell knows no other."""


Worlds = Callable[[Combination, Path], AbstractContextManager[World]]


def embedded(combination: Combination, folder: Path) -> AbstractContextManager[World]:
    return combination.happening.embedded(folder)


def outcome(combination: Combination, kind: str, worlds: Worlds = embedded) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, worlds(combination, Path(folder)) as world:
        run = Run(world, kind, combination.keeping, combination.callbacks, combination.strategy)
        play(run, combination.happening)
        return run.recorder.outcome()


def side_by_side(play_on: Callable[[str], Outcome], kinds: Sequence[str]) -> list[Outcome]:
    """All at the same time: most of a run is waiting."""
    found: dict[int, Outcome] = {}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            found[number] = play_on(kinds[number])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RUN_LIMIT_S)
    if failed:
        raise failed[0]
    late = [kind for number, kind in enumerate(kinds) if number not in found]
    assert not late, f"{late[0]} did not end in {RUN_LIMIT_S:g} s"
    return [found[number] for number in range(len(kinds))]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A program on confluent's class, which is the model, and on ours."""

    name: str
    play_on: Callable[[str], Outcome]
    kinds: tuple[str, str] = ("confluent", "holdfast")
    chance: frozenset[str] = frozenset()
    """Aspects that are not compared."""

    def differences(self) -> list[Difference]:
        model, ours = side_by_side(self.play_on, self.kinds)
        return self._seen(model, ours)

    def wrong(self) -> str:
        """Unlisted differences in words; nothing if all is well. Ours has one try.

        The model has a few: librdkafka does not do the same each time, once in thousands of runs. Ours must then do
        what the model does another time, and the summary of the run tells that the model had two outcomes.
        """
        model, ours = side_by_side(self.play_on, self.kinds)
        first = wrong = self._judged(model, ours)
        for _ in range(MODEL_TRIES - 1):
            if not wrong:
                break
            (again,) = side_by_side(self.play_on, self.kinds[:1])
            wrong = self._judged(again, ours)
        if first and not wrong:
            warnings.warn(f"{VARIES}, {self.kinds[0]}; beside one of them {first}", UserWarning, stacklevel=2)
        return wrong and first

    def _judged(self, model: Outcome, ours: Outcome) -> str:
        return judge(self.name, self._seen(model, ours), wanted(), still_open())

    def _seen(self, model: Outcome, ours: Outcome) -> list[Difference]:
        return [each for each in differences(model, ours) if each.kind not in self.chance]


def of_combination(
    name: str, combination: Combination, kinds: tuple[str, str] = ("confluent", "holdfast"), worlds: Worlds = embedded
) -> Comparison:
    return Comparison(name, lambda kind: outcome(combination, kind, worlds), kinds, chance=combination.happening.chance)


def of_program(name: str) -> Comparison:
    return Comparison(name, lambda kind: _played(name, kind))


def _played(name: str, kind: str) -> Outcome:
    with embedded_world(racks=RACKS.get(name, 0)) as world:
        run = Run(world, kind, KEEPINGS["auto"], CALLBACKS["nothing"])
        PROGRAMS[name](run)
        return run.recorder.outcome()
