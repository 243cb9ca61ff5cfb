"""Members of other minds, and groups too large for long notes: the others lose nothing and come to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings
from holdfast.sim.member import SimMember
from holdfast.sim.scenarios import one_change, scene_config
from holdfast.sim.strangers import STRANGERS, among_us
from holdfast.sim.timeline import timeline
from holdfast.sim.world import World, WorldResult

EVENTS = "join:c5@12s,leave:c1@18s,crash:c2@24s,enforce:c3@32s,drain:c3@36s"


def world(stranger: str, who: str = "c0", **changes: object) -> tuple[World, WorldResult]:
    plans = tuple(MemberPlan(name=f"c{number}", pokes=True, start_ms=number * 600.0) for number in range(5))
    config = WorldConfig(members=plans, happenings=parse_happenings(EVENTS), duration_ms=60_000, **changes)  # type: ignore[arg-type]
    played = World(config, break_it=among_us(who, STRANGERS[stranger]))
    return played, played.run()


def rounds(result: WorldResult) -> list[float]:
    return [record.at for record in result.records if record.step == "generation"]


@pytest.mark.parametrize("stranger", sorted(STRANGERS.keys() - {"never-settles"}))
@pytest.mark.parametrize("who", ["c0", "c4"])
def test_a_stranger_harms_nobody(stranger: str, who: str) -> None:
    """c0 leads from the beginning, c4 is one of the others. No invariant breaks: nothing is lost, nothing is processed
    by two, and everybody goes on."""
    _, result = world(stranger, who)
    assert result.violations == []


def test_a_leader_that_marks_for_ever_brings_its_group_to_rest_all_the_same() -> None:
    """After each change members follow the mark eight times at most; then there is quiet until the next change."""
    _, result = world("marks-always")
    at = rounds(result)
    assert len(at) < 70
    assert at[-1] < 50_000, "long before the end it is quiet"
    assert len([t for t in at if t < 11_500]) <= 5 + 9


def test_without_the_budget_the_same_leader_spins_its_group_for_ever() -> None:
    """The proof that the budget does it: a member that forgets how often it has followed never comes to rest."""

    def forgetful(played: World) -> None:
        def on_start(member: SimMember) -> None:
            sound = member.step
            member.step = lambda state, event, now: sound(
                replace(state, round=replace(state.round, in_a_row=0)), event, now
            )
            if member.name == "c0":
                STRANGERS["marks-always"](member)

        played.on_start = on_start

    plans = tuple(MemberPlan(name=f"c{number}", pokes=True) for number in range(3))
    result = World(WorldConfig(members=plans, duration_ms=20_000), break_it=forgetful).run()
    assert len(rounds(result)) > 200


def test_a_leader_that_never_settles_has_a_round_per_heartbeat_after_the_first_few() -> None:
    """Nobody can make it plan better; but a group of three that is spun around has some 20 rounds in a minute and not
    thousands, and nothing is processed by two meanwhile."""
    plans = tuple(MemberPlan(name=f"c{number}", pokes=True) for number in range(3))
    played = World(WorldConfig(members=plans, duration_ms=60_000), break_it=among_us("c0", STRANGERS["never-settles"]))
    result = played.run()
    assert [v for v in result.violations if v.invariant != "I5"] == []
    assert 10 < len(rounds(result)) < 80


def test_whoever_writes_nonsense_is_named_once_by_whoever_leads() -> None:
    _, result = world("writes-nonsense", "c4")
    told = [r for r in result.records if r.step == "note-ignored" and r.source == "member"]
    assert told
    assert all((r.culprit or "").startswith("c4-") for r in told)
    assert len({(r.member, r.culprit) for r in told}) == len(told)


def test_whoever_claims_the_future_is_named_and_gets_its_share_like_everybody() -> None:
    played, result = world("claims-the-future", "c4")
    assert any(r.step == "note-ignored" and "generation after" in (r.cause or "") for r in result.records)
    assert played.members["c4"].state.owned


# Large groups in small


@pytest.mark.parametrize("budget", [0, 40, 120, 400])
def test_a_group_lives_with_few_notes_or_none(budget: int) -> None:
    plans = tuple(MemberPlan(name=f"c{number}", pokes=True, start_ms=number * 600.0) for number in range(5))
    config = WorldConfig(
        members=plans, happenings=parse_happenings(EVENTS), duration_ms=60_000, notes_bytes=budget, heals=True
    )
    assert World(config).run().violations == []


def test_pokes_that_are_passed_on_spare_a_large_group_the_wait_and_are_few() -> None:
    """Sixty members with short notes, three peers each: one leaves, and its partition pauses for a fraction of a
    heartbeat. A generation costs at most three datagrams to each peer of each member."""
    size = 60
    config = replace(
        scene_config(members=size, partitions=size, events="leave:c7@20s", duration="30s", batch="0s"),
        notes_bytes=8_000,
    )
    played = World(config)
    result = played.run()
    assert result.violations == []
    gaps = [gap for gap in timeline(result.records, result.ended_at_ms).gaps() if gap.from_ms > 19_000]
    assert gaps
    assert max(gap.ms for gap in gaps) < 500
    assert played.pokes <= 3 * 3 * size * len(rounds(result))


def test_a_handover_is_as_quick_with_short_notes() -> None:
    long_, short = (
        World(replace(one_change("join:c3", pokes=True), short_notes=written)).run() for written in (False, True)
    )
    pauses = [
        max(gap.ms for gap in timeline(result.records, result.ended_at_ms).gaps() if gap.from_ms > 10_000)
        for result in (long_, short)
    ]
    assert pauses[1] <= pauses[0] + 1
    assert "reading-on" in {record.step for record in short.records}, "the owner came last, and read until then"
