"""Groups mixed of holdfast, Java and librdkafka members, each kind as the leader: everybody joins, leaves and drains
cleanly, and the members' own logs show no record lost or processed twice and no partition with two owners."""

from __future__ import annotations

from pathlib import Path

import pytest
from mixed_groups import GROUNDS, KINDS, ground, leader_seen_by, steps

from holdfast.testing.members import MemberLog, MemberOptions
from holdfast.testing.scene import AUTO_COMMIT

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(280)]

HEARTBEAT_MS = 3_000
"""Kafka's default, which a moved partition waits for when a member leaves at a bad moment."""


def worked_on_ms(log: MemberLog) -> float:
    """How long a member that drained went on working after the round it had asked for: until its last record."""
    last_round = max(event.time_ms for event in log.named("assigned"))
    return max(record.time_ms for record in log.records) - last_round


@pytest.mark.parametrize("where", GROUNDS)
@pytest.mark.parametrize("leader", KINDS)
def test_members_join_leave_and_drain_without_a_record_lost_or_doubled(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, leader: str
) -> None:
    first, second = (kind for kind in KINDS if kind != leader)
    with ground(request, where, tmp_path, partitions=8) as scene:
        scene.add("lead", leader)
        scene.wait_shared()
        scene.add("one", first)
        scene.add("two", second)
        scene.wait_shared()
        scene.add("auto", "holdfast", config=AUTO_COMMIT)
        scene.wait_shared()
        assert leader_seen_by(scene, "auto") == "lead"

        scene.leave("one")
        scene.wait_shared()
        scene.add("three", first)
        scene.wait_shared()
        scene.drain("auto")
        scene.wait_shared()
        scene.add("again", "holdfast", config=AUTO_COMMIT)
        scene.leave("two")
        scene.wait_shared()
        assert leader_seen_by(scene, "again") == "lead"

        scene.leave("lead")
        scene.wait_shared()
        verdict = scene.finish()

    assert verdict.clean, str(verdict)
    assert verdict.excused == 0


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_an_eager_group_of_all_kinds_loses_and_doubles_nothing_either(
    request: pytest.FixtureRequest, tmp_path: Path, assignor: str
) -> None:
    """Everybody revokes everything for every round, and the next owner starts where the last one committed."""
    with ground(request, "embedded", tmp_path, partitions=6) as scene:
        scene.add("lead", "java", assignors=(assignor,))
        scene.add("theirs", "confluent", assignors=(assignor,))
        scene.add("ours", "holdfast", assignors=(assignor,))
        scene.wait_shared()
        scene.add("auto", "holdfast", assignors=(assignor,), config=AUTO_COMMIT)
        scene.wait_shared()
        scene.leave("theirs")
        scene.wait_shared()
        scene.drain("auto")
        scene.wait_shared()
        scene.leave("lead")
        scene.wait_shared()
        verdict = scene.finish()

    assert verdict.clean, str(verdict)
    assert verdict.excused == 0


@pytest.mark.kafka
@pytest.mark.parametrize("leader", KINDS)
def test_at_default_timeouts_members_join_drain_leave_and_die_without_a_record_lost_or_doubled(
    request: pytest.FixtureRequest, tmp_path: Path, leader: str
) -> None:
    """The kill is of a holdfast member: its watchdog speaks for it, where Kafka would wait for 45 s."""
    defaults = MemberOptions(bootstrap="", group="", topic="", assignors=("cooperative-sticky",))
    other = next(kind for kind in KINDS if kind not in {leader, "holdfast"})
    with ground(request, "kafka", tmp_path, partitions=6, defaults=defaults) as scene:
        scene.add("lead", leader)
        scene.wait_shared()
        scene.add("other", other)
        scene.add("drains", "holdfast", config=AUTO_COMMIT)
        scene.add("dies", "holdfast", config=AUTO_COMMIT)
        scene.wait_shared()
        scene.drain("drains")
        scene.wait_shared()
        assert steps(scene, "drains", "leave-last"), "somebody is no holdfast member and waits for his heartbeat"
        assert worked_on_ms(scene.log("drains")) > HEARTBEAT_MS / 2, "and it worked on while he did"
        scene.kill("dies")
        scene.wait_shared(limit_s=40.0)
        scene.leave("other")
        scene.wait_shared()
        verdict = scene.finish()

    assert verdict.clean, str(verdict)
