"""InitProducerId, 0 to 5: an id for an idempotent producer, never given out twice.

Version notes: 2 compact · 3 the producer's id and epoch so far, which only matter to transactions: without one, a new
id is the answer, as in Kafka · 4 and 5 new errors. Not implemented: transactional ids; 6 (two-phase commit).
"""

from __future__ import annotations

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.state import State
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Body:
    if exchange.body.transactional_id is not None:
        return refuse(exchange, ErrorCode.INVALID_REQUEST)
    return {"producer_id": state.store.next_producer_id(), "producer_epoch": 0}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
