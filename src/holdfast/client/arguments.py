"""Checks of what applications pass to the consumer. Mistakes raise the same exceptions as in confluent-kafka."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import confluent_kafka as ck

from holdfast.client.errors import refused_subscription
from holdfast.client.member.patterns import check, is_pattern

MOST_MESSAGES = 1_000_000
"""Most messages of one `consume`, as in confluent-kafka."""


def topics_of(topics: Iterable[Any]) -> list[str]:
    """Names to subscribe to; one that starts with ^ is a pattern. Items are converted to text. Duplicates and empty
    names are refused."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError("expected list of topic unicode strings")
    names = [str(topic) for topic in topics]
    if not names:
        raise refused_subscription("the list of topics is empty: call unsubscribe() to stop reading")
    if not all(names):
        raise refused_subscription("a topic's name is empty")
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise refused_subscription(f"named twice: {', '.join(twice)}")
    for pattern in filter(is_pattern, names):
        try:
            check(pattern)
        except ValueError as error:
            raise refused_subscription(str(error)) from None
    return names


def partitions_of(partitions: Iterable[Any]) -> list[ck.TopicPartition]:
    """A list of partitions; a tuple is accepted too."""
    if not isinstance(partitions, list | tuple):
        raise TypeError("requires list of TopicPartition")
    for partition in partitions:
        if not isinstance(partition, ck.TopicPartition):
            raise TypeError("expected cimpl.TopicPartition")
    return list(partitions)


def message_of(message: Any, offsets: Any) -> ck.Message | None:
    """The record whose offset is meant, or None if offsets are listed. Both at once are refused."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None and not isinstance(message, ck.Message):
        raise TypeError("expected confluent_kafka.cimpl.Message")
    return message


def count_of(num_messages: Any) -> int:
    """How many messages `consume` may return. confluent-kafka takes the number modulo 2**32, so that `2**40` means none
    there; here it is refused like any other number that is too large."""
    count = operator.index(num_messages)  # raises TypeError unless it is a whole number
    if not 0 <= count <= MOST_MESSAGES:
        raise ValueError(f"num_messages must be between 0 and {MOST_MESSAGES} (1M)")
    return count


def asynchronous_of(asynchronous: bool, more: dict[str, Any]) -> bool:
    """Whether the commit is asynchronous. `async` is confluent-kafka's old name for it, a keyword in today's Python."""
    old = more.pop("async", None)
    if more:
        raise TypeError(f"{next(iter(more))!r} is an invalid keyword argument for this function")
    return asynchronous if old is None else bool(old)
