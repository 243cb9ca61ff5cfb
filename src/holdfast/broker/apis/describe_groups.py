"""DescribeGroups, 0 to 6: state, protocol and members of groups.

Version notes: 3 allowed operations · 4 instance ids · 5 compact · 6 GROUP_ID_NOT_FOUND with a message, where earlier
versions show a group that does not exist as Dead (KIP-1043).
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation, Resource
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import NO_OPERATIONS, State
from holdfast.group.coordinator.requests import GroupView
from holdfast.model import ErrorCode

DEAD = "Dead"


def handle(exchange: Exchange, state: State) -> Steps:
    """A group that is named several times is described once. A group that would make the answer too long gets an error,
    and clients ask again for it alone."""
    groups: list[Body] = []
    room = state.limits.max_description_bytes
    names, _ = yield from by_key(exchange.body.groups, lambda name: name)
    for name in names:
        view = state.groups.describe(name)
        size = _size(view)
        if size > room and groups:
            groups.append(_nothing(name, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Ask for fewer groups at a time."))
        else:
            groups.append(_group(exchange, state, name, view))
            room -= size
        yield PAUSE
    return {"groups": groups}


def _size(view: GroupView) -> int:
    """About what a group's description takes on the wire."""
    texts = sum(
        len(member.member_id) + len(member.client_id) + len(member.client_host) + len(member.instance_id or "")
        for member in view.members
    )
    return texts + sum(len(member.metadata) + len(member.assignment) + 32 for member in view.members)


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"groups": [_nothing(name, error) for name in exchange.body.groups]}


def _nothing(name: str, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    state = DEAD if error is ErrorCode.GROUP_ID_NOT_FOUND else ""
    return {"error_code": error, "error_message": message, "group_id": name, "group_state": state, "members": []}


def _group(exchange: Exchange, state: State, name: str, view: GroupView) -> Body:
    error = state.group_refusal(exchange, Operation.DESCRIBE, name)
    if error is not ErrorCode.NONE:
        return _nothing(name, error)
    if view.state == DEAD and exchange.version >= 6:
        return _nothing(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    operations = NO_OPERATIONS
    if getattr(exchange.body, "include_authorized_operations", False):
        operations = state.operations(exchange, Resource.GROUP, name)
    return {**_view(view), "authorized_operations": operations}


def _view(view: GroupView) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": view.group,
        "group_state": view.state,
        "protocol_type": view.protocol_type,
        "protocol_data": view.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in view.members
        ],
    }
