"""What ships, played: a watchdog speaks for whoever dies, slow batches cost the membership, and the scene's defaults
are the consumer's."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.client.config.settings import SWITCHES as CONSUMER_SWITCHES
from holdfast.client.config.settings import ConsumerConfig
from holdfast.model import HoldfastError, TraceRecord
from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings
from holdfast.sim.scenarios import SWITCHES, one_change, scene_config
from holdfast.sim.timeline import Timeline, timeline
from holdfast.sim.world import World, WorldResult


def play(config: WorldConfig) -> tuple[WorldResult, Timeline]:
    result = World(config).run()
    assert result.violations == []
    return result, timeline(result.records, result.ended_at_ms)


def of(result: WorldResult, *steps: str) -> list[TraceRecord]:
    return [record for record in result.records if record.step in steps]


def crash(kind: str = "crash", *, watchdog: bool = True) -> WorldConfig:
    config = one_change(f"{kind}:c0", pokes=True, watchdog=watchdog)
    return replace(config, duration_ms=80_000.0)


def test_who_dies_beside_its_watchdog_is_missed_for_milliseconds() -> None:
    """A crash in the simulator stayed dark for a session timeout, where the product takes 80 ms: it had no watchdog."""
    result, line = play(crash())
    assert max(gap.ms for gap in line.gaps()) == pytest.approx(27.5, abs=1.0)
    (left,) = of(result, "member-left")
    assert left.at - 11_000.0 == pytest.approx(5.5, abs=0.5)


def test_what_it_had_done_is_not_done_again() -> None:
    _, line = play(crash())
    for stretches in line.stretches.values():
        for before, after in pairwise(stretches):
            assert after.first == before.end


@pytest.mark.parametrize("config", [crash("machine-crash"), crash(watchdog=False)], ids=["machine", "without"])
def test_a_machine_takes_its_watchdog_along_and_the_session_has_to_expire(config: WorldConfig) -> None:
    result, line = play(config)
    assert max(gap.ms for gap in line.gaps()) == pytest.approx(44_030.0, abs=10.0)
    assert [record.member for record in of(result, "member-expired")] == ["c0-1"]


@pytest.mark.parametrize("event", ["leave:c0", "drain:c0"])
def test_who_goes_properly_is_not_spoken_for(event: str) -> None:
    spoken, silent = (play(one_change(event, pokes=True, watchdog=each))[0].records for each in (True, False))
    assert spoken == silent


def test_a_watchdog_that_is_not_heard_leaves_it_to_the_session() -> None:
    config = crash()
    result, line = play(replace(config, happenings=parse_happenings("mute:c0@10s+30s,crash:c0@11s")))
    assert of(result, "member-left") == []
    assert max(gap.ms for gap in line.gaps()) > 40_000


def slow(batch_ms: float) -> WorldConfig:
    """Three members; c0 needs so long for its batches. max.poll.interval.ms is 5 min."""
    common = MemberPlan(name="", session_timeout_ms=45_000, max_poll_interval_ms=300_000, pokes=True)
    plans = tuple(replace(common, name=f"c{number}", batch_ms=batch_ms if number == 0 else 0.0) for number in range(3))
    return WorldConfig(members=plans, duration_ms=800_000)


def test_a_batch_that_outlasts_max_poll_costs_the_membership_until_the_next_poll() -> None:
    """`sim --batch 6m --max-poll 5m` showed no rebalance at all: the application polled twice a second regardless."""
    result, line = play(slow(360_000.0))
    first, *_ = of(result, "poll-expired")
    began_ms = first.at - 300_000.0
    assert began_ms < 3_000.0, "the batch began when there was something to do"
    left, *_ = of(result, "member-left")
    assert left.at - first.at < 5.0, "it leaves by itself"
    firsts = {partition: each[:2] for partition, each in line.stretches.items() if each[0].member == "c0"}
    assert len(firsts) == 2
    for before, after in firsts.values():
        assert after.member in ("c1", "c2") and after.from_ms - first.at < 100.0, "somebody else goes on at once"
        assert before.end > after.first, "and does again what c0 could not commit"
    lost, *_ = [record for record in of(result, "called") if record.data["call"] == "lost"]
    assert lost.at == pytest.approx(began_ms + 360_000.0, abs=1.0), "it hears of it at its next poll"
    back = [s for each in line.stretches.values() for s in each if s.member == "c0" and s.from_ms > lost.at]
    assert min(s.from_ms for s in back) - lost.at < 1_000.0, "and is given work again"


def test_a_batch_that_is_done_in_time_costs_nothing() -> None:
    result, _ = play(slow(240_000.0))
    assert of(result, "poll-expired", "member-left") == []
    assert result.rounds == 1


def test_a_round_waits_for_the_batch_in_work_and_stops_nobody_until_it_is_done() -> None:
    config = replace(slow(20_000.0), happenings=parse_happenings("join@30s"), duration_ms=90_000)
    result, line = play(config)
    joined_at = max(record.at for record in of(result, "join-granted") if record.generation == 2)
    assert joined_at == pytest.approx(41_501.0, abs=1.0), "c0's second batch is done, and it polls"
    assert line.gaps() and all(gap.from_ms >= joined_at for gap in line.gaps())


def test_the_scenes_defaults_are_the_consumers_own() -> None:
    """They were not: 10 s sessions, no pokes, no watchdog. What people saw was not what they would get."""
    defaults = {field.name: field.default for field in fields(ConsumerConfig)}
    plan = scene_config().members[0]
    assert plan.session_timeout_ms == defaults["session_timeout_ms"]
    assert plan.heartbeat_interval_ms == defaults["heartbeat_interval_ms"]
    assert plan.max_poll_interval_ms == defaults["max_poll_interval_ms"]
    assert plan.commit_interval_ms == defaults["auto_commit_interval_ms"]
    assert plan.pokes and plan.watchdog and plan.instant_rejoin and plan.hand_over_offsets and plan.hot_heartbeats


def test_what_is_not_set_gives_way_to_what_is_as_with_the_consumer() -> None:
    plan = scene_config(max_poll="12s").members[0]
    assert (plan.session_timeout_ms, plan.heartbeat_interval_ms) == (12_000, 3_000)
    plan = scene_config(session="6s").members[0]
    assert (plan.session_timeout_ms, plan.heartbeat_interval_ms) == (6_000, 2_000)


def test_static_members_have_no_watchdog_unless_asked_as_with_the_consumer() -> None:
    assert not scene_config(static=True).members[0].watchdog


def test_every_switch_has_the_consumers_name() -> None:
    names = {key.removeprefix("holdfast.").replace(".", "-") for key in CONSUMER_SWITCHES}
    assert set(SWITCHES) == names - {"drain"}, "whether somebody drains is an event here"


@pytest.mark.parametrize("word", SWITCHES)
def test_a_switch_turns_off_what_it_names_and_nothing_else(word: str) -> None:
    sound, without = scene_config().members[0], scene_config(without=[word]).members[0]
    off: dict[str, Any] = {SWITCHES[word]: False}
    assert without == replace(sound, **off)


def test_all_switches_at_once() -> None:
    plan = scene_config(without=["all"]).members[0]
    assert not any(getattr(plan, name) for name in SWITCHES.values())


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(HoldfastError, match="UNKNOWN_SWITCH"):
        scene_config(without=["magic"])
