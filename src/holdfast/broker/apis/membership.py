"""What the APIs of a group's members have in common: translate, ask the coordinator, wait for its answer.

Not an API itself. `wire.groups_served` translates and `groups` asks; this connects them with an exchange.
"""

from __future__ import annotations

from holdfast.broker.exchange import PARKED, Body, Exchange, Result
from holdfast.broker.security.rules import Operation
from holdfast.broker.state import State
from holdfast.group.coordinator.checks import refusal
from holdfast.group.coordinator.requests import AdminAnswer
from holdfast.group.messages import Answer, Request
from holdfast.model import ErrorCode
from holdfast.wire.groups_served import body_of_answer, request_of


def ask(exchange: Exchange, state: State) -> Result:
    """Hand a member's request to the coordinator; the exchange is answered now or later."""
    request = request_of(exchange.frame, client_host=f"/{exchange.client.host}")
    error = state.group_refusal(exchange, Operation.READ, request.group)
    if error is not ErrorCode.NONE:
        return refuse(exchange, error)

    def answered(answer: Answer | AdminAnswer) -> None:
        exchange.resume(lambda: _body(exchange, request, answer))

    question = state.groups.ask(request, answered)
    exchange.on_gone = lambda: state.groups.gone(question)
    return PARKED


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    request = request_of(exchange.frame)
    return _body(exchange, request, refusal(request, error))


def _body(exchange: Exchange, request: Request, answer: Answer | AdminAnswer) -> Body:
    return body_of_answer(request, answer, exchange.version)  # type: ignore[arg-type]  # members get members' answers
