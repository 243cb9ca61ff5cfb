"""Fetch answers as the planner's values: the only place where a Fetch answer's errors are read."""

from __future__ import annotations

from holdfast.fetch.values import Answer, Came, Cut, Damaged, Diverged, LeftOut, Nothing, Refused, Unanswered
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.flow_values import Fetched
from holdfast.net.flows import Flow
from holdfast.net.metadata import ClusterInfo
from holdfast.records.batch import Unreadable, iter_headers
from holdfast.wire.codec import error_code
from holdfast.wire.fetch import FetchedPartition, FetchRequest, FetchResponse


def by_partition(request: FetchRequest, response: FetchResponse) -> dict[TopicPartition, FetchedPartition]:
    """What was answered for each partition. Topic ids are matched with the request: metadata may have changed since."""
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
    """Why a leader could not be looked up."""
    if isinstance(error, BrokerError):
        return Refused(code=error.error, error=error, passes=error.retriable)
    return unanswered(error)


def not_placed(error: NetError | None) -> Answer:
    """Why a start offset could not be looked up; None: the answer left it out. OFFSET_OUT_OF_RANGE can't mean here what
    it means in a Fetch answer: no offset was named."""
    if error is None:
        return LeftOut()
    out_of_range = isinstance(error, BrokerError) and error.error is ErrorCode.OFFSET_OUT_OF_RANGE
    return unanswered(error) if out_of_range else not_led(error)


def without_records(partition: TopicPartition, one: FetchedPartition | None, whole: int) -> Answer | None:
    """What an answer says about a partition for which it has no records; None if it has some.

    `whole` is the error of the whole answer: from version 13 on, a broker that refuses a request names no partition.
    """
    number = whole if one is None or not one.error else one.error
    if number:
        return refused(partition, error_code(number))
    if one is None:
        return LeftOut()
    if one.diverged is not None:
        return Diverged(*one.diverged)
    if one.records:
        return None
    return Nothing(
        high_watermark=one.high_watermark,
        last_stable=one.last_stable_offset,
        preferred=one.preferred_read_replica,
    )


def no_such_broker(node: int) -> NetError:
    what = f"Broker {node}, which the leader named to read from, is not in the cluster's metadata."
    return NetError("BROKER_UNKNOWN", what, "It may be restarting; the leader is read meanwhile.", retriable=True)


def no_leader(info: ClusterInfo, partition: TopicPartition) -> Answer:
    """Why a partition has no leader, as far as the metadata tells."""
    topic = info.topics.get(partition.topic)
    if topic is None:
        what = f"{partition} can't be read: there is no such topic."
        return refused(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    if topic.error is ErrorCode.NONE and partition.partition not in topic.partitions:
        what = f"{partition} can't be read: the topic has {len(topic.partitions)} partitions."
        return refused(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    return refused(partition, topic.error or ErrorCode.LEADER_NOT_AVAILABLE)


def arrived(flow: Flow, one: FetchedPartition, offset: int) -> tuple[Answer, Fetched | None]:
    """What came, with the offset to go on from; or what is wrong with it."""
    (records,) = one.records
    assert isinstance(records, memoryview | bytes)
    next_offset, rows = offset, 0
    epochs: list[tuple[int, int]] = []
    try:
        for header in iter_headers(records):
            if not epochs or epochs[-1][1] != header.leader_epoch:
                epochs.append((header.base_offset, header.leader_epoch))
            next_offset = max(next_offset, header.next_offset)
            rows += header.record_count
    except HoldfastError as error:
        if next_offset == offset:
            return Damaged(Unreadable(error, flow.partition, offset)), None
    if next_offset == offset:
        return Cut(), None
    return Came(rows), Fetched(records, offset, next_offset, rows, one.aborted, flow.era, tuple(epochs))
