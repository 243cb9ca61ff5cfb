"""A member that hears nothing of its coordinator stands still before others can have its partitions (I14)."""

from __future__ import annotations

from holdfast.sim.grounds import SILENT_GROUND
from holdfast.sim.swarm import random_world
from holdfast.sim.world import World


def test_a_cut_off_member_stands_still_when_its_session_may_be_over_and_is_expelled_later() -> None:
    result = World(SILENT_GROUND).run()
    held_back = [r.at for r in result.records if r.step == "lane-stopped" and r.cause == "unsure" and r.member == "c0"]
    expelled = [r.at for r in result.records if r.step == "member-expired" and r.member.startswith("c0")]
    assert held_back and expelled and max(held_back) < expelled[0]
    assert expelled[0] - max(held_back) < 50.0, "it is held back no earlier than needed"


def test_a_stopped_process_that_wakes_too_late_does_not_go_on_where_it_stood() -> None:
    result = World(SILENT_GROUND).run()
    woke = next(r.at for r in result.records if r.step == "process-woke" and r.member == "c1")
    opened = [r for r in result.records if r.step == "lane-opened" and r.member == "c1" and r.at >= woke]
    assert opened and {r.cause for r in opened} <= {"fetched", "handed over"}


def test_a_join_that_fails_after_a_long_wait_ends_the_certainty_at_once() -> None:
    """Symptom: world 1934 broke I14. Cause: the answer to a parked join was lost; the request failed after a session
    timeout of silence that did not count, and the application was held back only with its next poll. Rule: a consumer
    asks `may_process` with every record, so the simulator asks when a request has failed."""
    assert World(random_world(1934), keep_records=False).run().violations == []
