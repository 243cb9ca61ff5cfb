"""Mutations of leaders: what they plan, and what they say in their notes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.group.leader import LeaderPlan
from holdfast.group.user_data import LeaderNote, encode_leader_note
from holdfast.model import Assignment
from holdfast.model.consumer_protocol import decode_assignment, encode_assignment
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, before_each_step, every_member


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

    sound = member.plan_round
    member.plan_round = plan
    before_each_step(member, lambda state, _event: replace(state, round=replace(state.round, in_a_row=0)))


LEADERS: tuple[Mutation, ...] = (
    Mutation(name="withhold-skipped", edge="A7 K-15170", caught_by=("I1",), break_it=every_member(withhold_skipped)),
    Mutation(name="marks-for-ever", edge="A8 K-15106", caught_by=("I7",), break_it=every_member(marks_for_ever)),
)
