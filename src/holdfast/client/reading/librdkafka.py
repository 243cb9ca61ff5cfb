"""Calls to confluent-kafka's consumer, `cimpl.Consumer`: opening it, warming it up, and looking offsets up.

It is librdkafka with a handle around it. We use it only to fetch, in manual-assign mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.config.known import as_config_error
from holdfast.client.member.patterns import is_pattern
from holdfast.client.partitions import confluent_at, confluent_list, first_offsets, name_of, offsets_of
from holdfast.model import TopicPartition

LOOKED_UP = (ck.OFFSET_BEGINNING, ck.OFFSET_END)
"""Symbolic offsets that we look up, because librdkafka must not (`looked_up`)."""

LOOK_UP_S = 1.0
"""Time limit for looking up where partitions begin or end. It takes two milliseconds unless their leaders are gone."""

COMMITTED_S = 30.0
"""Time limit for asking for committed offsets, when our fetcher takes over what librdkafka has not begun yet."""

LOOK_AT = 10_000
"""How many records are taken from librdkafka's queue at a time to find out where "the end" was."""

WARM_S = 0.2
"""Time limit for one look-up at subscribe. On a healthy cluster it takes two milliseconds."""

WARM_SINGLY = 8
"""With more topics than this, or with a pattern, all topics of the cluster are looked up in one request."""


def open_handle(config: Mapping[str, Any], *, logger: Any = None) -> cimpl.Consumer:
    try:
        return cimpl.Consumer(dict(config), logger=logger) if logger is not None else cimpl.Consumer(dict(config))
    except ck.KafkaException as error:
        raise as_config_error(error, config) from None
    except SystemError as error:
        # Without a first token confluent-kafka sets its exception and then destroys the handle. If error_cb is called
        # meanwhile, the exception is lost; and there is always one: ours.
        if not callable(config.get("oauth_cb")):
            raise
        text = "OAuth token not set within 10 seconds timeout: oauth_cb raised, or returned no token"
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError.SASL_AUTHENTICATION_FAILED, text)) from error


def warm(handle: cimpl.Consumer, topics: Sequence[str]) -> None:
    """Let librdkafka look these topics up before they are needed: a topic it does not know costs half a second when it
    is first read.

    To be called by the polling thread: on another one it would wait until that one stops polling.
    """
    one_by_one = len(topics) <= WARM_SINGLY and not any(map(is_pattern, topics))
    with contextlib.suppress(ck.KafkaException):  # not reachable yet: then it is looked up when needed
        for topic in topics if one_by_one else [None]:
            found = handle.list_topics(topic, timeout=WARM_S).topics
            if one_by_one:
                _connect(handle, found)


def _connect(handle: cimpl.Consumer, topics: Mapping[str, Any]) -> None:
    """Ask the leaders something small, so that librdkafka connects to them now and not with the first fetch."""
    by_leader = {
        part.leader: ck.TopicPartition(name, part.id, ck.OFFSET_END)
        for name, topic in topics.items()
        for part in topic.partitions.values()
        if part.leader >= 0
    }
    if by_leader:
        handle.offsets_for_times(list(by_leader.values()), timeout=WARM_S)


def looked_up(handle: cimpl.Consumer, partitions: Iterable[ck.TopicPartition]) -> list[ck.TopicPartition]:
    """The same with numbers in place of "the beginning" and "the end", if the cluster answers in time.

    librdkafka could look them up itself. But if the partition is unassigned during the look-up, librdkafka repeats it
    half a second later, even if the partition was assigned again with another offset meanwhile. One that came back at
    its 300th record would start again at the beginning.
    """
    wanted = list(partitions)
    asked = [confluent_at(name_of(p), p.offset) for p in wanted if p.offset in LOOKED_UP]
    if not asked:
        return wanted
    try:
        answers = handle.offsets_for_times(asked, LOOK_UP_S)  # ListOffsets takes both as special timestamps
    except ck.KafkaException:
        return wanted
    known = offsets_of(p for p in answers if p.error is None and p.offset >= 0)
    return [confluent_at(name_of(p), known.get(name_of(p), p.offset)) if p.offset in LOOKED_UP else p for p in wanted]


def polled(handle: cimpl.Consumer, wait_s: float) -> list[ck.Message]:
    """The next message, if there is one in time."""
    message = handle.poll(wait_s)
    return [] if message is None else [message]


def committed_offsets(handle: cimpl.Consumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The group's committed offsets of these, where there are any."""
    found = handle.committed(confluent_list(partitions), timeout=COMMITTED_S)
    return offsets_of(p for p in found if p.error is None and p.offset >= 0)


def first_queued(handle: cimpl.Consumer, partitions: int) -> dict[TopicPartition, int]:
    """The offset of each partition's first record in librdkafka's queue. Takes records out of the queue until it is
    empty, or `partitions` of them are known."""
    first: dict[TopicPartition, int] = {}
    while len(first) < partitions and (messages := handle.consume(LOOK_AT, 0)):
        first = first_offsets(messages) | first  # what came earlier counts
    return first


def unassign(handle: cimpl.Consumer, partitions: Iterable[TopicPartition]) -> None:
    gone = confluent_list(partitions)
    if gone:
        handle.incremental_unassign(gone)
