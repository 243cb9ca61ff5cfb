"""Errors about records that were gone before they were read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from holdfast.model import HoldfastError, TopicPartition

DO = "If that was meant, set failOnDataLoss=false and start again: the query goes on with what there is."


def tell(lost: HoldfastError, *, fails: bool) -> None:
    """Raise, or only warn, as failOnDataLoss says."""
    if fails:
        raise lost
    warnings.warn(f"{lost.code}: {lost.what} failOnDataLoss is false, so the query goes on.", stacklevel=2)


def topics_recreated(topics: Iterable[str]) -> HoldfastError:
    names = ", ".join(sorted(topics))
    return HoldfastError(
        "TOPIC_RECREATED",
        f"{names} was deleted and recreated since the query read it: its offsets mean other records now.",
        "If that was meant, set failOnDataLoss=false and start again: the new topic is read from its beginning.",
    )


def offsets_lost(group: str, partitions: Iterable[TopicPartition]) -> HoldfastError:
    listed = sorted(partitions)
    names = ", ".join(map(str, listed[:5])) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
    return HoldfastError(
        "GROUP_OFFSETS_LOST",
        f"the group {group} has no offsets any more (they have expired, or were deleted), and the query's checkpoint "
        f"does not know where to go on in {names}: another member read it.",
        "Start that member on its checkpoint: it tells the group what it knows. Or set the offsets with "
        "`kafka-consumer-groups.sh --reset-offsets`; or start on a fresh checkpointLocation, where startingOffsets "
        "counts.",
    )


def topics_deleted(topics: Iterable[str]) -> HoldfastError:
    names = ", ".join(sorted(topics))
    return HoldfastError("TOPIC_DELETED", f"the query reads {names}, which does not exist any more.", DO)


def no_such_topics(topics: Iterable[str], *, streaming: bool, near: str = "") -> HoldfastError:
    """`near`: a suggestion, if there is one."""
    do = f"{near} Check the name, or create it first".lstrip()
    return HoldfastError(
        "UNKNOWN_TOPIC",
        f"there is no topic {', '.join(sorted(topics))}.",
        f"{do}; with failOnDataLoss=false the query waits for it." if streaming else f"{do}.",
    )


def log_regressed(partition: TopicPartition, position: int, end: int) -> HoldfastError:
    return HoldfastError(
        "OFFSETS_REGRESSED",
        f"{partition} ends at {end}, but the group is at {position}: the topic was recreated, or its log truncated.",
        DO,
    )


def records_deleted(partition: TopicPartition, start: int, first: int) -> HoldfastError:
    return HoldfastError(
        "RECORDS_DELETED",
        f"{partition} begins at {first} now, and offsets from {start} on were to be read: retention has deleted them.",
        f"Raise the topic's retention, or read more often. {DO}",
    )


def end_unreachable(partition: TopicPartition, position: int, end: int) -> HoldfastError:
    return HoldfastError(
        "END_UNREACHABLE",
        f"{partition} has nothing after {position}, and the batch was planned up to {end}: its log was truncated.",
        DO,
    )
