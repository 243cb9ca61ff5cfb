"""Mutations of the coordinator: fencing, generations, sessions and its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.group.coordinator import Coordinator, GroupRecord, OffsetRecord, Persist, Record, Reply, Token
from holdfast.group.coordinator.effects import Effect
from holdfast.group.coordinator.roster import SESSION
from holdfast.group.coordinator.states import State
from holdfast.group.messages import CommitRequest, HeartbeatRequest, JoinAnswer, Request
from holdfast.model import Membership
from holdfast.sim.config import GROUP
from holdfast.sim.grounds import CRASH_GROUND, STATIC_GROUND
from holdfast.sim.mutations.mutation import Mutation
from holdfast.sim.world import World


def change_requests(world: World, change: Callable[[Coordinator, Request], Request]) -> None:
    sound = world.broker.ask

    def ask(coordinator: Coordinator, token: Token, request: Request, now: float) -> list[Effect]:
        return sound(coordinator, token, change(coordinator, request), now)

    world.broker.ask = ask


def change_coordinator_effects(world: World, change: Callable[[Coordinator, list[Effect]], list[Effect]]) -> None:
    ask_soundly, wake_soundly = world.broker.ask, world.broker.wake

    def ask(coordinator: Coordinator, token: Token, request: Request, now: float) -> list[Effect]:
        return change(coordinator, ask_soundly(coordinator, token, request, now))

    def wake(coordinator: Coordinator, now: float) -> list[Effect]:
        return change(coordinator, wake_soundly(coordinator, now))

    world.broker.ask, world.broker.wake = ask, wake


def stale_commit_taken(world: World) -> None:
    """edge C71 K-5247: a commit is taken whatever generation it comes from."""

    def change(coordinator: Coordinator, request: Request) -> Request:
        group = coordinator.group(GROUP)
        if not isinstance(request, CommitRequest) or group is None or group.roster.state is State.COMPLETING:
            return request
        roster = group.roster
        if not roster.members or request.membership.member_id in roster.members:
            return request
        return replace(request, membership=Membership(next(iter(roster.members)), roster.generation))

    change_requests(world, change)


def twin_not_fenced(world: World) -> None:
    """edge C63 K-8500: a static member's former process goes on as if it still held the place."""

    def change(coordinator: Coordinator, request: Request) -> Request:
        group = coordinator.group(GROUP)
        if group is None or not isinstance(request, CommitRequest | HeartbeatRequest) or request.instance_id is None:
            return request
        holder = group.roster.static.get(request.instance_id, request.membership.member_id)
        return replace(request, membership=Membership(holder, request.membership.generation))

    change_requests(world, change)


def generation_not_raised(world: World) -> None:
    """edge B26 K-9823: two rounds share one generation, so that late answers can't be told from new ones."""

    def change(coordinator: Coordinator, effects: list[Effect]) -> list[Effect]:
        group = coordinator.group(GROUP)
        if group is None or group.roster.state is not State.COMPLETING or group.roster.generation != 3:
            return effects
        group.roster.generation = 2
        changed: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Persist):
                records = tuple(replace(r, generation=2) if isinstance(r, GroupRecord) else r for r in effect.records)
                changed.append(Persist(records))
            elif isinstance(effect, Reply) and isinstance(effect.answer, JoinAnswer):
                who = Membership(effect.answer.membership.member_id, 2)
                changed.append(replace(effect, answer=replace(effect.answer, membership=who)))
            else:
                changed.append(effect)
        return changed

    change_coordinator_effects(world, change)


def session_never_expires(world: World) -> None:
    """edge C59 K-12890: silent members are never expelled, and their partitions stay dark."""
    sound = world.broker.wake

    def wake(coordinator: Coordinator, now: float) -> list[Effect]:
        group = coordinator.group(GROUP)
        for member_id in sorted(group.roster.members) if group is not None else []:
            key = (SESSION, member_id)
            if group is not None and key in group.roster.deadlines:
                group.roster.deadlines.set(key, now + 1_000_000.0)
        return sound(coordinator, now)

    world.broker.wake = wake


def replay_loses_offsets(world: World) -> None:
    """edge C70 K-20254: offsets that come before their group's record are lost when the log is loaded."""

    def load(records: list[Record]) -> list[Record]:
        return [record for record in records if not isinstance(record, OffsetRecord)]

    world.broker.load = load


def plan_not_written(world: World) -> None:
    """edge C64 K-10284: what changes after the join barrier is not durable."""

    def change(_coordinator: Coordinator, effects: list[Effect]) -> list[Effect]:
        return [
            effect
            for effect in effects
            if not (
                isinstance(effect, Persist)
                and any(isinstance(r, GroupRecord) and r.state is State.STABLE for r in effect.records)
            )
        ]

    change_coordinator_effects(world, change)


COORDINATORS: tuple[Mutation, ...] = (
    Mutation(name="stale-commit-taken", edge="C71 K-5247", caught_by=("I2", "I3"), break_it=stale_commit_taken),
    Mutation(
        name="twin-not-fenced",
        edge="C63 K-8500",
        caught_by=("I1", "I2", "I3"),
        break_it=twin_not_fenced,
        world=STATIC_GROUND,
    ),
    Mutation(name="generation-not-raised", edge="B26 K-9823", caught_by=("I9",), break_it=generation_not_raised),
    Mutation(
        name="session-never-expires",
        edge="C59 K-12890",
        caught_by=("I4", "I7"),
        break_it=session_never_expires,
        world=CRASH_GROUND,
    ),
    Mutation(name="replay-loses-offsets", edge="C70 K-20254", caught_by=("I8",), break_it=replay_loses_offsets),
    Mutation(name="plan-not-written", edge="C64 K-10284", caught_by=("I2", "I8"), break_it=plan_not_written),
)
