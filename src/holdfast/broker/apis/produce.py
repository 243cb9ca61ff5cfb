"""Produce, 3 to 13: record batches are checked, stamped and appended as they came.

Version notes: 5 log start offset · 8 a message with an error · 9 compact · 13 topics by id. 0 to 2 carry record formats
that Kafka 4 dropped too; they are advertised and not served (see `apis`).
acks=1 and acks=all are the same here: an answer means that a killed process loses nothing. acks=0 has no answer; if
something can't be appended, the connection is closed instead, as in Kafka: it is the only sign there is.
Not implemented: transactions. A producer that names one is told at once, with an error that clients take as final.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.broker.batch_check import inspect, is_batch, is_transactional
from holdfast.broker.exchange import PARKED, SILENT, Body, Exchange, Parts, Result
from holdfast.broker.overtaking import Place
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.sync import Failures
from holdfast.broker.storage.topics import TOPICS_FOLDER, topic_folder
from holdfast.model import ErrorCode
from holdfast.wire.api import Api
from holdfast.wire.codec import error_code
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


def handle(exchange: Exchange, state: State) -> Steps:
    request: ProduceRequest = exchange.body
    if request.transactional_id is not None or _has_transactions(request):
        return refuse(exchange, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.acks not in _ACKS:
        return refuse(exchange, ErrorCode.INVALID_REQUIRED_ACKS)
    done = []
    for topic in request.topics:
        done.append((yield from _topic(exchange, state, topic)))
    topics = tuple(done)
    if not state.flusher.needed:
        _wake(state, request, topics)
        return _answer(exchange, topics)

    def after_sync(failures: Failures) -> None:
        synced = _after(failures, state, topics) if failures else topics
        _wake(state, request, synced)
        exchange.resume(lambda: _answer(exchange, synced))

    state.flusher.after_sync(after_sync)
    return PARKED


def _has_transactions(request: ProduceRequest) -> bool:
    return any(is_transactional(each.records or b"") for topic in request.topics for each in topic.partitions)


def _answer(exchange: Exchange, topics: tuple[ProducedTopic, ...]) -> Result:
    if exchange.body.acks != 0:
        return _encoded(exchange, ProduceResponse(topics=topics))
    wrong = next((each for topic in topics for each in topic.partitions if each.error), None)
    if wrong is not None:
        exchange.client.close(f"a produce with acks=0 failed: {error_code(wrong.error).name}")
    return SILENT


def _after(failures: Failures, state: State, topics: tuple[ProducedTopic, ...]) -> tuple[ProducedTopic, ...]:
    """The answers after a sync that failed for some files: appends to those are refused. The other appends are on disk
    and stay acknowledged: if refused, they would be sent again and stored twice."""
    return tuple(
        replace(
            each,
            partitions=tuple(_or_refused(one, failures.of(_folder(state, each, one))) for one in each.partitions),
        )
        for each in topics
    )


def _folder(state: State, produced: ProducedTopic, partition: ProducedPartition) -> str:
    """Where the records were written. A topic that was deleted meanwhile has none any more: then any failure counts."""
    topic = state.topic(produced.topic, produced.topic_id)
    # It ends with a slash, or partition 1 would be refused for what happened to partition 10.
    return f"{TOPICS_FOLDER}/" if topic is None else f"{topic_folder(topic)}/{partition.partition}/"


def _or_refused(produced: ProducedPartition, failure: StorageError | None) -> ProducedPartition:
    if produced.error or failure is None:
        return produced
    return ProducedPartition(partition=produced.partition, error=failure.error, error_message=failure.what)


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


def refused(exchange: Exchange, state: State, error: ErrorCode) -> None:
    """None of its batches was looked at."""
    for topic in exchange.body.topics:
        for each in topic.partitions:
            state.overtaking.refused(_place(topic, each), each.records or b"", error)


def _place(topic: ProduceTopic, partition: ProducePartition) -> Place:
    return (topic.topic if topic.topic_id is None else topic.topic_id, partition.partition)


def _encoded(exchange: Exchange, response: ProduceResponse) -> Parts:
    return Parts((encode_produce_response(exchange.version, exchange.frame.correlation_id, response),))


def _topic(exchange: Exchange, state: State, asked: ProduceTopic) -> Steps:
    topic, error = state.find_topic(exchange, Operation.WRITE, asked.topic, asked.topic_id)
    if topic is None:
        produced = tuple(ProducedPartition(partition=each.partition, error=error) for each in asked.partitions)
        for each in asked.partitions:
            state.overtaking.refused(_place(asked, each), each.records or b"", error)
    else:
        appended: list[ProducedPartition] = []
        for each in asked.partitions:
            if appended:
                yield PAUSE
            appended.append((yield from _append(state, topic.name, each, _place(asked, each))))
        produced = tuple(appended)
    return ProducedTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=produced)


def _append(state: State, topic: str, asked: ProducePartition, place: Place) -> Steps:
    records = asked.records or b""
    log: Log | None = None
    try:
        log = state.store.log(topic, asked.partition)
        yield from inspect(records, state.compiled, max_bytes=log.config.max_message_bytes)
        # Looked up again: the topic may be gone by now.
        log = state.store.log(topic, asked.partition)
        state.overtaking.check(place, records, log.producers)
        appended = log.append(records, commit=False)
        state.overtaking.taken(place, records)
    except StorageError as error:
        state.storage_log.tell(error)
        state.overtaking.refused(place, records, error.error)
        # As in Kafka: the answer to a batch that is refused says where the log starts.
        start = log.log_start_offset if log is not None and is_batch(records) else -1
        return ProducedPartition(
            partition=asked.partition, error=error.error, error_message=error.what, log_start_offset=start
        )
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
