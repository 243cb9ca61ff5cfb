"""Records that are gone before they were read, and what to do about it: one text for each way."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import HoldfastError, TopicPartition

DO = "If that was meant, set failOnDataLoss=false and start again: the query goes on with what there is."


def topics_deleted(topics: Iterable[str]) -> HoldfastError:
    names = ", ".join(sorted(topics))
    return HoldfastError("TOPIC_DELETED", f"the query reads {names}, which does not exist any more.", DO)


def no_such_topics(topics: Iterable[str]) -> HoldfastError:
    return HoldfastError(
        "UNKNOWN_TOPIC",
        f"there is no topic {', '.join(sorted(topics))}.",
        "Check the name, or create it first; with failOnDataLoss=false the query waits for it.",
    )


def log_regressed(partition: TopicPartition, position: int, end: int) -> HoldfastError:
    return HoldfastError(
        "OFFSETS_REGRESSED",
        f"{partition} ends at {end}, and the group is at {position}: the topic was made anew, or its log was cut off.",
        DO,
    )


def records_deleted(partition: TopicPartition, start: int, first: int) -> HoldfastError:
    return HoldfastError(
        "RECORDS_DELETED",
        f"{partition} begins at {first} now, and offsets from {start} on were to be read: retention was faster.",
        f"Raise the topic's retention, or read more often. {DO}",
    )


def end_unreachable(partition: TopicPartition, position: int, end: int) -> HoldfastError:
    return HoldfastError(
        "END_UNREACHABLE",
        f"{partition} has nothing behind {position}, and the batch was planned up to {end}: its log was cut off.",
        DO,
    )
