"""Fetch answers in the planner's words: the only place where a Fetch answer's errors are read."""

from __future__ import annotations

from holdfast.fetch.values import Answer, LeftOut, Nothing, Refused, Unanswered
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.errors import BrokerError, NetError
from holdfast.wire.codec import error_code
from holdfast.wire.fetch import FetchedPartition, FetchRequest, FetchResponse


def by_partition(request: FetchRequest, response: FetchResponse) -> dict[TopicPartition, FetchedPartition]:
    """What was answered for each partition. Ids are read by what was asked: metadata may have changed meanwhile."""
    names = {asked.topic_id: asked.topic for asked in request.topics}
    return {
        TopicPartition(topic.topic or names.get(topic.topic_id, ""), one.partition): one
        for topic in response.topics
        for one in topic.partitions
    }


def refused(partition: TopicPartition, code: ErrorCode, what: str = "") -> Refused:
    error = BrokerError(code, what or f"{partition} can't be read.")
    return Refused(code=code, error=error, passes=error.retriable)


def unanswered(error: NetError) -> Unanswered:
    return Unanswered(error=error, passes=error.retriable)


def not_led(error: NetError) -> Answer:
    """A leader that could not be looked up: why, if a broker said so."""
    if isinstance(error, BrokerError):
        return Refused(code=error.error, error=error, passes=error.retriable)
    return unanswered(error)


def without_records(partition: TopicPartition, one: FetchedPartition | None, whole: int) -> Answer | None:
    """What an answer says about a partition for which it has no records; None if it has some.

    `whole` is the error of the whole answer: from version 13 on a broker that refuses a request names no partition.
    """
    number = whole if one is None or not one.error else one.error
    if number:
        return refused(partition, error_code(number))
    if one is None:
        return LeftOut()
    if one.records:
        return None
    return Nothing(
        high_watermark=one.high_watermark,
        last_stable=one.last_stable_offset,
        preferred=one.preferred_read_replica,
    )
