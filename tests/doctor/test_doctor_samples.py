"""What the doctor finds in histories of real clients on real brokers: the right finding and culprit in each, none in
the healthy one. The same with a clock that is off, files in any order, and half of the members' logs missing."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_samples import SAMPLES, VERSIONS, events_in, history_in

from holdfast.doctor import causes
from holdfast.doctor import finding as f
from holdfast.doctor.events import JOINED
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import History, history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.replay import with_savings

FOUND = {
    "hang": {(f.STORM, "java-hang"), (f.HANG, "rdk-hang")},
    "crash": {(f.CRASH_LOOP, "rdk-crash")},
    "collide": {(f.COLLISION, "pod-0")},
    "eager": {(f.EAGER, "")},
    "flap": {(f.FLAPPING, "scale-1, scale-2, scale-3")},
    "roll": {(f.RESTARTS, "app-0, app-1, app-2")},
    "slow": {(f.SLOW_LISTENER, "rdk-slowl")},
    "rollstatic": set(),
    "healthy": set(),
    "ours": set(),
    "grow": set(),
}


def found_in(history: History) -> set[tuple[str, str]]:
    return {(one.kind, one.culprit.replace("@127.0.0.1", "")) for one in findings_of(history)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", sorted(FOUND))
def test_each_history_has_its_finding_and_its_culprit(version: str, group: str) -> None:
    assert found_in(history_in(version, group)) == FOUND[group]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", ["hang", "crash", "roll", "flap", "slow", "healthy", "rollstatic"])
def test_the_coordinators_log_alone_names_the_culprit(version: str, group: str) -> None:
    """Nobody kept the members' logs. librdkafka gives a coordinator no reason: its hang is a restart there."""
    history = history_in(version, group, keep=lambda path: path.name == "broker.log")
    expected = FOUND[group] - {(f.HANG, "rdk-hang")}
    assert expected <= found_in(history)
    assert bool(found_in(history)) is bool(expected)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", sorted(FOUND))
def test_half_of_the_members_logs_are_missing(version: str, group: str) -> None:
    logs = sorted(path.name for path in (SAMPLES / version / group).iterdir() if path.name != "broker.log")
    kept = {"broker.log", *logs[::2]}
    history = history_in(version, group, keep=lambda path: path.name in kept)
    missing = {(f.HANG, "rdk-hang")} if "rdk-hang.log" not in kept else set()
    missing |= {(f.EAGER, "")} if not any(name.startswith("java") for name in kept) else set()
    assert FOUND[group] - missing <= found_in(history)
    assert bool(found_in(history)) is bool(FOUND[group])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", sorted(FOUND))
def test_clocks_two_seconds_apart_and_files_in_any_order(version: str, group: str) -> None:
    """Two hosts' clocks were off by 2 s, one ahead and one behind, and the files read in another order: a leave was
    then before the join that it followed. Generations, which everybody hears of at once, tell whose clock is off."""
    events = [
        replace(one, at_ms=one.at_ms + (2_000.0 if "java" in one.file else -2_000.0))
        if one.file != "broker.log"
        else one
        for one in events_in(SAMPLES / version / group)
    ]
    random.Random(7).shuffle(events)
    history = history_of(group, by_group(events)[group])
    if group != "collide":  # a static member that comes back is told an old generation: its clock can't be known
        telling = {one.file for one in events if one.kind == JOINED and one.generation >= 0} - {"broker.log"}
        assert set(history.off_ms) == telling
        assert all(1_400 < abs(off) < 2_600 for off in history.off_ms.values())
    assert found_in(history) == FOUND[group]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", sorted(FOUND))
@pytest.mark.parametrize("twice", ["broker.log", ""])
def test_a_log_that_is_there_twice_changes_nothing(version: str, group: str, twice: str) -> None:
    """Kafka as a daemon writes server.log and kafkaServer.out into one folder, line for line the same. A collision was
    a crash as well then, the group's stop was a leave, and each round had been interrupted."""
    events = events_in(SAMPLES / version / group)
    copy = [replace(one, file=f"output/{one.file}") for one in events if one.file == (twice or one.file)]
    both = [*copy, *(replace(one) for one in events)]
    random.Random(5).shuffle(both)
    one, two = history_in(version, group), history_of(group, by_group(both)[group])
    assert found_in(two) == found_in(one)
    assert [(each.trigger, each.who, len(each.rounds), each.partition_ms) for each in two.rebalances] == [
        (each.trigger, each.who, len(each.rounds), each.partition_ms) for each in one.rebalances
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_members_logs_alone_tell_the_rebalances(version: str) -> None:
    """No coordinator's log at all: rounds are put together from the generations that members name."""
    history = history_in(version, "hang", keep=lambda path: path.name != "broker.log")
    assert not history.from_coordinator
    storm = next(one for one in findings_of(history) if one.kind == f.STORM)
    assert storm.culprit == "java-hang"
    assert history.protocol == "cooperative-sticky"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebalance_is_told_in_full(version: str) -> None:
    """Three members of an eager group; one leaves. Both others are stopped, and who came last is named."""
    history = history_in(version, "eager")
    (left,) = history.disturbances
    assert (left.trigger, left.who.partition("@")[0], left.generation) == (causes.LEAVE, "rdk-eager", 3)
    assert left.slowest.partition("@")[0] in ("java-eager-0", "java-eager-1")
    assert left.left and not left.joined
    assert left.moved == 3
    assert left.needless == 1  # range gave a partition of one survivor to the other
    assert left.measured
    assert 0 < left.waited_ms <= left.took_ms
    assert left.waited_ms + left.planned_ms + left.between_ms == pytest.approx(left.took_ms)
    # All six partitions stood still for less than the rebalance took: members revoke when they hear of it.
    assert 0 < left.partition_ms <= 6 * left.took_ms + 6 * 50
    assert left.where.startswith("broker.log:")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_drain_and_new_partitions_are_told_as_such(version: str) -> None:
    ours = history_in(version, "ours")
    assert [one.trigger for one in ours.disturbances][:1] == [causes.DRAIN]
    assert ours.disturbances[0].who.partition("@")[0] == "ours-2"
    grown = history_in(version, "grow")
    assert [one.trigger for one in grown.disturbances] == [causes.PARTITIONS]


def test_the_new_protocols_group_is_told_too() -> None:
    history = history_in("kafka-4.1", "newproto")
    assert history.level == "consumer"
    assert history.cooperative
    assert findings_of(history) == []
    assert history.members == 2  # its coordinator tells no numbers: the table said 0
    assert {life.how for life in history.people.lives.values() if life.over} <= {causes.LEAVE}


@pytest.mark.parametrize("group", ["hang", "crash", "collide", "eager", "flap", "roll", "slow"])
def test_every_finding_has_evidence_cost_a_setting_and_a_saving(group: str) -> None:
    for one in with_savings(history := history_in("kafka-4.1", group), findings_of(history)):
        assert one.what and one.do and one.change
        assert all(".log:" in each.where or ".jsonl:" in each.where for each in one.evidence), one.evidence
        assert one.evidence
        assert one.cost_ms > 0
        assert 0 <= one.saves_ms <= one.cost_ms
        assert "played in the simulator" in one.saves_how


def test_saving_is_what_the_simulator_plays_and_not_a_promise() -> None:
    """The crash loop's restarts, played with an instance id: what the group waited for its ghost is saved."""
    history = history_in("kafka-4.1", "crash")
    (loop,) = with_savings(history, findings_of(history))
    assert loop.change["group.instance.id"]
    assert loop.saves_ms > loop.cost_ms / 4


def test_samples_are_read_by_their_lines() -> None:
    """Evidence names a line: the line with that number is the one that says it."""
    history = history_in("kafka-4.1", "crash")
    (loop,) = findings_of(history)
    for each in loop.evidence:
        name, _, number = each.where.rpartition(":")
        text = (SAMPLES / "kafka-4.1" / "crash" / name).read_text().splitlines()[int(number) - 1]
        assert "has failed, removing it from the group" in text


def test_paths_of_samples_exist() -> None:
    assert all(Path(SAMPLES / version / group).is_dir() for version in VERSIONS for group in FOUND)


def test_one_and_two_are_said_in_words() -> None:
    """ "each of 1 rebalance", "crashed 2 times", "1 rebalances", "1 files": what is counted has a form for one."""
    (eager,) = findings_of(history_in("kafka-4.1", "eager"))
    assert "which is eager: its rebalance stopped every partition" in eager.what
    (loop,) = findings_of(history_in("kafka-4.1", "crash"))
    assert f"crashed {f.times_text(loop.times)} and was back" in loop.what
    assert [f.counted(number, "file") for number in (0, 1, 2, 1_000)] == ["0 files", "1 file", "2 files", "1,000 files"]
