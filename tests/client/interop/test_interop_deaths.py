"""Groups mixed of holdfast, Java and librdkafka members, each kind as the leader: members are killed, hang and freeze.

Nothing is lost. Only what a foreign client processed and could not commit before its death, or anybody before its loss,
is processed again; a killed holdfast member's watchdog commits for it. Nobody processes what it has lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mixed_groups import GROUNDS, KINDS, ground, taken_over

from holdfast.testing.scene import AUTO_COMMIT

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(280)]

HANG_S = 9.0
"""Longer than the 6 s after which a member that does not poll is out."""


@pytest.mark.parametrize("where", GROUNDS)
@pytest.mark.parametrize("leader", KINDS)
def test_members_are_killed_hang_and_freeze_and_nothing_is_lost(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, leader: str
) -> None:
    with ground(request, where, tmp_path, partitions=12) as scene:
        scene.add("lead", leader, config=AUTO_COMMIT if leader == "holdfast" else None)
        scene.wait_shared()
        for name, kind in (("theirs", "confluent"), ("sleepy", "java")):
            scene.add(name, kind, max_poll_ms=6_000)
        for name in ("killed", "frozen", "hung"):
            scene.add(name, "holdfast", config=AUTO_COMMIT, max_poll_ms=6_000)
        scene.wait_shared()

        scene.kill("killed")
        scene.wait_shared()

        orphaned = scene.members["frozen"].owned() | scene.members["theirs"].owned()
        scene.freeze("frozen")
        scene.kill("theirs")
        for name in ("hung", "sleepy"):
            scene.hang(name, HANG_S)
        scene.wait(lambda: taken_over(scene, orphaned), "the partitions of the dead and the frozen to be taken over")
        scene.thaw("frozen")
        for name in ("hung", "sleepy"):
            scene.back(name)
        for name in ("frozen", "hung", "sleepy"):
            scene.members[name].wait_event("lost")
        scene.wait_shared()

        scene.kill("lead")
        scene.wait_shared()
        verdict = scene.finish()

    assert verdict.clean, str(verdict)
    for name in ("frozen", "hung"):
        assert scene.log(name).named("dropped") == [], "a holdfast member hands out nothing that it has lost"
