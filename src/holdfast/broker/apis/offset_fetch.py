"""OffsetFetch, 1 to 9: the committed offsets of groups.

Version notes: 2 null asks for every partition, and an error of the whole · 5 leader epochs · 6 compact · 7
require_stable, always so without transactions · 8 several groups · 9 a member's epoch, for KIP-848. Not implemented:
10, which names topics by id. Topics that the user may not see are left out of "every partition", and look as if nothing
had been committed otherwise.
"""

from __future__ import annotations

from functools import partial

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation, Resource
from holdfast.broker.slices import PAUSE, READ, InThread, Steps
from holdfast.broker.state import State
from holdfast.group.messages import FetchOffsetsAnswer, FetchOffsetsRequest
from holdfast.model import ErrorCode
from holdfast.wire.groups_served import offset_fetch_body, offset_fetches_of

MANY_PARTITIONS = 5_000
"""An answer with more of them is built in a thread: a million take two seconds."""


def handle(exchange: Exchange, state: State) -> Steps:
    """A group that is named several times is answered once. A group that would make the answer too long gets an error
    that makes clients ask again."""
    answers: dict[str, tuple[FetchOffsetsRequest, FetchOffsetsAnswer]] = {}
    room = state.limits.max_description_bytes
    for request in offset_fetches_of(exchange.frame):
        if request.group in answers:
            continue
        answer = yield from _answer(exchange, state, request)
        size = sum(32 + len(each.topic) + len(entry.metadata or "") for each, entry in answer.offsets.items())
        if size > room and answers:
            answer = FetchOffsetsAnswer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            room -= size
        answers[request.group] = (request, answer)
        yield PAUSE
    body = partial(offset_fetch_body, list(answers.values()), exchange.version)
    listed = sum(
        len(answer.offsets if asked.partitions is None else asked.partitions) for asked, answer in answers.values()
    )
    return (yield InThread(body, READ)) if listed > MANY_PARTITIONS else body()


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    requests = offset_fetches_of(exchange.frame)
    return offset_fetch_body([(request, FetchOffsetsAnswer(error=error)) for request in requests], exchange.version)


def _answer(exchange: Exchange, state: State, request: FetchOffsetsRequest) -> Steps:
    error = state.group_refusal(exchange, Operation.DESCRIBE, request.group)
    if error is not ErrorCode.NONE:
        return FetchOffsetsAnswer(error=error)
    answer = yield from state.groups.answer_to(request)
    assert isinstance(answer, FetchOffsetsAnswer)
    visible = {
        partition: entry
        for partition, entry in answer.offsets.items()
        if state.may(exchange, Operation.DESCRIBE, Resource.TOPIC, partition.topic)
    }
    return FetchOffsetsAnswer(error=answer.error, offsets=visible)
