"""Histories that are made here, by a real Kafka with real clients of three kinds: finding and culprit in each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from doctor_groups import Groups, events_of_logs, until_told

from holdfast.doctor import finding as f
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import history_of
from holdfast.doctor.naming import by_group
from holdfast.testing.kafka import RealKafka

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.slow]

HANG_S = 8.0


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Event]]]:
    """All of it at once: the groups do not know of each other, and waiting is most of it."""
    folder = tmp_path_factory.mktemp("doctor")
    with RealKafka() as kafka:
        names = ("hangs", "crashes", "collides", "eager", "fine")
        for name in names:
            kafka.create_topic(name, partitions=4)
        groups = Groups(kafka, folder)
        try:
            _play(groups, lambda: kafka.nodes[0].log_tail(100_000))
        finally:
            groups.stop()
        shutil.copy(kafka.nodes[0].spec.folder / "kafka.log", folder / "broker.log")
    yield by_group(events_of_logs(folder))


def _play(groups: Groups, log: Callable[[], str]) -> None:
    for name in ("fine-0", "fine-1"):
        groups.add("holdfast" if name == "fine-0" else "confluent", "fine", name)
    hung, other = groups.add("java", "hangs", "hung"), groups.add("holdfast", "hangs", "other")
    ranges = [groups.add("confluent", "eager", f"eager-{number}", assignors=("range",)) for number in range(2)]
    survivor = groups.add("confluent", "crashes", "survivor")
    victim = groups.add("confluent", "crashes", "victim")
    groups.add("confluent", "collides", "twin-a", instance_id="pod-0").wait_assigned(4)
    groups.add("confluent", "collides", "twin-b", instance_id="pod-0")
    for member in (hung, other, survivor, victim, *ranges):
        member.wait_assigned(2)
    hung.hang(HANG_S)
    for number in (1, 2):
        victim.kill()
        victim = groups.add("confluent", "crashes", "victim")
        until_told(log, "in group crashes has failed", number)
        victim.wait_assigned(2)
    hung.wait_for(lambda: len(hung.log().named("awake")) == 1, "to wake")
    hung.wait_assigned(2)
    hung.hang(HANG_S)
    ranges[0].terminate()
    ranges[1].wait_assigned(4)
    until_told(log, "[Group hangs] Member hung-", 2)
    hung.wait_for(lambda: len(hung.log().named("awake")) == 2, "to wake again")
    hung.wait_assigned(2)


def found(histories: dict[str, list[Event]], group: str) -> set[tuple[str, str]]:
    return {(one.kind, one.culprit.partition("@")[0]) for one in findings_of(history_of(group, histories[group]))}


def test_each_group_has_its_finding_and_its_culprit(histories: dict[str, list[Event]]) -> None:
    assert found(histories, "hangs") == {(f.STORM, "hung")}
    assert (f.CRASH_LOOP, "victim") in found(histories, "crashes")
    assert found(histories, "collides") == {(f.COLLISION, "pod-0")}
    assert found(histories, "fine") == set()


def test_an_eager_group_is_known_by_its_members_logs(histories: dict[str, list[Event]]) -> None:
    """A coordinator of Kafka 4 does not say which assignor runs, and librdkafka only with debug=cgrp: nothing is
    claimed then, and the leave is told all the same."""
    history = history_of("eager", histories["eager"])
    assert history.cooperative is None
    assert any(one.who.startswith("eager-0") for one in history.disturbances)
