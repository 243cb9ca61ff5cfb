"""Histories written by hand, with their figures: virtual time is exact, so the assertions are too."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.model import TopicPartition, TraceRecord
from holdfast.sim.config import Happening, WorldConfig
from holdfast.sim.scenarios import half_migrated, hung_consumer, one_change, rolling_deploy, scene_config
from holdfast.sim.timeline import Gap, Timeline, summarise, timeline
from holdfast.sim.world import World, WorldResult

HEARTBEAT_MS = 3_000


def play(config: WorldConfig) -> tuple[WorldResult, Timeline]:
    result = World(config).run()
    assert result.violations == []
    return result, timeline(result.records, result.ended_at_ms)


def steps(result: WorldResult, step: str) -> list[TraceRecord]:
    return [record for record in result.records if record.step == step]


def partitions(gaps: list[Gap]) -> set[int]:
    return {gap.partition.partition for gap in gaps}


# A consumer that hangs for 35 s with max.poll.interval.ms = 30 s


def test_only_the_hung_consumers_partitions_pause_and_others_never_stop() -> None:
    result, line = play(hung_consumer())
    (evicted,) = steps(result, "poll-expired")
    assert evicted.at == 41_000.0, "30 s after its last poll, heartbeats or not"
    (returned,) = steps(result, "application-returned")
    assert returned.at == 46_000.0
    before_return = [gap for gap in line.gaps() if gap.from_ms < returned.at]
    assert partitions(before_return) == {1, 4}, "what C1 had, and nothing else"
    assert {gap.cause for gap in before_return} == {"hung"}
    assert [gap.to_ms - evicted.at for gap in before_return] == [18.5, 18.5], "ms from the eviction to the next owner"
    assert {gap.after for gap in before_return} == {"c0", "c2"}


def test_when_the_hung_consumer_returns_only_what_it_gets_back_pauses() -> None:
    _, line = play(hung_consumer())
    after_return = [gap for gap in line.gaps() if gap.from_ms > 46_000.0]
    assert [(gap.ms, gap.after) for gap in after_return] == [(15.0, "c1"), (15.0, "c1")]
    assert partitions(after_return) == {3, 5}


def test_without_pokes_the_others_hear_of_the_eviction_on_their_next_heartbeat() -> None:
    _, line = play(hung_consumer(pokes=False))
    waits = [gap.to_ms - 41_000.0 for gap in line.gaps() if gap.cause == "hung"]
    assert waits == [2_030.0, 2_030.0]
    assert max(waits) < HEARTBEAT_MS


def test_under_the_eager_protocol_the_same_hang_stops_everybody_twice() -> None:
    result, line = play(hung_consumer(assignor="sticky"))
    bystanders = [gap for gap in line.gaps() if gap.by_rebalance]
    assert partitions(bystanders) == {0, 1, 2, 3, 4, 5}
    assert summarise(line, result.rounds).needless == 8


# A rolling deploy of three pods


def test_a_rolling_deploy_with_static_members_has_no_rebalance_at_all() -> None:
    result, line = play(rolling_deploy(static=True))
    assert result.rounds == 1, "the first one, when the group was born"
    assert summarise(line, result.rounds).rebalanced_ms == 0
    for gap in line.gaps():
        assert gap.before == gap.after, "every pod gets back what it had"
        assert gap.ms == pytest.approx(35_009.0), "the pod's own absence, and 9 ms to find its place again"
    assert len(line.gaps()) == 12


def test_a_rolling_deploy_with_dynamic_members_rebalances_for_every_leave_and_join() -> None:
    eager, eager_line = play(rolling_deploy(static=False, assignor="sticky"))
    cooperative, line = play(rolling_deploy(static=False))
    assert eager.rounds - 1 == 6, "one for each leave, one for each join"
    assert summarise(eager_line, 0).needless == 48
    assert summarise(line, 0).needless == 0
    assert summarise(eager_line, 0).rebalanced_ms > 5 * summarise(line, 0).rebalanced_ms
    assert cooperative.rounds - 1 == 9, "a join takes two rounds: revoke, then assign"


# Handovers that don't wait


def moved(config: WorldConfig) -> list[float]:
    _, line = play(config)
    return sorted({gap.ms for gap in line.gaps()})


def test_instant_rejoin_hands_over_in_milliseconds() -> None:
    assert moved(one_change("join")) == [15.0]


def test_without_it_a_handover_waits_for_a_heartbeat() -> None:
    waited = moved(one_change("join", instant_rejoin=False, hot_heartbeats=False))
    assert waited == [HEARTBEAT_MS + 15.0]


def test_under_a_foreign_leader_quick_heartbeats_do_nearly_as_well() -> None:
    assert moved(one_change("join", marks=False)) == [41.0]
    assert moved(one_change("join", foreign=True)) == [HEARTBEAT_MS + 16.0], "as clients of other makes do"


def test_a_drain_under_a_leader_that_knows_the_flag_hands_over_while_it_works() -> None:
    result, line = play(one_change("drain:c2"))
    assert sorted({gap.ms for gap in line.gaps()}) == [15.0], "as a join: its positions travel the same way"
    assert partitions(line.gaps()) == {2, 5, 8, 11}
    (ended,) = steps(result, "process-ended")
    assert ended.member == "c2"


def test_a_drain_of_the_leader_takes_a_commit_longer() -> None:
    """It waits for its commit and leaves: nobody could hand its positions over again. The next owner asks for them."""
    _, line = play(one_change("drain:c0"))
    assert sorted({gap.ms for gap in line.gaps()}) == [22.0]


def test_a_drain_under_a_leader_that_does_not_know_it_leaves_last() -> None:
    """The others come to the round on their heartbeats, while it works on: nobody waits for them but the round."""
    result, line = play(one_change("drain:c2", marks=False))
    (last,) = steps(result, "leave-last")
    (sent,) = steps(result, "leave-sent")
    assert sent.at == pytest.approx(last.data["at"], abs=20.0)
    assert sorted({gap.ms for gap in line.gaps()}) == [22.0]


def test_a_drain_among_members_of_other_makes_leaves_last() -> None:
    """Symptom: drains under a librdkafka leader took up to 3 s. Cause: we left, and the round that gave our partitions
    away waited for the heartbeats of whoever hears of it by nothing else."""
    config = one_change("drain:c2")
    foreign = tuple(replace(member, foreign=member.name != "c2") for member in config.members)
    assert moved(replace(config, members=foreign)) == [22.0]


@pytest.mark.parametrize("later_ms", [0.0, 1.0, 20.0, 1_000.0, 3_500.0])
def test_two_that_drain_among_members_of_other_makes_do_not_wait_for_each_other(later_ms: float) -> None:
    """Whoever finds a round under way takes part in it, and has one of its own called after it. If it held that round
    up, the partitions of the first to leave would be dark until the second has left."""
    config = one_change("drain:c2")
    members = tuple(replace(member, foreign=member.name == "c0", marks=False) for member in config.members)
    second = Happening(at_ms=config.happenings[0].at_ms + later_ms, kind="drain", target="c1")
    result, line = play(replace(config, members=members, happenings=(*config.happenings, second)))
    assert len(steps(result, "process-ended")) == 2
    assert max(gap.ms for gap in line.gaps()) <= 23.0


def test_a_plain_leave_waits_for_the_tick_unless_the_others_are_poked() -> None:
    assert moved(one_change("leave:c2")) == [2_030.0]
    assert moved(one_change("leave:c2", pokes=True)) == [24.5]


def test_handed_over_positions_save_the_question_for_the_committed_ones() -> None:
    result, _ = play(one_change("join"))
    assert {record.cause for record in steps(result, "lane-opened") if record.at > 11_000} == {"handed over"}
    asked, _ = play(one_change("join", hand_over_offsets=False))
    assert {record.cause for record in steps(asked, "lane-opened") if record.at > 11_000} == {"fetched"}
    assert moved(one_change("join", hand_over_offsets=False)) == [22.0]


def test_a_handover_loses_and_repeats_nothing() -> None:
    _, line = play(one_change("join"))
    for partition in (9, 10, 11):
        before, after = line.stretches[TopicPartition("orders", partition)]
        assert before.end == after.first, "the next owner starts where the last one stopped"


# An application that hangs while others hand over


def joined_beside_a_hung_one(responsive_ms: float | None) -> list[Gap]:
    config = one_change("join", responsive_ms=responsive_ms)
    hung = Happening(at_ms=10_000.0, kind="hang", target="c1", lasts_ms=50_000.0)
    _, line = play(replace(config, happenings=(hung, *config.happenings), duration_ms=70_000.0))
    return [gap for gap in line.gaps() if gap.cause == "revoked"]


def test_a_hung_application_does_not_keep_the_partitions_of_others_dark() -> None:
    """Symptom: one member joined while another's application hung; two partitions of healthy members stood still for
    47 s, as long as the hang. Cause: the hung one's member took part in the first half of the round by itself, so that
    the others revoked; the second half waited for its listener. Now it takes part when its application polls.
    """
    assert {gap.ms for gap in joined_beside_a_hung_one(1_000.0)} == {15.0}
    assert max(gap.ms for gap in joined_beside_a_hung_one(None)) > 45_000, "what it costs to join in any case"


# Groups in the middle of a migration


def test_a_group_half_way_from_eager_to_cooperative_keeps_every_invariant() -> None:
    """Edge A21: a live move from range to cooperative stranded partitions; a mixed list flipped the mode."""
    result, _ = play(half_migrated())
    protocols = [record.data["protocol"] for record in steps(result, "generation")]
    assert protocols[0] == "range" and protocols[-1] == "cooperative-sticky"
    flips = sum(1 for one, two in pairwise(protocols) if one != two)
    assert flips == 1, "the group changes over once, when the last old member has left"


def test_the_scene_of_the_command_line_is_the_one_in_the_picture() -> None:
    """Four consumers split six partitions: P0 and P4 to C0, P1 and P5 to C1, P2 to C2, P3 to C3."""
    _, line = play(scene_config(duration="5s"))
    owners = [line.owner_at(TopicPartition("orders", number), 4_000, 5_000) for number in range(6)]
    assert owners == ["c0", "c1", "c2", "c3", "c0", "c1"]


def test_in_the_scene_cooperative_pauses_a_small_part_of_what_eager_pauses() -> None:
    events = "join@10s,crash:c0@20s,hang:c1@35s"
    bare: dict[str, Any] = {"events": events, "session": "10s", "max_poll": "10s", "without": ["watchdog", "poke"]}
    eager, eager_line = play(scene_config(assignor="sticky", **bare))
    cooperative, line = play(scene_config(**bare))
    stopped, moving = summarise(eager_line, eager.rounds), summarise(line, cooperative.rounds)
    assert stopped.paused_partitions == 6 and moving.paused_partitions == 2
    assert moving.needless == 0
    assert stopped.rebalanced_ms > 8 * moving.rebalanced_ms
