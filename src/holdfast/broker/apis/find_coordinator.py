"""FindCoordinator, 0 to 6: the first of the advertised brokers looks after every group.

Version notes: 1 key types and messages · 3 compact · 4 several keys · 5 and 6 for transactions and share groups.
Not implemented: coordinators of transactions and share groups; the answer says so, and clients give up at once.
"""

from __future__ import annotations

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.state import State
from holdfast.model import ErrorCode
from holdfast.wire.coordinators import GROUP_KEY, Coordinator, coordinator_keys_of, coordinators_body


def handle(exchange: Exchange, state: State) -> Body:
    kind, keys = coordinator_keys_of(exchange.frame)
    if not keys:
        return coordinators_body([], exchange.version)
    return coordinators_body([_coordinator(exchange, state, kind, key) for key in keys], exchange.version)


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    _, keys = coordinator_keys_of(exchange.frame)
    return coordinators_body([Coordinator(key=key, error=error) for key in keys], exchange.version)


def _coordinator(exchange: Exchange, state: State, kind: int, key: str) -> Coordinator:
    if kind != GROUP_KEY:
        text = "This broker has neither transactions nor share groups."
        return Coordinator(key=key, error=ErrorCode.INVALID_REQUEST, message=text)
    error = state.group_refusal(exchange, Operation.DESCRIBE, key)
    if error is not ErrorCode.NONE:
        return Coordinator(key=key, error=error)
    node = state.nodes[0]
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
