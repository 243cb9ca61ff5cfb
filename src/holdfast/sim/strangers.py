"""Misbehaving members among sound ones: processes that send what holdfast never sends.

A mutation shows that a checker can fail. A stranger, on the other hand, must be survived: the other members lose
nothing, never process a partition together, and settle. Each stranger damages the process of one name only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.group.leader import LeaderPlan
from holdfast.group.short_notes import read_leader_note
from holdfast.group.user_data import GENERATION, LeaderNote, encode_leader_note
from holdfast.model import Assignment, Subscription, TopicPartition
from holdfast.model.attached import MAGIC
from holdfast.model.consumer_protocol import decode_assignment, decode_subscription, encode_assignment
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import change_joins
from holdfast.sim.world import World

Damage = Callable[[SimMember], None]


def among_us(name: str, damage: Damage) -> Callable[[World], None]:
    """Damage the processes of this name before they start."""

    def break_it(world: World) -> None:
        def on_start(member: SimMember) -> None:
            if member.name == name:
                damage(member)

        world.on_start = on_start

    return break_it


def marks_always(member: SimMember) -> None:
    """A leader that marks every plan as withholding partitions, whether it does or not."""
    _change_notes(member, lambda _name, note: encode_leader_note(replace(note or LeaderNote(), withheld=True)))


def never_settles(member: SimMember) -> None:
    """A leader that changes its plan each time: it takes half of what members own, and assigns what is free."""
    sound = member.plan_round

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        made = sound(*args, **options)
        names, generation = made.round.members, options["generation"]
        holder = {p: each.member_id for each in args[2] for p in decode_subscription(each.metadata).owned}
        everything = sorted(p for partitions in made.round.target.values() for p in partitions)
        given: dict[str, set[TopicPartition]] = {name: set() for name in names}
        for number, partition in enumerate(everything):
            if partition not in holder:
                given[names[(number + generation) % len(names)]].add(partition)
            elif number % 2 != generation % 2:
                given[holder[partition]].add(partition)
        note = encode_leader_note(LeaderNote(withheld=True))
        assignments = {
            name: encode_assignment(Assignment(partitions=frozenset(some), user_data=note))
            for name, some in given.items()
        }
        return replace(made, assignments=assignments)

    member.plan_round = plan


def old_version(member: SimMember) -> None:
    """A leader of holdfast's first version: JSON notes for everybody, `all` instead of `reach`, no pokes passed on."""

    def change(_name: str, note: LeaderNote | None) -> bytes | None:
        if note is None:
            return None
        body: dict[str, object] = {"wait": int(note.withheld), "drains": int(note.knows_drain), "all": 1}
        return MAGIC + b"\x01" + json.dumps(body).encode()

    _change_notes(member, change)


def writes_nonsense(member: SimMember) -> None:
    """A leader, and a member, whose notes nobody can read."""
    _change_notes(member, lambda _name, _note: MAGIC + b'\x01{"peers":[["10.0.0.1\\u0000",9]],"token":"t"}')
    body = {"at": ["\ud800", 9], "pos": {"orders": [[0, 2**70]]}}
    said = MAGIC + b"\x01" + json.dumps(body).encode()
    change_joins(member, lambda asked: replace(asked, user_data=GENERATION.pack(asked.generation) + said))


def claims_the_future(member: SimMember) -> None:
    """A member that claims every partition, in a future generation."""

    def change(asked: Subscription) -> Subscription:
        everything = frozenset(TopicPartition("orders", number) for number in range(6))
        return replace(asked, owned=everything, generation=2**31 - 1)

    change_joins(member, change)


STRANGERS: dict[str, Damage] = {
    "marks-always": marks_always,
    "never-settles": never_settles,
    "old-version": old_version,
    "writes-nonsense": writes_nonsense,
    "claims-the-future": claims_the_future,
}


def _change_notes(member: SimMember, change: Callable[[str, LeaderNote | None], bytes | None]) -> None:
    sound = member.plan_round

    def plan(*args: Any, **options: Any) -> LeaderPlan:
        made = sound(*args, **options)
        given = {}
        for name, data in made.assignments.items():
            assignment = decode_assignment(data)
            note = change(name, read_leader_note(assignment.user_data))
            given[name] = encode_assignment(replace(assignment, user_data=note))
        return replace(made, assignments=given)

    member.plan_round = plan
