"""Deliberately broken members and coordinators: each re-introduces a fault that others shipped, or breaks a rule of our
own; a checker must see it.

A mutation damages the machines of one world before it starts, never the code itself, so that sound worlds can run
beside it. `grounds` has worlds with enough trouble for every fault to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.group.coordinator import Coordinator, GroupRecord, OffsetRecord, Persist, Record, Reply, Token
from holdfast.group.coordinator.effects import Effect
from holdfast.group.coordinator.roster import SESSION
from holdfast.group.coordinator.states import State
from holdfast.group.leader import LeaderPlan
from holdfast.group.member import Assigned, Call, Lost, MemberState, Notified, Notify, Phase, Revoked, Send
from holdfast.group.member import Effect as MemberEffect
from holdfast.group.member import Event as MemberEvent
from holdfast.group.messages import CommitRequest, HeartbeatRequest, JoinAnswer, JoinRequest, OffsetEntry, Request
from holdfast.group.user_data import LeaderNote, encode_leader_note
from holdfast.model import Assignment, Membership, RebalanceProtocol, TopicPartition
from holdfast.model.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.sim.config import GROUP, WorldConfig
from holdfast.sim.grounds import (
    CRASH_GROUND,
    CUT_GROUND,
    DEPLOY_GROUND,
    LARGE_GROUND,
    MIXED_GROUND,
    ORDERLY_GROUND,
    PROVING_GROUND,
    SLOW_GROUND,
    STATIC_GROUND,
    WAITING_GROUND,
    WATCHED_GROUND,
)
from holdfast.sim.member import SimMember
from holdfast.sim.patched import Patched
from holdfast.sim.session_faults import (
    assigned_and_never_read,
    handed_commit_rewinds,
    join_overtakes_the_commit,
    never_answered,
    never_committed_before_a_revoke,
    nothing_held_back,
    position_handed_over_too_far,
    position_not_handed_over,
    revoke_not_told,
)
from holdfast.sim.watchdog_faults import (
    watchdog_commits_what_was_read,
    watchdog_keeps_what_was_given_up,
    watchdog_leaves_first,
    watchdog_mixes_slots_up,
    watchdog_says_nothing,
)
from holdfast.sim.world import World

Break = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fault, and which invariants may be the first to show it."""

    name: str
    edge: str
    """Its line in docs/edge-cases.md and the ticket it comes from; "rule" where the rule is our own."""
    caught_by: tuple[str, ...]
    break_it: Break
    world: WorldConfig = PROVING_GROUND

    @property
    def story(self) -> str:
        return (self.break_it.__doc__ or "").strip()


# Members


def every_member(damage: Callable[[SimMember], None]) -> Break:
    """Damage each process before it starts."""

    def break_it(world: World) -> None:
        world.on_start = damage

    break_it.__doc__ = damage.__doc__
    return break_it


def withhold_skipped(member: SimMember) -> None:
    """edge A7 K-15170: the leader gives a partition to its new owner while the old one still holds it."""

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        made = sound(*args, **options)
        given = {
            name: encode_assignment(Assignment(partitions=partitions, user_data=encode_leader_note(LeaderNote())))
            for name, partitions in made.round.target.items()
        }
        return replace(made, assignments=given)

    sound = member.plan_round
    member.plan_round = plan


def marks_for_ever(member: SimMember) -> None:
    """edge A8 K-15106: the leader never finds its plan finished, and asks for round after round."""

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        made = sound(*args, **options)
        note = encode_leader_note(LeaderNote(withheld=True))
        given = {
            name: encode_assignment(replace(decode_assignment(data), user_data=note))
            for name, data in made.assignments.items()
        }
        return replace(made, assignments=given)

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        return unbounded(replace(state, round=replace(state.round, in_a_row=0)), event, now)

    sound, unbounded = member.plan_round, member.step
    member.plan_round, member.step = plan, step


def owned_not_claimed(member: SimMember) -> None:
    """edge A20 franz-go dcfcacb: owned partitions are not attached on a rejoin, so the leader takes them for free."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if isinstance(effect, Send) and isinstance(effect.request, JoinRequest):
            protocols = tuple(
                (name, encode_subscription(replace(decode_subscription(data), owned=frozenset())))
                for name, data in effect.request.protocols
            )
            return replace(effect, request=replace(effect.request, protocols=protocols))
        return effect

    change_effects(member, effects)


def revoke_skipped(member: SimMember) -> None:
    """edge B36 K-13310: processing of revoked partitions does not stop."""

    def effects(effect: MemberEffect) -> MemberEffect:
        if isinstance(effect, Notify):
            return replace(effect, calls=tuple(call for call in effect.calls if not isinstance(call, Revoked)))
        return effect

    change_effects(member, effects)


def reads_on_past_the_join(member: SimMember) -> None:
    """edge B36 K-14196: what a round took is read on also after the join that gives it up, when another may get it."""

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

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        if isinstance(event, Notified) and state.phase is Phase.APPLYING:
            state = replace(
                state, owed=None, planning=replace(state.planning, again_at=None)
            )  # nor does the leader ask in his stead
        return sound(state, event, now)

    sound = member.step
    member.step = step


def eager_in_disguise(member: SimMember) -> None:
    """edge B52 librdkafka 4686: a cooperative member gives up what it keeps, and starts it anew."""

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


def commits_what_it_lost(member: SimMember) -> None:
    """edge B53 librdkafka 3340: offsets of partitions no longer owned are committed, and rewind the group."""
    once: dict[TopicPartition, OffsetEntry] = {}
    sound = member.app.uncommitted

    def uncommitted(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        once.update(sound(partitions))
        return dict(once)

    def commit_request(offsets: Mapping[TopicPartition, OffsetEntry]) -> CommitRequest:
        return CommitRequest(group=GROUP, membership=member.state.membership, offsets=offsets)

    member.app = Patched(member.app, uncommitted=uncommitted)  # type: ignore[assignment]  # a mutation
    member.offsets.request = commit_request


def commits_ahead(member: SimMember) -> None:
    """edge B37 K-8972: what was fetched is committed as if it had been processed."""
    sound = member.app.uncommitted

    def uncommitted(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        return {partition: OffsetEntry(entry.offset + 50) for partition, entry in sound(partitions).items()}

    member.app = Patched(member.app, uncommitted=uncommitted)  # type: ignore[assignment]  # a mutation


def commits_pile_up(member: SimMember) -> None:
    """edge B48 K-6366: commits go out without end while none is answered."""
    sound = member.offsets.commit

    def commit(offsets: Mapping[TopicPartition, OffsetEntry], then: Callable[[], None] | None) -> None:
        for _ in range(100):
            sound(offsets, None)
        sound(offsets, then)

    member.offsets.commit = commit  # type: ignore[method-assign]  # a mutation


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


def change_effects(member: SimMember, change: Callable[[MemberEffect], MemberEffect]) -> None:
    """Let the machine be sound and its effects be changed on the way to the driver."""

    def step(state: MemberState, event: MemberEvent, now: float) -> tuple[MemberState, tuple[MemberEffect, ...]]:
        after, effects = sound(state, event, now)
        return after, tuple(change(effect) for effect in effects)

    sound = member.step
    member.step = step


# Coordinators


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


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(name="withhold-skipped", edge="A7 K-15170", caught_by=("I1",), break_it=every_member(withhold_skipped)),
    Mutation(name="marks-for-ever", edge="A8 K-15106", caught_by=("I7",), break_it=every_member(marks_for_ever)),
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
        name="commits-what-it-lost",
        edge="B53 librdkafka 3340",
        caught_by=("I3",),
        break_it=every_member(commits_what_it_lost),
    ),
    Mutation(name="commits-ahead", edge="B37 K-8972", caught_by=("I4",), break_it=every_member(commits_ahead)),
    Mutation(
        name="commits-pile-up",
        edge="B48 K-6366",
        caught_by=("I10",),
        break_it=every_member(commits_pile_up),
        world=CUT_GROUND,
    ),
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
    Mutation(
        name="watchdog-says-nothing",
        edge="rule",
        caught_by=("I11",),
        break_it=every_member(watchdog_says_nothing),
        world=WATCHED_GROUND,
    ),
    Mutation(
        name="watchdog-leaves-first",
        edge="rule",
        caught_by=("I11",),
        break_it=every_member(watchdog_leaves_first),
        world=WATCHED_GROUND,
    ),
    Mutation(
        name="watchdog-commits-what-was-read",
        edge="rule",
        caught_by=("I4",),
        break_it=every_member(watchdog_commits_what_was_read),
        world=WATCHED_GROUND,
    ),
    Mutation(
        name="watchdog-mixes-slots-up",
        edge="rule",
        caught_by=("I3", "I4"),
        break_it=every_member(watchdog_mixes_slots_up),
        world=WATCHED_GROUND,
    ),
    Mutation(
        name="watchdog-keeps-what-was-given-up",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(watchdog_keeps_what_was_given_up),
        world=WATCHED_GROUND,
    ),
    Mutation(
        name="nothing-held-back",
        edge="rule",
        caught_by=("I1",),
        break_it=every_member(nothing_held_back),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="never-committed-before-a-revoke",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(never_committed_before_a_revoke),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="join-overtakes-the-commit",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(join_overtakes_the_commit),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="revoke-not-told",
        edge="rule",
        caught_by=("I6",),
        break_it=every_member(revoke_not_told),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="assigned-and-never-read",
        edge="rule",
        caught_by=("I4",),
        break_it=every_member(assigned_and_never_read),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="never-answered",
        edge="rule",
        caught_by=(
            "I4",
            "I7",
        ),
        break_it=every_member(never_answered),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="position-handed-over-too-far",
        edge="rule",
        caught_by=("I4",),
        break_it=every_member(position_handed_over_too_far),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="position-not-handed-over",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(position_not_handed_over),
        world=MIXED_GROUND,
    ),
    Mutation(
        name="handed-commit-rewinds",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(handed_commit_rewinds),
        world=ORDERLY_GROUND,
    ),
)
