"""Mutations of handovers: whom positions reach, for how long they count, when a member may leave, how news spreads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.group.leader import KeptPlan, LeaderPlan
from holdfast.group.member import Close, Effect, Event, MemberState, Phase, PlanFailed, SyncAnswered
from holdfast.model import NO_GENERATION
from holdfast.sim.grounds import (
    INTERRUPTED_GROUND,
    LEADING_OUT_GROUND,
    MIDDLE_GROUND,
    MISPLANNED_GROUND,
    MISPLANNED_LEADING_OUT_GROUND,
    NEWCOMERS_GROUND,
    OWED_GROUND,
    POKING_GROUND,
    RESTART_GROUND,
    SLOW_GROUND,
    SLOW_SYNC_GROUND,
    TIGHT_GROUND,
)
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, before_each_step, every_member

PLENTY = 1_000_000
"""Bytes: more than any note has."""


def _after_each_step(member: SimMember, change: Callable[[MemberState], MemberState]) -> None:
    """Keep the machine sound, but change the state after each event."""
    sound = member.step

    def step(state: MemberState, event: Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
        after, effects = sound(state, event, now)
        return change(after), effects

    member.step = step


def cut_round_forgotten(member: SimMember) -> None:
    """rule: positions that a cut round was to hand over are not handed over by the next one, and are gone."""
    sound = member.plan_round

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        return sound(*args, **{**options, "before": None})

    member.plan_round = plan


def positions_ride_for_ever(member: SimMember) -> None:
    """rule: positions are sent in more than one round, although the partition's owner meanwhile got further."""
    sound = member.step

    def step(state: MemberState, event: Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
        after, effects = sound(state, event, now)
        kept = {p: entry for p, entry in state.held.positions.items() if p not in after.owned}
        return replace(after, held=replace(after.held, positions={**kept, **after.held.positions})), effects

    member.step = step


def positions_beyond_the_budget(member: SimMember) -> None:
    """rule: more positions are sent with a join than the leader has room for, and it passes on as many as fit."""
    _after_each_step(member, lambda state: replace(state, said=replace(state.said, room=PLENTY)))


def old_note_trusted_after_a_restart(member: SimMember) -> None:
    """rule: a static member that restarted begins where its old assignment says, behind its own commits."""

    def change(state: MemberState, event: Event) -> MemberState:
        fresh = isinstance(event, SyncAnswered) and state.static and state.held.generation < 0
        return replace(state, held=replace(state.held, generation=0)) if fresh else state

    before_each_step(member, change)


def leaves_between_generations(member: SimMember) -> None:
    """rule: a member closes in the middle of a round, when no commit is accepted, and its work is done again."""

    def change(state: MemberState, event: Event) -> MemberState:
        if isinstance(event, Close) and state.phase in (Phase.PLANNING, Phase.SYNCING):
            return replace(state, phase=Phase.STABLE, requests=replace(state.requests, pending=None))
        return state

    before_each_step(member, change)


def pokes_circulate(member: SimMember) -> None:
    """rule: in a large group a poke is passed on each time it comes, and goes round for ever."""
    before_each_step(member, lambda state, _event: replace(state, pokes=replace(state.pokes, sent=frozenset())))


def owed_round_never_asked(member: SimMember) -> None:
    """rule: a leader withholds partitions because of a member that restarted, and nobody asks for the next round."""
    before_each_step(member, lambda state, _event: replace(state, planning=replace(state.planning, again_at=None)))


def leaves_before_its_promise_is_kept(member: SimMember) -> None:
    """rule: a leader that drains leaves right after the round that hands positions over. Its leave cuts the round, and
    whoever has not got the result by then never gets the positions."""
    before_each_step(member, lambda state, _event: replace(state, round=replace(state.round, promised=False)))


def newcomer_forgotten(member: SimMember) -> None:
    """rule: a newcomer that missed the round which handed positions over to it is not handed them again."""
    sound = member.plan_round

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        before = options["before"]
        if isinstance(before, LeaderPlan):
            known = {n: p for n, p in before.handed.items() if before.round.held_generation(n) != NO_GENERATION}
            options["before"] = replace(before, handed=known)
        return sound(*args, **options)

    member.plan_round = plan


def failed_plan_forgotten(member: SimMember) -> None:
    """rule: positions are forgotten that were offered in a round without a plan, because the assignor failed."""
    sound = member.keep_round

    def keep(*args: Any, **options: Any) -> KeptPlan:
        return replace(sound(*args, **options), waiting={})

    member.keep_round = keep


def leaves_while_positions_wait(member: SimMember) -> None:
    """rule: a leader that drains leaves although its assignor failed, and positions wait for its next plan."""
    sound = member.step

    def step(state: MemberState, event: Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
        return sound(state, replace(event, hands_over=False) if isinstance(event, PlanFailed) else event, now)

    member.step = step


def drain_never_ends(member: SimMember) -> None:
    """rule: a leader that drains asks for one more round at once, again and again. A member that is slower never gets
    the result, so there is always one more."""

    def change(state: MemberState, _event: Event) -> MemberState:
        return replace(state, drain=replace(state.drain, stayed=0, until=None))

    before_each_step(member, change)


HANDOVERS: tuple[Mutation, ...] = (
    Mutation(
        name="failed-plan-forgotten",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(failed_plan_forgotten),
        world=MISPLANNED_GROUND,
    ),
    Mutation(
        name="leaves-while-positions-wait",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(leaves_while_positions_wait),
        world=MISPLANNED_LEADING_OUT_GROUND,
    ),
    Mutation(
        name="newcomer-forgotten",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(newcomer_forgotten),
        world=NEWCOMERS_GROUND,
    ),
    Mutation(
        name="drain-never-ends",
        edge="rule",
        caught_by=("I7",),
        break_it=every_member(drain_never_ends),
        world=SLOW_SYNC_GROUND,
    ),
    Mutation(
        name="cut-round-forgotten",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(cut_round_forgotten),
        world=INTERRUPTED_GROUND,
    ),
    Mutation(
        name="positions-ride-for-ever",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(positions_ride_for_ever),
        world=SLOW_GROUND,
    ),
    Mutation(
        name="positions-beyond-the-budget",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(positions_beyond_the_budget),
        world=TIGHT_GROUND,
    ),
    Mutation(
        name="old-note-trusted-after-a-restart",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(old_note_trusted_after_a_restart),
        world=RESTART_GROUND,
    ),
    Mutation(
        name="leaves-between-generations",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(leaves_between_generations),
        world=MIDDLE_GROUND,
    ),
    Mutation(
        name="owed-round-never-asked",
        edge="rule",
        caught_by=("I4",),
        break_it=every_member(owed_round_never_asked),
        world=OWED_GROUND,
    ),
    Mutation(
        name="pokes-circulate",
        edge="rule",
        caught_by=("I10",),
        break_it=every_member(pokes_circulate),
        world=POKING_GROUND,
    ),
    Mutation(
        name="leaves-before-its-promise-is-kept",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(leaves_before_its_promise_is_kept),
        world=LEADING_OUT_GROUND,
    ),
)
