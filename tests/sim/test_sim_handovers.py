"""Handovers that a busy network disturbs, among members that commit rarely: nothing is done twice (I13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.sim.grounds import (
    LEADING_OUT_GROUND,
    MISPLANNED_GROUND,
    MISPLANNED_LEADING_OUT_GROUND,
    NEWCOMERS_GROUND,
    RARE_GROUND,
    SLOW_SYNC_GROUND,
)
from holdfast.sim.happenings import parse_happenings
from holdfast.sim.world import World


def test_a_leader_that_drains_leaves_nothing_behind_that_others_would_do_again() -> None:
    """Symptom: after a drain the next owner began at the last commit, seconds back, although everything went well.

    Cause: the draining member led the group. Its commit was overtaken by its join and refused, which is fine, because
    its positions were in the round's plan. It left as soon as it had its own part of that round, and its leave cut the
    round before the others had theirs. A leader hands over again what a cut round was to; but this one was gone.

    Rule: a leader that drains leaves only after a round that hands nothing over: who joined that has the rest.
    """
    world = replace(RARE_GROUND, seed=4)
    assert World(world, keep_records=False).run().violations == []


def test_a_leader_that_drains_keeps_a_promise_that_it_gave_before() -> None:
    """Symptom: a member began again with partitions that it had given up itself, at the last commit.

    Cause: it had given them up without waiting for its commit, because the leader had promised that its positions
    reach the next owner. Meanwhile the leader was asked to drain. It led the round that handed the positions over, and
    its leave cut that round before the member had its result.

    Rule: as above. It is not enough that a draining leader promises nothing any more.
    """
    assert World(replace(LEADING_OUT_GROUND, seed=131), keep_records=False).run().violations == []


@pytest.mark.parametrize("notes_bytes", [20, 100, 250])
def test_a_leader_with_little_room_for_notes_promises_no_more_of_it(notes_bytes: int) -> None:
    """Symptom: in worlds with short notes the next owner did work again that had been handed over.

    Cause: a leader told its members how much room it has for positions, and did not count its own limit. So they did
    not wait for their commits, and it left positions out.

    Rule: what a leader promises fits into its budget.
    """
    world = replace(RARE_GROUND, seed=3, notes_bytes=notes_bytes)
    assert World(world, keep_records=False).run().violations == []


@pytest.mark.parametrize("seed", [37, 50])
def test_who_drains_together_with_the_leader_leaves_nothing_behind_either(seed: int) -> None:
    """Symptom: two members drained at once, and the next owners of one's partitions began at its last commit.

    Cause: the other one led. It was to hand over the positions of both and left, and its leave cut the round.

    Rule: a leader that drains does not promise that positions reach anybody, so that all wait for their commits.
    """
    both = "join@3s,drain:c0@6s,drain:c1@6s,join@9s,join@9.2s,drain:c2@12s,drain:c3@12.01s,join@15s"
    world = replace(RARE_GROUND, seed=seed, happenings=parse_happenings(both))
    assert World(world, keep_records=False).run().violations == []


def test_a_newcomer_is_handed_again_what_it_missed_because_others_joined() -> None:
    """Symptom: a member that had just joined began with what another had already done.

    Cause: the round that handed the partition over was cut by the next one to join, before the newcomer had its result.
    Its former owner's commit had been overtaken by its join, so the leader alone had the position; and the leader kept
    none for members without a generation.

    Rule: who held no generation then and holds none now has got nothing in between.
    """
    assert World(NEWCOMERS_GROUND, keep_records=False).run().violations == []


def test_what_was_given_up_is_not_done_again_because_the_assignor_failed_once() -> None:
    """Symptom: a newcomer began at offset 0 with what another member had done before it gave it up.

    Cause: the former owner's commit was overtaken by its join and refused. The assignor raised in that round, everybody
    kept its partitions, and the leader forgot the position, which its owner offers only once.

    Rule: positions wait for the next plan.
    """
    result = World(MISPLANNED_GROUND).run()
    assert any(record.step == "plan-kept" for record in result.records)
    assert result.violations == []


def test_a_leader_that_drains_stays_while_positions_wait_for_its_plan() -> None:
    """The same, and the leader was told to drain. It left in the round without a plan, and the positions with it."""
    result = World(MISPLANNED_LEADING_OUT_GROUND).run()
    assert any(record.step == "plan-kept" for record in result.records)
    assert any(record.step == "process-ended" and record.member == "c1" for record in result.records)
    assert result.violations == []


def test_an_eager_group_goes_on_when_its_assignor_works_again() -> None:
    """Nothing can be kept, so the leader plans again while the round lasts."""
    eager = tuple(replace(plan, assignors=("range",)) for plan in MISPLANNED_GROUND.members)
    fails = parse_happenings("join@3s,misplan:c0@3s+2s,misplan:c1@3s+2s,misplan:c2@3s+2s")
    result = World(replace(MISPLANNED_GROUND, members=eager, happenings=fails)).run()
    assert any("ASSIGNOR_FAILED" in (record.cause or "") for record in result.records)
    assert result.violations == []


def test_a_leader_that_drains_is_out_although_a_newcomer_is_slower_than_its_joins() -> None:
    """Symptom: a leader was told to drain and stayed, and the group rebalanced once a heartbeat.

    Cause: the newcomer's sync came after the leader's next join, every time. It never got what was handed over to it,
    and the leader stayed because of that.

    Rule: from the second time on the leader waits for a heartbeat interval, and the newcomer has its result.
    """
    result = World(SLOW_SYNC_GROUND).run()
    assert result.violations == []
    (ended,) = (record for record in result.records if record.step == "process-ended" and record.member == "c0")
    assert ended.at < 6_000.0, "within three heartbeats"
    assert not any(record.step == "leave-overdue" for record in result.records)
