"""LeaveGroup, 0 to 5: members leave, or are removed by an administrator.

Version notes: 3 several members at once, by member or instance id (KIP-345) · 4 compact · 5 a reason each.
The coordinator does the work: see `holdfast.group.coordinator`.
A request may name more members than any group has. The coordinator is asked about some at a time then: to members it is
as if they had left one shortly after the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from holdfast.broker.apis import membership
from holdfast.broker.exchange import Body, Exchange, Result
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import MANY_ITEMS, PAUSE, Steps, beside
from holdfast.broker.state import State
from holdfast.group.messages import LeaveAnswer, Leaver, LeaveRequest
from holdfast.model import ErrorCode
from holdfast.wire.groups_served import body_of_answer, request_of


def handle(exchange: Exchange, state: State) -> Result | Steps:
    items = len(getattr(exchange.body, "members", ()))
    return _in_pieces(exchange, state, items) if items > MANY_ITEMS else membership.ask(exchange, state)


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    """The members are not named in it."""
    assert exchange is not None
    request = LeaveRequest(group=exchange.body.group_id, members=())
    return body_of_answer(request, LeaveAnswer(error=error), exchange.version)


def _in_pieces(exchange: Exchange, state: State, items: int) -> Steps:
    error = state.group_refusal(exchange, Operation.READ, exchange.body.group_id)
    if error is not ErrorCode.NONE:
        return refuse(exchange, error)
    request = yield from beside(items, partial(request_of, exchange.frame))
    assert isinstance(request, LeaveRequest)
    members: list[tuple[Leaver, ErrorCode]] = []
    for first in range(0, items, MANY_ITEMS):
        piece = replace(request, members=request.members[first : first + MANY_ITEMS])
        answer = yield from state.groups.answer_to(piece)
        assert isinstance(answer, LeaveAnswer)
        if answer.error is not ErrorCode.NONE:
            return refuse(exchange, answer.error)
        members += answer.members
        yield PAUSE
    whole = LeaveAnswer(members=tuple(members))
    return (yield from beside(items, partial(body_of_answer, request, whole, exchange.version)))
