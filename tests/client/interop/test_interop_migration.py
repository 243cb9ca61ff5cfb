"""A live group of Java, librdkafka and holdfast members goes from range to cooperative-sticky and back, bounce by
bounce, as `holdfast preflight` says; their own logs show no record lost or processed twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mixed_groups import GROUNDS, ground

from holdfast.client.operate.migration import Assessment, look
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.testing.scene import AUTO_COMMIT, GroupScene

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(580)]

RANGE, BOTH, COOPERATIVE = ("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)


class Fleet:
    """Three places in the group; a bounce puts another member into one."""

    def __init__(self, scene: GroupScene) -> None:
        self._scene = scene
        self._at: dict[str, str] = {}
        self._count = 0

    def bounce(self, place: str, kind: str, assignors: tuple[str, ...]) -> None:
        if place in self._at:
            self._scene.leave(self._at[place])
        self._count += 1
        self._at[place] = name = f"{place}-{self._count}-{kind}"
        config = AUTO_COMMIT if kind == "holdfast" else None
        self._scene.add(name, kind, config=config, assignors=assignors)
        self._scene.wait_shared()

    def judged(self, to: str) -> Assessment:
        settings = client_config({"bootstrap.servers": self._scene.bootstrap})

        async def ask() -> Assessment:
            async with Cluster(settings) as cluster:
                return await look(cluster, self._scene.topic, to)

        return asyncio.run(ask())


@pytest.mark.parametrize("where", GROUNDS)
def test_two_bounces_up_and_two_down_lose_and_double_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    """edge A21: librdkafka's member can't list both, so holdfast stands in for it between the bounces."""
    with ground(request, where, tmp_path, partitions=6) as scene:
        fleet = Fleet(scene)
        fleet.bounce("a", "java", RANGE)
        fleet.bounce("b", "confluent", RANGE)
        fleet.bounce("c", "holdfast", RANGE)
        before = fleet.judged("cooperative-sticky")
        assert (before.stage, before.safe, before.in_force) == ("before-first", True, "range")

        fleet.bounce("c", "holdfast", BOTH)
        fleet.bounce("b", "holdfast", BOTH)
        half = fleet.judged("cooperative-sticky")
        assert (half.stage, half.safe) == ("in-first", False)
        assert [one.member.client_id for one in half.blocking] == ["a-1-java"]
        fleet.bounce("a", "java", BOTH)
        through = fleet.judged("cooperative-sticky")
        assert (through.stage, through.safe) == ("after-first", True)

        fleet.bounce("a", "java", COOPERATIVE)
        assert fleet.judged("cooperative-sticky").stage == "in-second"
        fleet.bounce("b", "confluent", COOPERATIVE)
        fleet.bounce("c", "holdfast", COOPERATIVE)
        assert fleet.judged("cooperative-sticky").stage == "done"

        fleet.bounce("b", "holdfast", BOTH)
        assert not fleet.judged("range").safe
        fleet.bounce("c", "holdfast", BOTH)
        fleet.bounce("a", "java", BOTH)
        assert (fleet.judged("range").stage, fleet.judged("range").safe) == ("after-first", True)
        fleet.bounce("a", "java", RANGE)
        fleet.bounce("b", "confluent", RANGE)
        fleet.bounce("c", "holdfast", RANGE)
        back = fleet.judged("range")
        assert (back.stage, back.in_force) == ("done", "range")
        verdict = scene.finish()

    assert verdict.clean, str(verdict)
