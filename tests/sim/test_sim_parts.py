"""The simulator's parts one by one: clock, network, logs, events, timelines."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import HoldfastError, TopicPartition, TraceRecord, Value
from holdfast.sim.clock import Clock, WorldSpins
from holdfast.sim.config import Happening
from holdfast.sim.happenings import KINDS, parse_happenings, parse_time
from holdfast.sim.logs import Lane, PartitionLog
from holdfast.sim.network import Network, NetworkProfile
from holdfast.sim.scenarios import scene_config
from holdfast.sim.timeline import summarise, timeline
from holdfast.sim.world import World

P0 = TopicPartition("orders", 0)


def test_calls_for_one_moment_run_in_the_order_they_were_scheduled() -> None:
    clock, order = Clock(), list[str]()
    clock.at(5.0, order.append, "a")
    clock.at(5.0, order.append, "b")
    clock.at(1.0, order.append, "first")
    clock.at(5.0, order.append, "taken back").cancel()
    clock.run_until(5.0)
    assert order == ["first", "a", "b"]
    assert clock.now == 5.0


def test_time_never_goes_back() -> None:
    clock, seen = Clock(), list[float]()
    clock.run_until(10.0)
    clock.at(3.0, lambda: seen.append(clock.now))
    clock.run_until(11.0)
    assert seen == [10.0]


def test_a_world_that_spins_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sim.clock.MAX_CALLS", 100)
    clock = Clock()

    def again() -> None:
        clock.after(0.0, again)

    again()
    with pytest.raises(WorldSpins):
        clock.run_until(1.0)


@given(st.integers(0, 2**32), st.floats(0.0, 0.5))
def test_messages_of_one_connection_never_overtake_each_other(seed: int, duplicate: float) -> None:
    clock, arrived = Clock(), list[int]()
    profile = NetworkProfile(jitter_ms=50.0, loss=0.2, duplicate=duplicate)
    network = Network(clock, Random(seed), profile)
    for number in range(30):
        clock.at(float(number), network.carry, "c0", "broker", "data", arrived.append, number)
    clock.run_until(10_000.0)
    assert arrived == sorted(arrived)


def test_a_cut_is_one_way_and_two_of_them_need_two_mendings() -> None:
    clock, arrived = Clock(), list[str]()
    network = Network(clock, Random(1), NetworkProfile())
    network.cut("c0", "broker")
    network.cut("c0", "broker")
    network.mend("c0", "broker")
    network.carry("c0", "broker", "data", arrived.append, "lost")
    network.carry("broker", "c0", "data", arrived.append, "there")
    network.mend("c0", "broker")
    network.carry("c0", "broker", "data", arrived.append, "back")
    clock.run_until(1.0)
    assert arrived == ["there", "back"]


def test_a_lane_reads_at_its_speed_until_it_has_caught_up_and_then_follows_the_producer() -> None:
    log = PartitionLog(0.0, 0.1)
    lane = Lane(log, position=0, speed=0.4, now=1_000.0)
    assert lane.position(1_100.0) == 40
    assert lane.position(2_000.0) == log.end(2_000.0) == 200
    assert lane.stall(2_000.0) == 200
    assert lane.position(9_000.0) == 200
    lane.go_on(9_000.0)
    assert lane.position(9_010.0) == 204
    log.stopped_at = 9_500.0
    assert lane.position(60_000.0) == 950


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 1_000))
def test_a_position_never_goes_back_and_never_beyond_the_log(one: float, two: float, start: int) -> None:
    early, late = sorted((one, two))
    log = PartitionLog(0.0, 0.1)
    lane = Lane(log, position=min(start, log.end(early)), speed=0.3, now=early)
    assert lane.position(early) <= lane.position(late) <= max(log.end(late), lane.position(early))


def test_events_are_written_as_people_say_them() -> None:
    assert parse_happenings("crash:c0@20s, join@10s,hang:c1@1.5m+35s,grow:8@300ms,grow:pay=3@2") == (
        Happening(at_ms=300.0, kind="grow", amount=8),
        Happening(at_ms=2_000.0, kind="grow", target="pay", amount=3),
        Happening(at_ms=10_000.0, kind="join"),
        Happening(at_ms=20_000.0, kind="crash", target="c0"),
        Happening(at_ms=90_000.0, kind="hang", target="c1", lasts_ms=35_000.0),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_reads_back_as_it_prints(kind: str) -> None:
    event = Happening(at_ms=1_500.0, kind=kind, target="c0", lasts_ms=2_000.0, amount=3)
    assert parse_happenings(str(event)) == (event,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("crash@20s", "BAD_EVENT"),
        ("crash:c0", "BAD_EVENT"),
        ("explode:c0@2s", "UNKNOWN_EVENT"),
        ("crash:c0@soon", "BAD_TIME"),
        ("grow:orders@2s", "BAD_EVENT"),
        (",".join(["join@1s"] * 1_001), "TOO_MANY_EVENTS"),
    ],
)
def test_a_wrong_event_says_what_is_wrong(text: str, code: str) -> None:
    with pytest.raises(HoldfastError, match=code):
        parse_happenings(text)


@pytest.mark.parametrize("text", ["", "-1s", "1h", "s", "1.2345s", "9" * 10])
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match="BAD_TIME"):
        parse_time(text)


def lane_record(at: float, step: str, member: str, why: str, position: int = 0) -> TraceRecord:
    data: dict[str, Value] = {"topic": "orders", "partition": 0, "position": position, "life": 0, "id": member}
    return TraceRecord(at=at, source="sim", step=step, member=member, cause=why, data=data)


def test_gaps_are_the_times_when_no_lane_is_open() -> None:
    line = timeline(
        [
            lane_record(100.0, "lane-opened", "c0", "fetched"),
            lane_record(200.0, "lane-stopped", "c0", "revoked"),
            lane_record(230.0, "lane-opened", "c0", "fetched"),
            lane_record(300.0, "lane-stopped", "c0", "crashed"),
            lane_record(900.0, "lane-opened", "c1", "fetched"),
        ],
        1_000.0,
    )
    assert [(gap.from_ms, gap.ms, gap.cause, gap.before, gap.after) for gap in line.gaps()] == [
        (200.0, 30.0, "revoked", "c0", "c0"),
        (300.0, 600.0, "crashed", "c0", "c1"),
    ]
    summary = summarise(line, 3)
    assert (summary.rebalanced_ms, summary.needless, summary.dark_ms) == (30.0, 1, 630.0)
    assert line.owner_at(P0, 100.0, 200.0) == "c0"
    assert line.owner_at(P0, 300.0, 800.0) == ""
    assert line.dark_in(P0, 190.0, 240.0) == 30.0


def test_a_zombie_beside_its_successor_leaves_no_gap_when_it_ends() -> None:
    line = timeline(
        [
            lane_record(0.0, "lane-opened", "c0", "fetched"),
            lane_record(100.0, "lane-opened", "c1", "fetched"),
            lane_record(150.0, "lane-stopped", "c0", "lost"),
        ],
        1_000.0,
    )
    assert line.gaps() == []


def test_a_hang_that_ends_while_the_process_is_stopped_ends_when_it_wakes() -> None:
    """Symptom: world 467 broke I14: a stopped process worked on.

    Cause: the end of a hang reached the application although its process was stopped.

    Rule: whatever happens to a process comes through `SimMember.run`.
    """
    config = scene_config(events="hang:c0@5s+2s,freeze:c0@6s+4s", duration="12s")
    result = World(config).run()
    back = [r.at for r in result.records if r.step == "application-returned"]
    assert result.violations == [] and back == [10_000.0]
