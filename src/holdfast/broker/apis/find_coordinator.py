"""FindCoordinator, 0 to 6: the first of the advertised brokers is the coordinator of every group.

Version notes: 1 key types and messages · 3 compact · 4 several keys · 5 and 6 for transactions and share groups.
Not implemented: coordinators of transactions and share groups. For a transaction the answer is an error that every
client takes as final: after any other, librdkafka asks again and again.
"""

from __future__ import annotations

from functools import partial

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps, beside
from holdfast.broker.state import State
from holdfast.model import ErrorCode
from holdfast.wire.coordinators import GROUP_KEY, TRANSACTION_KEY, Coordinator, coordinator_keys_of, coordinators_body


def handle(exchange: Exchange, state: State) -> Steps:
    kind, keys = coordinator_keys_of(exchange.frame)
    found = []
    names, _ = yield from by_key(keys, lambda key: key)
    for key in names:
        found.append(_coordinator(exchange, state, kind, key))
        yield PAUSE
    return (yield from beside(len(found), partial(coordinators_body, found, exchange.version)))


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    _, keys = coordinator_keys_of(exchange.frame)
    return coordinators_body([Coordinator(key=key, error=error) for key in keys], exchange.version)


def _coordinator(exchange: Exchange, state: State, kind: int, key: str) -> Coordinator:
    if kind == TRANSACTION_KEY:
        text = "This broker has no transactions."
        return Coordinator(key=key, error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message=text)
    if kind != GROUP_KEY:
        return Coordinator(key=key, error=ErrorCode.INVALID_REQUEST, message="This broker coordinates groups only.")
    error = state.group_refusal(exchange, Operation.DESCRIBE, key)
    if error is not ErrorCode.NONE:
        return Coordinator(key=key, error=error)
    node = state.nodes[0]
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
