"""Mutations of watchdogs: rules of our own, broken on purpose. They are listed in `mutations`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from holdfast.group.member import MemberState
from holdfast.group.messages import CommitRequest, OffsetEntry, Request
from holdfast.model import TopicPartition
from holdfast.sim.grounds import WATCHED_GROUND
from holdfast.sim.member import SimMember
from holdfast.sim.mutations.mutation import Mutation, every_member
from holdfast.sim.mutations.patched import Patched


def change_farewell(member: SimMember, change: Callable[[list[Request]], list[Request]]) -> None:
    """Keep the watchdog sound, but change its requests."""
    watchdog = member.watchdog
    if watchdog is None:
        return
    sound = watchdog.requests

    def requests(state: MemberState, noted: Mapping[TopicPartition, int]) -> list[Request]:
        return change(sound(state, noted))

    watchdog.requests = requests  # type: ignore[method-assign]  # a mutation


def watchdog_says_nothing(member: SimMember) -> None:
    """rule: the watchdog does not hear of its member's death, and the group waits for the session timeout."""
    change_farewell(member, lambda _requests: [])


def watchdog_leaves_first(member: SimMember) -> None:
    """rule: the watchdog leaves before it commits, so that the commit is refused."""
    change_farewell(member, lambda requests: requests[::-1])


def watchdog_commits_what_was_read(member: SimMember) -> None:
    """rule: what was handed to the application counts as processed before the application has come back for more."""
    change_farewell(member, lambda requests: [_moved(request, lambda _, at: at + 50) for request in requests])


def watchdog_mixes_slots_up(member: SimMember) -> None:
    """rule: a slot is given to another partition while the note still names the one before."""

    def change(requests: list[Request]) -> list[Request]:
        highest = max((at for request in requests for at in _offsets(request).values()), default=0)
        return [_moved(request, lambda partition, at: highest + partition.partition) for request in requests]

    change_farewell(member, change)


def watchdog_keeps_what_was_given_up(member: SimMember) -> None:
    """rule: positions of partitions that were given up stay noted, and rewind their new owners."""
    noted: dict[TopicPartition, int] = {}
    sound = member.app.close

    def close(partitions: Iterable[TopicPartition], why: str) -> dict[TopicPartition, int]:
        positions = sound(partitions, why)
        noted.update(positions)
        return positions

    def change(requests: list[Request]) -> list[Request]:
        every = {partition: OffsetEntry(at) for partition, at in noted.items()}
        return [
            replace(request, offsets={**every, **request.offsets}) if isinstance(request, CommitRequest) else request
            for request in requests
        ]

    member.app = Patched(member.app, close=close)  # type: ignore[assignment]  # a mutation
    change_farewell(member, change)


def _offsets(request: Request) -> dict[TopicPartition, int]:
    return {p: entry.offset for p, entry in request.offsets.items()} if isinstance(request, CommitRequest) else {}


def _moved(request: Request, move: Callable[[TopicPartition, int], int]) -> Request:
    """The same request, with other offsets if it is a commit."""
    if not isinstance(request, CommitRequest):
        return request
    return replace(request, offsets={p: OffsetEntry(move(p, at)) for p, at in _offsets(request).items()})


WATCHDOGS: tuple[Mutation, ...] = (
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
)
