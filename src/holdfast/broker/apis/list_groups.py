"""ListGroups, 0 to 5: the groups that the user may see.

Version notes: 3 compact · 4 filter by state, states in the answer · 5 filter by type, of which there is one: classic.
"""

from __future__ import annotations

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation, Resource
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import State
from holdfast.model import ErrorCode

CLASSIC = "classic"


def handle(exchange: Exchange, state: State) -> Steps:
    states = {text.lower() for text in getattr(exchange.body, "states_filter", ())}
    types = {text.lower() for text in getattr(exchange.body, "types_filter", ())}
    if types and CLASSIC not in types:
        return {"groups": []}
    groups = []
    for group in state.groups.list():
        if states and group.state.lower() not in states:
            continue
        if state.may(exchange, Operation.DESCRIBE, Resource.GROUP, group.group):
            groups.append(
                {
                    "group_id": group.group,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state,
                    "group_type": CLASSIC,
                }
            )
        yield PAUSE
    return {"groups": groups}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "groups": []}
