"""OffsetDelete, 0: forget committed offsets of topics that the group is not subscribed to."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.broker.apis.offset_commit import Refused, refusals
from holdfast.broker.exchange import PARKED, Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import Steps, beside
from holdfast.broker.state import State
from holdfast.group.coordinator.requests import AdminAnswer, DeleteOffsetsAnswer, DeleteOffsetsRequest
from holdfast.group.messages import Answer
from holdfast.model import ErrorCode, TopicPartition, by_topic


def handle(exchange: Exchange, state: State) -> Steps:
    body = exchange.body
    error = state.group_refusal(exchange, Operation.DELETE, body.group_id)
    if error is not ErrorCode.NONE:
        return refuse(exchange, error)
    items = sum(len(topic.partitions) for topic in body.topics)
    asked = yield from beside(items, partial(_asked, body))
    refused = yield from refusals(exchange, state, asked)

    def answered(answer: Answer | AdminAnswer) -> None:
        assert isinstance(answer, DeleteOffsetsAnswer)
        exchange.resume(lambda: beside(items, partial(_body, answer, refused)))

    wanted = yield from beside(items, lambda: tuple(each for each in asked if each not in refused))
    question = state.groups.ask(DeleteOffsetsRequest(group=body.group_id, partitions=wanted), answered)
    exchange.on_gone = lambda: state.groups.gone(question)
    return PARKED


def _asked(body: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]


def _body(answer: DeleteOffsetsAnswer, refused: Refused) -> Body:
    errors = {} if answer.error is not ErrorCode.NONE else {**answer.errors, **refused}
    return {"error_code": answer.error, "topics": _topics(errors)}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "topics": []}


def _topics(errors: dict[TopicPartition, ErrorCode]) -> list[Any]:
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, "error_code": errors[TopicPartition(topic, number)]} for number in numbers
            ],
        }
        for topic, numbers in by_topic(errors).items()
    ]
