"""Messages as a view over batches: what is handed out, what is left, and what goes with its partition. No broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from holdfast.client.member.events import end_message, error_message
from holdfast.client.reading.epochs import Epochs
from holdfast.client.reading.message_view import MessageView
from holdfast.model import TopicPartition
from holdfast.records.arrow import schema

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)


def batch(*rows: tuple[TopicPartition, int]) -> pa.RecordBatch:
    """A record for each partition and offset."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    columns: dict[str, Any] = {
        "key": b"k",
        "value": b"v",
        "timestamp": at,
        "timestampType": 0,
        "headers": None,
    }
    listed = [
        {**columns, "topic": where.topic, "partition": where.partition, "offset": offset} for where, offset in rows
    ]
    return pa.RecordBatch.from_pylist(listed, schema=schema(include_headers=True))


def view(*rows: tuple[TopicPartition, int]) -> MessageView:
    made = MessageView()
    made.put(batch(*rows), Epochs())
    return made


def offsets(found: list[ck.Message] | pa.RecordBatch | None) -> list[int]:
    assert found is not None
    if isinstance(found, list):
        return [message.offset() or 0 for message in found]
    numbers: list[Any] = found.column("offset").to_pylist()
    return [int(one) for one in numbers]


def test_rows_come_in_order_as_messages_or_as_a_batch_and_once() -> None:
    seen = view((ORDERS, 0), (ORDERS, 1), (BILLS, 7), (ORDERS, 2))
    seen.put(batch((ORDERS, 3)), Epochs())
    assert len(seen) == 5
    assert offsets(seen.take(2)) == [0, 1]
    assert offsets(seen.take_batch(1, include_headers=True)) == [7]
    assert offsets(seen.take(2)) == [2, 3]
    assert len(seen) == 0
    assert seen.take_batch(1, include_headers=False) is None


def test_what_was_made_and_not_handed_out_is_unread() -> None:
    seen = view((ORDERS, 5), (BILLS, 7), (ORDERS, 6))
    seen.put(batch((BILLS, 8)), Epochs())
    assert seen.unread() == {ORDERS: 5, BILLS: 7}
    seen.take(2)
    assert seen.unread() == {ORDERS: 6, BILLS: 8}


def test_a_partition_takes_its_rows_and_errors_with_it() -> None:
    seen = view((ORDERS, 0), (BILLS, 7), (ORDERS, 1))
    seen.put_error(end_message(ORDERS, 2, 2, None))
    seen.put(batch((ORDERS, 2), (BILLS, 8)), Epochs())
    seen.take(1)
    seen.forget(ORDERS)
    assert len(seen) == 2
    assert seen.unread() == {BILLS: 7}
    assert offsets(seen.take_batch(10, include_headers=False)) == [7]
    assert offsets(seen.take(1)) == [8]


def test_an_error_keeps_its_place_and_a_batch_stops_before_it() -> None:
    seen = view((ORDERS, 0), (ORDERS, 1))
    seen.put_error(error_message(ck.KafkaError(ck.KafkaError._BAD_MSG), ORDERS, 2))
    seen.put_error(end_message(BILLS, 8, 8, None))
    seen.put(batch((ORDERS, 3)), Epochs())
    assert offsets(seen.take_batch(10, include_headers=False)) == [0, 1]
    with pytest.raises(ck.KafkaException) as raised:
        seen.take_batch(10, include_headers=False)
    assert raised.value.args[0].code() == ck.KafkaError._BAD_MSG
    assert offsets(seen.take_batch(10, include_headers=False)) == [3], "the end of a partition is no error for a batch"
