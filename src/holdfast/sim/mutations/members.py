"""Mutations of the member's machine: what it claims, gives up and tells, and when it joins again."""

from __future__ import annotations

from dataclasses import replace

from holdfast.group.member import Assigned, Call, Lost, MemberState, Notified, Notify, Phase, Revoked
from holdfast.group.member import Effect as MemberEffect
from holdfast.group.member import Event as MemberEvent
from holdfast.model import RebalanceProtocol, TopicPartition
from holdfast.sim.grounds import DEPLOY_GROUND, LARGE_GROUND, SLOW_GROUND, WAITING_GROUND
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, before_each_step, change_effects, change_joins, every_member


def owned_not_claimed(member: SimMember) -> None:
    """edge A20 franz-go dcfcacb: owned partitions are not attached on a rejoin, so the leader takes them for free."""
    change_joins(member, lambda subscription: replace(subscription, owned=frozenset()))


def revoke_skipped(member: SimMember) -> None:
    """edge B36 K-13310: processing of revoked partitions does not stop."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if isinstance(effect, Notify):
            return replace(effect, calls=tuple(call for call in effect.calls if not isinstance(call, Revoked)))
        return effect

    change_effects(member, effects)


def reads_on_past_the_join(member: SimMember) -> None:
    """edge B36 K-14196: partitions that a round took are still read after the join that gives them up."""

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        after, effects = sound(state, event, now)
        return after, tuple(without_revoke(effect, state.held.taken) for effect in effects)

    def without_revoke(effect: MemberEffect, taken: frozenset[TopicPartition]) -> MemberEffect:
        if isinstance(effect, Notify) and taken:
            return replace(effect, calls=tuple(call for call in effect.calls if call != Revoked(taken)))
        return effect

    sound = member.step
    member.step = step


def listener_not_told(member: SimMember) -> None:
    """edge B38 K-9620: a revoke is done, but one listener's call is lost."""
    sound = member.listener.note

    def note(call: Call) -> None:
        if not isinstance(call, Revoked):
            sound(call)

    member.listener.note = note  # type: ignore[method-assign]  # a mutation replaces what it breaks


def listener_told_twice(member: SimMember) -> None:
    """edge B41 K-7194: finishing a join runs twice after an interrupt, and the listener is called twice."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if isinstance(effect, Notify):
            twice = tuple(call for call in effect.calls if isinstance(call, Assigned))
            return replace(effect, calls=effect.calls + twice)
        return effect

    change_effects(member, effects)


def rejoin_forgotten(member: SimMember) -> None:
    """edge B32 K-9815: partitions were revoked, and the join that should follow is never sent."""

    def change(state: MemberState, event: MemberEvent) -> MemberState:
        if isinstance(event, Notified) and state.phase is Phase.APPLYING:
            # nor does the leader ask in its place
            return replace(state, owed=None, planning=replace(state.planning, again_at=None))
        return state

    before_each_step(member, change)


def eager_in_disguise(member: SimMember) -> None:
    """edge B52 librdkafka 4686: a cooperative member gives up what it keeps, and starts it again."""

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        eager = replace(state, config=replace(state.config, protocol=RebalanceProtocol.EAGER))
        after, effects = sound(eager, event, now)
        return replace(after, config=state.config), effects

    sound = member.step
    member.step = step


def keeps_under_any_assignor(member: SimMember) -> None:
    """edge A21 franz-go 686: a member lists eager assignors too, and keeps its partitions while it joins."""
    config = member.state.config
    if config.eager_assignors:
        member.state = replace(member.state, config=replace(config, assignors=config.eager_assignors))


def poll_never_expires(member: SimMember) -> None:
    """edge B54 librdkafka 3450: something other than the application's poll resets the poll clock."""

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        return sound(replace(state, last_polled_at=now), event, now)

    sound = member.step
    member.step = step


def loss_not_told(member: SimMember) -> None:
    """rule: an application that polls again after its eviction goes on with what others have by now."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if isinstance(effect, Notify):
            return replace(effect, calls=tuple(call for call in effect.calls if not isinstance(call, Lost)))
        return effect

    change_effects(member, effects)


MEMBERS: tuple[Mutation, ...] = (
    Mutation(
        name="owned-not-claimed",
        edge="A20 franz-go dcfcacb",
        caught_by=("I1",),
        break_it=every_member(owned_not_claimed),
    ),
    Mutation(name="revoke-skipped", edge="B36 K-13310", caught_by=("I1",), break_it=every_member(revoke_skipped)),
    Mutation(
        name="reads-on-past-the-join",
        edge="B36 K-14196",
        caught_by=("I1",),
        break_it=every_member(reads_on_past_the_join),
        world=LARGE_GROUND,
    ),
    Mutation(name="listener-not-told", edge="B38 K-9620", caught_by=("I6",), break_it=every_member(listener_not_told)),
    Mutation(
        name="listener-told-twice", edge="B41 K-7194", caught_by=("I6",), break_it=every_member(listener_told_twice)
    ),
    Mutation(
        name="rejoin-forgotten",
        edge="B32 K-9815",
        caught_by=("I4", "I7"),
        break_it=every_member(rejoin_forgotten),
        world=WAITING_GROUND,
    ),
    Mutation(
        name="eager-in-disguise",
        edge="B52 librdkafka 4686",
        caught_by=("I5",),
        break_it=every_member(eager_in_disguise),
    ),
    Mutation(
        name="keeps-under-any-assignor",
        edge="A21 franz-go 686",
        caught_by=("I1", "I2"),
        break_it=every_member(keeps_under_any_assignor),
        world=DEPLOY_GROUND,
    ),
    Mutation(
        name="poll-never-expires",
        edge="B54 librdkafka 3450",
        caught_by=("I12",),
        break_it=every_member(poll_never_expires),
        world=SLOW_GROUND,
    ),
    Mutation(
        name="loss-not-told",
        edge="rule",
        caught_by=("I1", "I6"),
        break_it=every_member(loss_not_told),
        world=SLOW_GROUND,
    ),
)
