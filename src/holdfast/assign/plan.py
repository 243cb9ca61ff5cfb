"""What a round decided: columns inside, dictionaries and bytes on demand."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.answer import encode_all
from holdfast.assign.columns import Columns
from holdfast.model import NO_GENERATION, TopicPartition
from holdfast.model.attached import attach
from holdfast.model.consumer_protocol import encode_assignment
from holdfast.model.subscription import Assignment

NO_USER_DATA = b"\xff\xff\xff\xff"
"""An int32 length of -1: null."""


class Handover(NamedTuple):
    """One partition's move from the member that holds it to the one that the plan gives it to."""

    source: str | None
    """None where two members claim it in the same generation: then nobody owns it."""
    target: str


@dataclass(kw_only=True)
class RoundPlan:
    """A round's plan. `target` is where partitions settle, `assignment` what this round gives: transfers withheld."""

    strategy: str
    cooperative: bool
    columns: Columns = field(repr=False)
    target_column: NDArray[np.int32] = field(repr=False)
    assigned_column: NDArray[np.int32] = field(repr=False)
    unknown: Mapping[tuple[str, int], int] = field(repr=False)
    """Partitions of topics the leader can't see -> position of the member that gets them back."""
    assignor_user_data: Mapping[str, bytes] = field(repr=False)
    """What a custom assignor wants to tell its members."""

    @property
    def members(self) -> list[str]:
        """All members, sorted."""
        return self.columns.members

    @property
    def topics(self) -> frozenset[str]:
        """Everything that some member subscribes to, whether or not it exists."""
        return frozenset[str]().union(*self.columns.names)

    @property
    def malformed(self) -> list[str]:
        """Members whose subscription could not be read; they get an empty assignment."""
        return self.columns.malformed

    @property
    def ahead(self) -> list[str]:
        """Members that claim partitions of a future generation; such claims were ignored."""
        return self.columns.ahead

    @cached_property
    def target(self) -> dict[str, frozenset[TopicPartition]]:
        """Where everything settles. Every member is a key."""
        return self._by_member(self.target_column)

    @cached_property
    def assignment(self) -> dict[str, frozenset[TopicPartition]]:
        """What this round gives. Every member is a key."""
        given = self._by_member(self.assigned_column)
        for (topic, partition), member in self.unknown.items():
            given[self.members[member]] |= {TopicPartition(topic, partition)}
        return given

    @cached_property
    def withheld(self) -> dict[TopicPartition, Handover]:
        """What is planned for a member and kept back from it this round, sorted by partition."""
        held = {}
        for pid in np.flatnonzero(self.assigned_column != self.target_column):
            source = None if self.columns.tied[pid] else self.members[self.columns.owner[pid]]
            held[self._partition(int(pid))] = Handover(source, self.members[self.target_column[pid]])
        return held

    @cached_property
    def moved(self) -> dict[TopicPartition, Handover]:
        """Partitions that one member holds and the plan gives to another, sorted. What two members claim in the same
        generation is not among them."""
        owner = self.columns.owner
        away = np.flatnonzero((owner >= 0) & (self.columns.tied == 0) & (owner != self.target_column))
        return {
            self._partition(int(pid)): Handover(self.members[owner[pid]], self.members[self.target_column[pid]])
            for pid in away
        }

    @cached_property
    def revoked(self) -> tuple[tuple[TopicPartition, str], ...]:
        """What members claim and this round does not give them back: (partition, member), sorted."""
        member, pid = self.columns.claim_member, self.columns.claim_pid
        gone = np.flatnonzero(self.assigned_column[pid] != member)
        found = {(self._partition(int(pid[k])), self.members[member[k]]) for k in gone}
        for m, topic, partition in self.columns.others:
            if self.unknown.get((topic, partition)) != m:
                found.add((TopicPartition(topic, partition), self.members[m]))
        return tuple(sorted(found))

    @cached_property
    def transferring(self) -> bool:
        """Whether anything is withheld: then everybody should rejoin as soon as it is revoked."""
        return bool((self.assigned_column != self.target_column).any())

    @cached_property
    def contested(self) -> bool:
        """Whether some member claims what it does not own: another claim is newer or as new, or the partition does not
        exist. What this round takes from that member may already belong to another one."""
        columns = self.columns
        losing = columns.owner[columns.claim_pid] != columns.claim_member
        return bool(columns.others) or bool(columns.tied.any()) or bool(losing.any())

    @cached_property
    def rounds(self) -> int:
        """How many rounds it takes to settle: two if a cooperative member has to revoke something first."""
        return 2 if self.cooperative and (self.transferring or self.revoked) else 1

    def taker(self, partition: TopicPartition) -> str | None:
        """Who newly gets this partition in this round: None where somebody still holds it, or nobody gets it."""
        topic = self._topic_at.get(partition.topic)
        if topic is None:
            return None
        pid = int(self.columns.first[topic]) + partition.partition
        if partition.partition < 0 or pid >= self.columns.first[topic + 1]:
            return None
        member = self.assigned_column[pid]
        return None if member < 0 or self.columns.owner[pid] >= 0 else self.members[member]

    def user_data(self, member_id: str) -> bytes | None:
        """The user data of a member's subscription, unread."""
        position = self._position.get(member_id)
        return None if position is None else self.columns.user_data(position)

    def held_generation(self, member_id: str) -> int:
        """The generation that a member says its claims are of."""
        position = self._position.get(member_id)
        return NO_GENERATION if position is None else int(self.columns.generation[position])

    def is_static(self, member_id: str) -> bool:
        position = self._position.get(member_id)
        return position is not None and self.columns.instances[position] is not None

    def encode(self, notes: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
        """The bytes of every member's assignment. Our notes follow the user data of a user's own assignor."""
        told = {**self.assignor_user_data, **(notes or {})}
        for member in self.assignor_user_data.keys() & (notes or {}).keys():
            told[member] = attach(self.assignor_user_data[member], told[member])
        columns = self.columns
        bodies = encode_all(
            self.assigned_column, len(columns.members), columns.topics, columns.first, columns.topic_of()
        )
        encoded = {}
        extra = {self.members[m] for m in self.unknown.values()}
        for member, body in zip(columns.members, bodies, strict=True):
            said = told.get(member)
            if member in extra:
                encoded[member] = encode_assignment(Assignment(partitions=self.assignment[member], user_data=said))
            elif said is None:
                encoded[member] = b"".join((body, NO_USER_DATA))
            else:
                encoded[member] = b"".join((body, struct.pack(">i", len(said)), said))
        return encoded

    @cached_property
    def _position(self) -> dict[str, int]:
        return {member: position for position, member in enumerate(self.members)}

    @cached_property
    def _topic_at(self) -> dict[str, int]:
        return {topic: position for position, topic in enumerate(self.columns.topics)}

    def _partition(self, pid: int) -> TopicPartition:
        first = self.columns.first
        topic = int(np.searchsorted(first, pid, side="right")) - 1
        return TopicPartition(self.columns.topics[topic], pid - int(first[topic]))

    def _by_member(self, column: NDArray[np.int32]) -> dict[str, frozenset[TopicPartition]]:
        found: list[list[TopicPartition]] = [[] for _ in self.members]
        pid = 0
        owners = column.tolist()
        for topic, count in zip(self.columns.topics, np.diff(self.columns.first).tolist(), strict=True):
            for partition in range(count):
                if owners[pid] >= 0:
                    found[owners[pid]].append(TopicPartition(topic, partition))
                pid += 1
        return {member: frozenset(held) for member, held in zip(self.members, found, strict=True)}
