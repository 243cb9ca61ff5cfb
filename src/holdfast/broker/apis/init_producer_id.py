"""InitProducerId, 0 to 5: an id for an idempotent producer, never given out twice.

Version notes: 2 compact · 3 the producer's id and epoch so far, which only matter to transactions: without one, a new
id is the answer, as in Kafka · 4 and 5 new errors. Not implemented: transactional ids, which are refused with an error
that clients take as final; 6 (two-phase commit).
"""

from __future__ import annotations

from functools import partial

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.slices import Steps, Until
from holdfast.broker.state import State
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Body | Steps:
    if exchange.body.transactional_id is not None:
        return refuse(exchange, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if state.store.has_producer_id:
        return _given(state.store.next_producer_id())
    return _reserved(state)


def _reserved(state: State) -> Steps:
    """Reserve the next thousand ids on disk, and answer the first of them."""
    return _given((yield Until(partial(state.changes.submit, state.store.next_producer_id))))


def _given(number: int) -> Body:
    return {"producer_id": number, "producer_epoch": 0}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
