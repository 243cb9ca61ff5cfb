"""OffsetCommit, 2 to 9: commit offsets.

Version notes: 2 to 4 carry a retention time, which is ignored as in Kafka since 5 · 6 leader epochs · 7 static members
· 8 compact · 9 for KIP-848, whose errors classic groups never get. Not implemented: 10, which names topics by id.
Topics that don't exist, or that the user may not read, are refused one by one, and the rest is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from holdfast.broker.apis.membership import refuse
from holdfast.broker.exchange import PARKED, Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps, beside
from holdfast.broker.state import State
from holdfast.group.coordinator.requests import AdminAnswer
from holdfast.group.messages import Answer, CommitAnswer, CommitRequest
from holdfast.model import ErrorCode, TopicPartition
from holdfast.wire.groups_served import body_of_answer, request_of

__all__ = ["handle", "refuse"]

Refused = Mapping[TopicPartition, ErrorCode]


def handle(exchange: Exchange, state: State) -> Steps:
    items = sum(len(topic.partitions) for topic in exchange.body.topics)
    request = yield from beside(items, partial(request_of, exchange.frame))
    assert isinstance(request, CommitRequest)
    error = state.group_refusal(exchange, Operation.READ, request.group)
    if error is not ErrorCode.NONE:
        return (yield from beside(items, partial(refuse, exchange, error)))
    refused = yield from refusals(exchange, state, request.offsets)
    kept = (yield from beside(items, partial(_without, request, refused))) if refused else request

    def answered(answer: Answer | AdminAnswer) -> None:
        assert isinstance(answer, CommitAnswer)
        exchange.resume(lambda: beside(items, partial(_body, exchange, request, answer, refused)))

    if refused and not kept.offsets:
        return (yield from beside(items, partial(_body, exchange, request, CommitAnswer(), refused)))
    question = state.groups.ask(kept, answered)
    exchange.on_gone = lambda: state.groups.gone(question)
    return PARKED


def _without(request: CommitRequest, refused: Refused) -> CommitRequest:
    return replace(request, offsets={key: entry for key, entry in request.offsets.items() if key not in refused})


def _body(exchange: Exchange, request: CommitRequest, answer: CommitAnswer, refused: Refused) -> Body:
    everything = CommitAnswer(errors={**answer.errors, **refused})
    return body_of_answer(request, everything, exchange.version)


def refusals(exchange: Exchange, state: State, partitions: Iterable[TopicPartition]) -> Steps:
    """Those partitions that the user may not read or that don't exist, each with its error."""
    refused = {}
    for partition in partitions:
        verdict = _verdict(exchange, state, partition)
        if verdict is not ErrorCode.NONE:
            refused[partition] = verdict
        yield PAUSE
    return refused


def _verdict(exchange: Exchange, state: State, partition: TopicPartition) -> ErrorCode:
    refusal = state.topic_refusal(exchange, Operation.READ, partition.topic)
    if refusal is ErrorCode.NONE and not state.partition_exists(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refusal
