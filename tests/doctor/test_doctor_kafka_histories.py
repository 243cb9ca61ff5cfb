"""Every history that the doctor promises to tell apart, made here by a real Kafka with librdkafka clients. Each is then
read again with clocks 2 s apart and files in any order, and with half of the members' logs missing. Histories of Java
clients and of ours are among the samples (test_doctor_samples.py) and in test_doctor_kafka.py."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_groups import Groups, events_of_logs, until_told

from holdfast.doctor import finding as f
from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.rounds import GATHERING_MS
from holdfast.testing.kafka import RealKafka
from holdfast.testing.members import MemberProcess
from patience import PATIENCE_S

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.slow, pytest.mark.nightly]

KINDS = ("confluent",)
HANG_S, SLOW_S = 8.0, 5.0
CALM = {"session_ms": 30_000, "max_poll_ms": 60_000}
"""For groups in which nobody crashes or hangs, also on a busy machine."""
CGRP = {"debug": "cgrp"}
"""Without it librdkafka does not say which assignor runs."""

FOUND = {
    "hang": {(f.STORM, "hang-c")},
    "crash": {(f.CRASH_LOOP, "crash-c")},
    "collide": {(f.COLLISION, "collide-pod")},
    "flap": {(f.FLAPPING, "flap-c1, flap-c2, flap-c3")},
    "slow": {(f.SLOW_LISTENER, "slow-c")},
    "roll": {(f.RESTARTS, "roll-c0, roll-c1")},
    "rollstatic": set(),
    "healthy": set(),
}


class Histories:
    """All of them at once, for one kind of client: waiting is most of it."""

    def __init__(self, groups: Groups, kind: str, log: Callable[[], str]) -> None:
        self.groups = groups
        self.kind = kind
        self.log = log

    def other(self, name: str, **options: Any) -> MemberProcess:
        return self.groups.add("confluent", name, f"{name}-other", **options)

    def culprit(self, name: str, suffix: str = "c", /, **options: Any) -> MemberProcess:
        return self.groups.add(self.kind, name, f"{name}-{suffix}", **options)

    def hang(self) -> None:
        self.other("hang").wait_assigned(4)
        hung = self.culprit("hang")
        for times in (1, 2):
            hung.wait_assigned(2)
            hung.hang(HANG_S)
            hung.wait_for(_has_said(hung, "awake", times), "to wake", limit_s=PATIENCE_S)
        hung.wait_assigned(2)

    def crash(self) -> None:
        other = self.other("crash")
        victim = self.culprit("crash")
        for times in (1, 2):
            victim.wait_assigned(2)
            other.wait_assigned(2)
            victim.kill()
            victim = self.culprit("crash")
            until_told(self.log, "in group crash has failed", times)
        victim.wait_assigned(2)

    def collide(self) -> None:
        self.culprit("collide", "a", instance_id="collide-pod", **CALM).wait_assigned(4)
        self.culprit("collide", "b", instance_id="collide-pod", **CALM).wait_assigned(4)

    def flap(self) -> None:
        others = [self.groups.add("confluent", "flap", f"flap-o{number}", **CALM) for number in range(2)]
        for other in others:
            other.wait_assigned(2)
        _begun()
        for number in (1, 2, 3):
            extra = self.culprit("flap", f"c{number}", **CALM)
            extra.wait_assigned(1)
            extra.terminate()
            for other in others:
                other.wait_assigned(2)

    def slow(self) -> None:
        slow = self.culprit("slow", **CALM)
        slow.wait_assigned(4)
        _begun()
        for number in (1, 2):
            late = self.groups.add("confluent", "slow", f"slow-n{number}", join_on_command=True, **CALM)
            late.wait_ready()
            slow.hang(SLOW_S)  # it comes to the round when it polls again
            slow.wait_for(_has_said(slow, "hang", number), "to hang", limit_s=PATIENCE_S)
            late.join()
            late.wait_assigned()
            slow.wait_for(lambda: len(slow.owned()) <= 2, "to share", limit_s=PATIENCE_S)

    def roll(self, *, static: bool = False) -> None:
        name = "rollstatic" if static else "roll"
        ids: list[dict[str, Any]] = [{"instance_id": f"{name}-{n}"} if static else {} for n in range(3)]
        self.other(name, **ids[2], **CALM)
        members = [self.culprit(name, f"c{number}", **ids[number], **CALM) for number in range(2)]
        for number, member in enumerate(members):
            for each in members:
                each.wait_assigned()
            if static:
                member.kill()
            else:
                member.terminate()
            members[number] = self.culprit(name, f"c{number}", **ids[number], **CALM)
            members[number].wait_assigned()

    def rollstatic(self) -> None:
        self.roll(static=True)

    def healthy(self) -> None:
        members = [self.other("healthy", **CALM), self.culprit("healthy", **CALM)]
        for member in members:
            member.wait_assigned(2)


def _has_said(member: MemberProcess, what: str, times: int) -> Callable[[], bool]:
    return lambda: len(member.log().named(what)) == times


def _begun() -> None:
    """Who comes within seconds of the first one belongs to the group's beginning, which is no history to find fault
    with: this is about how far apart things happen, and not about waiting for one."""
    time.sleep(GATHERING_MS / 1000 + 1.0)


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Event]]]:
    folder = tmp_path_factory.mktemp("histories")
    with RealKafka() as kafka:
        for name in FOUND:
            kafka.create_topic(name, partitions=4)
        groups = Groups(kafka, folder)
        played = Histories(groups, request.param, lambda: kafka.nodes[0].log_tail(1_000_000))
        try:
            with ThreadPoolExecutor(len(FOUND)) as pool:
                for done in [pool.submit(getattr(played, name)) for name in FOUND]:
                    done.result()
        finally:
            groups.stop()
        shutil.copy(kafka.nodes[0].spec.folder / "kafka.log", folder / "broker.log")
    yield request.param, events_of_logs(folder)


def found(events: list[Event], group: str) -> set[tuple[str, str]]:
    history = history_of(group, by_group([replace(one) for one in events])[group])
    return {(one.kind, one.culprit.replace("@127.0.0.1", "")) for one in findings_of(history)}


@pytest.mark.parametrize("group", sorted(FOUND))
def test_each_history_has_its_finding_and_its_culprit(made: tuple[str, list[Event]], group: str) -> None:
    assert found(made[1], group) == FOUND[group]


@pytest.mark.parametrize("group", sorted(FOUND))
def test_clocks_two_seconds_apart_and_files_in_any_order(made: tuple[str, list[Event]], group: str) -> None:
    files = sorted({one.file for one in made[1]} - {"broker.log"})
    off = {file: 2_000.0 if place % 2 else -2_000.0 for place, file in enumerate(files)}
    events = [replace(one, at_ms=one.at_ms + off.get(one.file, 0.0)) for one in made[1]]
    random.Random(3).shuffle(events)
    assert found(events, group) == FOUND[group]


@pytest.mark.parametrize("group", sorted(FOUND))
@pytest.mark.parametrize("kept", [0, 1])
def test_half_of_the_members_logs_are_missing(made: tuple[str, list[Event]], group: str, kept: int) -> None:
    files = sorted({one.file for one in made[1]} - {"broker.log"})[kept::2]
    events = [one for one in made[1] if one.file == "broker.log" or one.file in files]
    assert found(events, group) == FOUND[group]


def test_an_eager_group_is_told_where_a_members_log_says_so(tmp_path: Path) -> None:
    """Kafka 4's coordinator does not name the assignor; librdkafka does with debug=cgrp."""
    with RealKafka() as kafka:
        kafka.create_topic("eager", partitions=4)
        groups = Groups(kafka, tmp_path)
        try:
            members = [
                groups.add("confluent", "eager", f"eager-{number}", assignors=("range",), config=CGRP)
                for number in range(2)
            ]
            for member in members:
                member.wait_assigned(2)
            members[0].terminate()
            members[1].wait_assigned(4)
        finally:
            groups.stop()
        shutil.copy(kafka.nodes[0].spec.folder / "kafka.log", tmp_path / "broker.log")
    assert found(events_of_logs(tmp_path), "eager") == {(f.EAGER, "")}
