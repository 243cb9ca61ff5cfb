"""Mutations of commits: what is committed, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.group.messages import CommitRequest, OffsetEntry
from holdfast.model import TopicPartition
from holdfast.sim.config import GROUP
from holdfast.sim.grounds import CUT_GROUND
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, every_member
from holdfast.sim.mutations.patched import Patched


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

    def commit(offsets: Mapping[TopicPartition, OffsetEntry], *, ahead_of_join: bool = False) -> None:
        for _ in range(101):
            sound(offsets, ahead_of_join=ahead_of_join)

    member.offsets.commit = commit  # type: ignore[method-assign]  # a mutation


COMMITS: tuple[Mutation, ...] = (
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
)
