"""The long form: random lives of mixed groups, from a seed that a failure names."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from mixed_groups import GROUNDS, KINDS, ground, taken_over

from holdfast.testing.scene import AUTO_COMMIT, GroupScene

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1_800)]

EVENTS = 25
FEWEST, MOST = 2, 5
HANG_S = 9.0


class Life:
    """One group and the dice that decide what becomes of it."""

    def __init__(self, scene: GroupScene, seed: int) -> None:
        self.scene = scene
        self.dice = random.Random(seed)
        self.story: list[str] = []
        self._born = 0

    def join(self) -> None:
        kind = self.dice.choice(KINDS)
        self._born += 1
        by_itself = kind == "holdfast" and self.dice.random() < 0.7
        name = f"{kind}-{self._born}"
        self.scene.add(name, kind, config=AUTO_COMMIT if by_itself else None, max_poll_ms=6_000)
        self.story.append(f"{name} joins")

    def leave(self) -> None:
        self._of(self.scene.leave, "leaves")

    def kill(self) -> None:
        self._of(self.scene.kill, "is killed")

    def drain(self) -> None:
        ours = sorted(name for name, member in self.scene.members.items() if member.kind == "holdfast")
        if ours:
            name = self.dice.choice(ours)
            self.story.append(f"{name} drains")
            self.scene.drain(name)

    def freeze(self) -> None:
        name = self.dice.choice(sorted(self.scene.members))
        owned = self.scene.members[name].owned()
        self.story.append(f"{name} freezes")
        self.scene.freeze(name)
        self.scene.wait(lambda: taken_over(self.scene, owned), f"the partitions of {name} to be taken over")
        self.scene.thaw(name)
        self.scene.members[name].wait_event("lost")

    def hang(self) -> None:
        name = self.dice.choice(sorted(self.scene.members))
        self.story.append(f"{name} hangs")
        self.scene.hang(name, HANG_S)
        self.scene.back(name)
        self.scene.members[name].wait_event("awake")

    def _of(self, out: Callable[[str], None], what: str) -> None:
        name = self.dice.choice(sorted(self.scene.members))
        self.story.append(f"{name} {what}")
        out(name)

    def live(self) -> None:
        for _ in range(FEWEST):
            self.join()
        self.scene.wait_shared()
        for _ in range(EVENTS):
            size = len(self.scene.members)
            ways_out = [self.leave, self.leave, self.drain, self.kill] if size > FEWEST else []
            ways_in = [self.join, self.join, self.join] if size < MOST else []
            upsets = [self.hang, self.freeze] if size > FEWEST else []
            self.dice.choice([*ways_out, *ways_in, *upsets])()
            self.scene.wait_shared()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", GROUNDS)
def test_a_random_life_of_a_mixed_group_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, seed: int
) -> None:
    with ground(request, where, tmp_path, partitions=8) as scene:
        life = Life(scene, seed)
        life.live()
        verdict = scene.finish()

    assert verdict.clean, f"{verdict}\n" + "\n".join(life.story)
