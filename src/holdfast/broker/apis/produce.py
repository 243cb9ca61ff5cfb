"""Produce, 3 to 13: record batches are checked, stamped and appended as they came.

Version notes: 5 log start offset · 8 a message with an error · 9 compact · 13 topics by id. 0 to 2 carry record formats
that Kafka 4 dropped too; they are advertised and not served (see `apis`).
acks=1 and acks=all are the same here: an answer means that a killed process loses nothing. acks=0 has no answer.
Not implemented: transactions.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.broker.exchange import PARKED, SILENT, Body, Exchange, Parts, Result
from holdfast.broker.security.rules import Operation
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode
from holdfast.wire.api import Api
from holdfast.wire.frames import RequestHeader
from holdfast.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    decode_produce_request,
    encode_produce_response,
)

_ACKS = (-1, 0, 1)


def decode(frame: memoryview, header: RequestHeader, api: Api) -> ProduceRequest:
    return decode_produce_request(frame, header)


def handle(exchange: Exchange, state: State) -> Result:
    request: ProduceRequest = exchange.body
    if request.acks not in _ACKS:
        return refuse(exchange, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return refuse(exchange, ErrorCode.INVALID_REQUEST)
    topics = tuple(_topic(exchange, state, topic) for topic in request.topics)
    if not state.flusher.needed:
        _wake(state, request, topics)
        return _answer(exchange, topics)

    def synced(error: StorageError | None) -> None:
        if error is None:
            _wake(state, request, topics)
            exchange.resume(lambda: _answer(exchange, topics))
        else:
            exchange.resume(lambda: _answer(exchange, _not_synced(topics, error)))

    state.flusher.after_sync(synced)
    return PARKED


def _answer(exchange: Exchange, topics: tuple[ProducedTopic, ...]) -> Result:
    return SILENT if exchange.body.acks == 0 else _encoded(exchange, ProduceResponse(topics=topics))


def _not_synced(topics: tuple[ProducedTopic, ...], error: StorageError) -> tuple[ProducedTopic, ...]:
    """What was refused before keeps its reason; what was appended is not acknowledged."""
    return tuple(
        replace(
            topic,
            partitions=tuple(
                each
                if each.error
                else ProducedPartition(partition=each.partition, error=error.error, error_message=error.what)
                for each in topic.partitions
            ),
        )
        for topic in topics
    )


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    request: ProduceRequest = exchange.body
    topics = tuple(
        ProducedTopic(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=tuple(ProducedPartition(partition=each.partition, error=error) for each in topic.partitions),
        )
        for topic in request.topics
    )
    return _encoded(exchange, ProduceResponse(topics=topics))


def _encoded(exchange: Exchange, response: ProduceResponse) -> Parts:
    return Parts((encode_produce_response(exchange.version, exchange.frame.correlation_id, response),))


def _topic(exchange: Exchange, state: State, asked: ProduceTopic) -> ProducedTopic:
    topic, error = state.find_topic(exchange, Operation.WRITE, asked.topic, asked.topic_id)
    if topic is None:
        produced = tuple(ProducedPartition(partition=each.partition, error=error) for each in asked.partitions)
    else:
        produced = tuple(_append(state, topic.name, each) for each in asked.partitions)
    return ProducedTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=produced)


def _append(state: State, topic: str, asked: ProducePartition) -> ProducedPartition:
    try:
        appended = state.store.log(topic, asked.partition).append(asked.records or b"", commit=False)
    except StorageError as error:
        return ProducedPartition(partition=asked.partition, error=error.error, error_message=error.what)
    return ProducedPartition(
        partition=asked.partition,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


def _wake(state: State, request: ProduceRequest, topics: tuple[ProducedTopic, ...]) -> None:
    """Tell waiting fetches, once everything is durable."""
    for asked, produced in zip(request.topics, topics, strict=True):
        topic = state.topic(asked.topic, asked.topic_id)
        for wanted, answer in zip(asked.partitions, produced.partitions, strict=True):
            if topic is not None and answer.error == 0:
                state.waiting.appended((topic.topic_id, wanted.partition), len(wanted.records or b""))
