"""DeleteGroups, 0 to 2: forget groups that have no members, with their offsets.

Version notes: 2 compact.
"""

from __future__ import annotations

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import State
from holdfast.group.coordinator.requests import DeleteGroupAnswer, DeleteGroupRequest
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Steps:
    results = []
    names, _ = yield from by_key(exchange.body.groups_names, lambda name: name)
    for name in names:
        results.append({"group_id": name, "error_code": (yield from _delete(exchange, state, name))})
        yield PAUSE
    return {"results": results}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"results": [{"group_id": name, "error_code": error} for name in exchange.body.groups_names]}


def _delete(exchange: Exchange, state: State, name: str) -> Steps:
    error = state.group_refusal(exchange, Operation.DELETE, name)
    if error is not ErrorCode.NONE:
        return error
    answer = yield from state.groups.answer_to(DeleteGroupRequest(group=name))
    assert isinstance(answer, DeleteGroupAnswer)
    return answer.error
