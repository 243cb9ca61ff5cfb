"""The result of setting or deleting each offset, and one error for all that failed in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.model import ErrorCode, HoldfastError, TopicPartition

if TYPE_CHECKING:
    from holdfast.net.errors import NetError

GROUP_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID.name,
        ErrorCode.ILLEGAL_GENERATION.name,
        ErrorCode.REBALANCE_IN_PROGRESS.name,
        ErrorCode.NON_EMPTY_GROUP.name,
        ErrorCode.STALE_MEMBER_EPOCH.name,
    }
)
"""A coordinator's answers to a commit from outside while the group has members."""


def status(answer: NetError | None) -> str:
    return "Successful" if answer is None else answer.code


def refusals(group: str, refused: Mapping[TopicPartition, NetError], *, of: int, done: str) -> list[HoldfastError]:
    """One error for each code, however many partitions have it."""
    alike: dict[str, list[TopicPartition]] = {}
    for at, error in sorted(refused.items()):
        alike.setdefault(error.code, []).append(at)
    return [
        _refusal(group, refused[places[0]], places, f"{len(places)} of {of} offsets of group {group}", done)
        for code, places in alike.items()
    ]


def _refusal(group: str, error: NetError, places: Iterable[TopicPartition], which: str, done: str) -> HoldfastError:
    from holdfast.net.errors import BrokerError

    if not isinstance(error, BrokerError):
        what = f"{which} were not {done}, or it is not known: {error.what}"
        do = f"Look with `holdfast groups describe {group}`, then do it again: what is right already is left alone."
    elif error.code in GROUP_HAS_MEMBERS:
        what = f"{which} were not {done}: somebody joined it meanwhile."
        do = "Stop its members, then do it again."
    elif error.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        topics = ", ".join(sorted({at.topic for at in places}))
        what = f"{which} were not {done}: its members subscribe to {topics}."
        do = "Stop them, or take the topic out of their subscription, then do it again."
    else:
        what, do = f"{which} were not {done}, see STATUS. The first: {error.what}", error.do
    return HoldfastError(error.code, what, do)
