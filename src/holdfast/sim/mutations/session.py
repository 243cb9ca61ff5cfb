"""Mutations of the session (`group.session`): each leaves out one rule, reverses it or gets it wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from holdfast.group.member import Assigned, Call, Effect, MemberState, Notify, Phase, Revoked
from holdfast.group.session.steps import Await, Commit, Committer, HoldBack, LetGo, Step, Tell
from holdfast.model import TopicPartition
from holdfast.sim.grounds import (
    BUSY_APPLICATIONS_GROUND,
    BUSY_COMMITS_GROUND,
    COMMITTING_GROUND,
    FROZEN_GROUND,
    INTERRUPTED_GROUND,
    LISTENING_GROUND,
    MIXED_GROUND,
    ORDERLY_GROUND,
    RARE_GROUND,
    SILENT_GROUND,
    STATIC_NEWCOMERS_GROUND,
    STORING_GROUND,
)
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, change_effects, every_member
from holdfast.sim.mutations.patched import Patched

Steps = tuple[Step, ...]


def _change(member: SimMember, change: Callable[[Call, Steps], Steps]) -> None:
    sound = member.listener.steps_around

    def steps_around(state: MemberState, call: Call, committer: Committer) -> Steps:
        return change(call, sound(state, call, committer))

    member.listener.steps_around = steps_around


def _without(member: SimMember, *kinds: type) -> None:
    _change(member, lambda _call, steps: tuple(step for step in steps if not isinstance(step, kinds)))


def nothing_held_back(member: SimMember) -> None:
    """rule: a revoked partition is still processed while the listener is told, and never let go."""
    _without(member, HoldBack, LetGo)


def never_committed_before_a_revoke(member: SimMember) -> None:
    """rule: nothing is committed before a revoke, and the next owner does everything since the last commit again."""
    _without(member, Commit)


def commit_beside_the_join(member: SimMember) -> None:
    """rule: a commit that is not waited for takes another connection than the join, which may overtake it. Whoever does
    not trust the positions in its first note, a static member, finds only older ones."""

    _change(
        member,
        lambda _call, steps: tuple(
            replace(step, ahead_of_join=False) if isinstance(step, HoldBack) else step for step in steps
        ),
    )


def older_commit_comes_later(member: SimMember) -> None:
    """rule: a commit goes ahead of the join while an older one is under way on the other connection, and arrives
    first."""
    _change(
        member,
        lambda _call, steps: tuple(step for step in steps if not (isinstance(step, Await) and step.only_theirs)),
    )


def join_overtakes_the_commit(member: SimMember) -> None:
    """rule: the commit is not waited for although the positions don't reach the next owner."""
    commit_beside_the_join(member)
    _without(member, Await)


def revoke_not_told(member: SimMember) -> None:
    """rule: partitions are held back, committed and let go, and the listener does not hear of it."""

    def change(call: Call, steps: Steps) -> Steps:
        return tuple(step for step in steps if not (isinstance(step, Tell) and isinstance(call, Revoked)))

    _change(member, change)


def assigned_and_never_read(member: SimMember) -> None:
    """rule: what was assigned is told to the listener and never read."""
    member.listener._open_lanes = lambda: None  # type: ignore[method-assign]


def never_answered(member: SimMember) -> None:
    """rule: the machine is never told that the listener has returned, and the group waits."""
    member.listener._answer = lambda notice, positions: None  # type: ignore[method-assign]


def position_handed_over_too_far(member: SimMember) -> None:
    """rule: what is handed over is a record further than what was processed, and nobody processes that record."""
    sound = member.app.close

    def close(partitions: Iterable[TopicPartition], why: str) -> dict[TopicPartition, int]:
        return {p: at + 1 for p, at in sound(partitions, why).items()}

    member.app = Patched(member.app, close=close)  # type: ignore[assignment]


def position_not_handed_over(member: SimMember) -> None:
    """rule: the commit is not waited for because the positions go with the join, and then they don't."""

    def change(_call: Call, steps: Steps) -> Steps:
        return tuple(replace(step, hands_over=False) if isinstance(step, LetGo) else step for step in steps)

    _change(member, change)


def handed_commit_rewinds(member: SimMember) -> None:
    """rule: a position that was handed over is committed after the new owner's own commits, which were further."""
    offsets = member.offsets
    offsets.not_committed_yet = lambda positions, known: dict(positions)
    offsets.still_wanted = lambda offsets, number: dict(offsets)  # type: ignore[method-assign]


def works_on_in_silence(member: SimMember) -> None:
    """rule: the coordinator is silent for a session timeout, and partitions that others may own are still processed."""
    member.certainty.may_process = lambda state, now: True


def freeze_not_noticed(member: SimMember) -> None:
    """rule: a process that was stopped while its join waited goes on, although the round may be over long ago."""
    sound = member.certainty.may_process

    def may_process(state: MemberState, now: float) -> bool:
        return sound(replace(state, requests=replace(state.requests, looked_at=now, unheard=False)), now)

    member.certainty.may_process = may_process


def not_committed_after_the_listener(member: SimMember) -> None:
    """rule: what the listener itself has stored is not committed, and the next owner does it again."""

    def change(_call: Call, steps: Steps) -> Steps:
        told = next((number for number, step in enumerate(steps) if isinstance(step, Tell)), 0)
        return (*steps[:told], *(step for step in steps[told:] if not isinstance(step, Commit)))

    _change(member, change)


def works_on_while_committing(member: SimMember) -> None:
    """rule: what is revoked is processed on while it is committed and the listener is told, and let go only then."""
    sound = member.app.close
    held: set[TopicPartition] = set()

    def close(partitions: Iterable[TopicPartition], why: str) -> dict[TopicPartition, int]:
        if why == "revoked":
            held.update(partitions)
            return member.app.positions(partitions)
        taken = held.intersection(partitions)
        held.difference_update(taken)
        return {**sound(taken, "revoked"), **sound(set(partitions) - taken, why)}

    member.app = Patched(member.app, close=close)  # type: ignore[assignment]  # a mutation


def never_committed_at_close(member: SimMember) -> None:
    """rule: a member that closes or drains leaves without a commit of what it has done."""
    _change_leaving(member, lambda step: isinstance(step, Commit))


def leave_overtakes_the_commit(member: SimMember) -> None:
    """rule: no join follows that could carry positions, and the last commit is not waited for: the leave is first."""
    _change_leaving(member, lambda step: isinstance(step, Await))


def _change_leaving(member: SimMember, left_out: Callable[[Step], bool]) -> None:
    """Leave steps out when the member is about to leave."""
    sound = member.listener.steps_around

    def steps_around(state: MemberState, call: Call, committer: Committer) -> Steps:
        steps = sound(state, call, committer)
        return tuple(step for step in steps if not left_out(step)) if state.phase is Phase.LEAVING else steps

    member.listener.steps_around = steps_around


def drain_hands_nothing_over(member: SimMember) -> None:
    """rule: a draining member does not wait for its commit, because its next join carries its positions; and then that
    join does not carry them."""
    sound = member.listener.steps_around

    def steps_around(state: MemberState, call: Call, committer: Committer) -> Steps:
        steps = sound(state, call, committer)
        if state.draining is None:
            return steps
        return tuple(replace(step, hands_over=False) if isinstance(step, LetGo) else step for step in steps)

    member.listener.steps_around = steps_around


def handed_position_not_used(member: SimMember) -> None:
    """rule: a position is handed over, and its new owner starts at the last commit all the same."""

    def change(effect: Effect) -> Effect:
        if not isinstance(effect, Notify):
            return effect
        return replace(
            effect, calls=tuple(replace(c, offsets={}) if isinstance(c, Assigned) else c for c in effect.calls)
        )

    change_effects(member, change)


def application_commit_not_awaited(member: SimMember) -> None:
    """rule: what an application commits in its listener is not waited for, although no join carries it, and the join
    overtakes it."""

    def change(_call: Call, steps: Steps) -> Steps:
        told = next((number for number, step in enumerate(steps) if isinstance(step, Tell)), 0)
        return (*steps[:told], *(step for step in steps[told:] if not isinstance(step, Await)))

    _change(member, change)


def older_application_commit_comes_later(member: SimMember) -> None:
    """rule: what an application has committed before its listener is called is not waited for, and arrives after what
    the listener commits, on the other connection."""

    def change(_call: Call, steps: Steps) -> Steps:
        told = next((number for number, step in enumerate(steps) if isinstance(step, Tell)), 0)
        return (*(step for step in steps[:told] if not isinstance(step, Await)), *steps[told:])

    _change(member, change)


SESSION: tuple[Mutation, ...] = (
    Mutation(
        name="works-on-while-committing",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(works_on_while_committing),
        world=LISTENING_GROUND,
    ),
    Mutation(
        name="never-committed-at-close",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(never_committed_at_close),
        world=ORDERLY_GROUND,
    ),
    Mutation(
        name="leave-overtakes-the-commit",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(leave_overtakes_the_commit),
        world=RARE_GROUND,
    ),
    Mutation(
        name="drain-hands-nothing-over",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(drain_hands_nothing_over),
        world=RARE_GROUND,
    ),
    Mutation(
        name="handed-position-not-used",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(handed_position_not_used),
        world=INTERRUPTED_GROUND,
    ),
    Mutation(
        name="application-commit-not-awaited",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(application_commit_not_awaited),
        world=COMMITTING_GROUND,
    ),
    Mutation(
        name="older-application-commit-comes-later",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(older_application_commit_comes_later),
        world=BUSY_APPLICATIONS_GROUND,
    ),
    Mutation(
        name="freeze-not-noticed",
        edge="rule",
        caught_by=("I14",),
        break_it=every_member(freeze_not_noticed),
        world=FROZEN_GROUND,
    ),
    Mutation(
        name="not-committed-after-the-listener",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(not_committed_after_the_listener),
        world=STORING_GROUND,
    ),
    Mutation(
        name="works-on-in-silence",
        edge="rule",
        caught_by=("I14",),
        break_it=every_member(works_on_in_silence),
        world=SILENT_GROUND,
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
        name="commit-beside-the-join",
        edge="rule",
        caught_by=("I13",),
        break_it=every_member(commit_beside_the_join),
        world=STATIC_NEWCOMERS_GROUND,
    ),
    Mutation(
        name="older-commit-comes-later",
        edge="rule",
        caught_by=("I3",),
        break_it=every_member(older_commit_comes_later),
        world=BUSY_COMMITS_GROUND,
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
        caught_by=("I4", "I7"),
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
