"""A rolling deploy that changes the import and nothing else, and the group that becomes cooperative by itself.

librdkafka's default is range and roundrobin, ours was cooperative-sticky alone: the first new process was refused
while the old ones ran. A member that was told no strategy joins what runs. Nobody here is told one.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mixed_groups import GROUNDS, ground, steps

from holdfast.testing.scene import AUTO_COMMIT, GroupScene
from patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

NONE: tuple[str, ...] = ()
"""The client's own default."""

AT_ONCE = {**AUTO_COMMIT, "holdfast.cooperative.after.ms": "0"}
NEVER = {**AUTO_COMMIT, "holdfast.cooperative.after.ms": "-1"}


def runs(scene: GroupScene, name: str) -> str:
    """The assignor of the last round that this holdfast member took part in."""
    return str(steps(scene, name, "joined")[-1].data["protocol"])


def wait_until_cooperative(scene: GroupScene, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(runs(scene, name) != "cooperative-sticky" for name in names):
        assert time.monotonic() < deadline, {name: runs(scene, name) for name in names}
        time.sleep(0.1)
    scene.wait_shared()


@pytest.mark.parametrize("where", GROUNDS)
def test_a_deploy_that_changes_the_import_alone_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    """And back again: while an old member is there, or the group is left eager, old ones may come as they like."""
    with ground(request, where, tmp_path, partitions=6) as scene:
        for name in ("old-1", "old-2"):
            scene.add(name, "confluent", assignors=NONE)
        scene.wait_shared()
        scene.add("new-1", "holdfast", config=NEVER, assignors=NONE)
        scene.wait_shared()
        assert runs(scene, "new-1") == "range"
        scene.leave("old-1")
        scene.add("new-2", "holdfast", config=NEVER, assignors=NONE)
        scene.leave("old-2")
        scene.wait_shared()
        assert {runs(scene, name) for name in ("new-1", "new-2")} == {"range"}

        scene.add("old-3", "confluent", assignors=NONE)  # rolled back
        scene.wait_shared()
        scene.leave("new-1")
        scene.leave("new-2")
        scene.wait_shared()
        verdict = scene.finish()
    assert verdict.clean, str(verdict)


@pytest.mark.parametrize("where", GROUNDS)
def test_when_the_last_old_member_is_gone_the_group_becomes_cooperative(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    with ground(request, where, tmp_path, partitions=6) as scene:
        scene.add("old", "confluent", assignors=NONE)
        scene.wait_shared()
        for name in ("new-1", "new-2"):
            scene.add(name, "holdfast", config=AT_ONCE, assignors=NONE)
            scene.wait_shared()
            assert runs(scene, name) == "range"
        scene.leave("old")
        wait_until_cooperative(scene, "new-1", "new-2")
        scene.add("new-3", "holdfast", config=AT_ONCE, assignors=NONE)
        scene.wait_shared()
        scene.kill("new-1")
        scene.wait_shared()
        verdict = scene.finish()
    assert verdict.clean, str(verdict)


@pytest.mark.java
@pytest.mark.parametrize("where", GROUNDS)
def test_with_javas_default_members_nothing_is_lost_or_doubled_either(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    """Java lists range and cooperative-sticky by default, and speaks the eager protocol."""
    with ground(request, where, tmp_path, partitions=6) as scene:
        scene.add("java", "java", assignors=NONE)
        scene.wait_shared()
        scene.add("new-1", "holdfast", config=NEVER, assignors=NONE)
        scene.wait_shared()
        assert runs(scene, "new-1") == "range"
        scene.add("new-2", "holdfast", config=AUTO_COMMIT, assignors=NONE)
        scene.wait_shared()
        scene.leave("java")
        scene.add("java-2", "java", assignors=NONE)
        scene.wait_shared()
        scene.drain("new-1")
        scene.wait_shared()
        verdict = scene.finish()
    assert verdict.clean, str(verdict)


@pytest.mark.parametrize("where", GROUNDS)
def test_an_empty_group_and_a_cooperative_one_are_joined_cooperatively(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    with ground(request, where, tmp_path, partitions=4) as scene:
        scene.add("first", "holdfast", config=AUTO_COMMIT, assignors=NONE)
        scene.wait_shared()
        scene.add("foreign", "confluent", assignors=("cooperative-sticky",))
        scene.wait_shared()
        scene.add("second", "holdfast", config=AUTO_COMMIT, assignors=NONE)
        scene.wait_shared()
        assert {runs(scene, name) for name in ("first", "second")} == {"cooperative-sticky"}
        assert not steps(scene, "first", "became-eager") and not steps(scene, "second", "became-cooperative")
        verdict = scene.finish()
    assert verdict.clean, str(verdict)
