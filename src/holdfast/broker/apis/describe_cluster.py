"""DescribeCluster, 0 to 2: the brokers and the cluster's id.

Version notes: 1 endpoint types, of which we have brokers · 2 fenced brokers, of which there are none.
"""

from __future__ import annotations

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Resource
from holdfast.broker.state import NO_OPERATIONS, State
from holdfast.model import ErrorCode

BROKERS = 1


def handle(exchange: Exchange, state: State) -> Body:
    if getattr(exchange.body, "endpoint_type", BROKERS) != BROKERS:
        return refuse(exchange, ErrorCode.INVALID_REQUEST)
    operations = NO_OPERATIONS
    if exchange.body.include_cluster_authorized_operations:
        operations = state.operations(exchange, Resource.CLUSTER, "")
    return {
        "cluster_id": state.cluster_id,
        "controller_id": state.nodes[0].node_id,
        "brokers": [
            {"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack} for node in state.nodes
        ],
        "cluster_authorized_operations": operations,
    }


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "brokers": []}
