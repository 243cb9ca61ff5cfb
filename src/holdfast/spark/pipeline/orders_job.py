"""The demo's job: orders as JSON in, their fields out. It keeps topic, partition and offset for the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "from_json(cast(value as string), 'order long, key string, amount double, time string') as o",
    ).selectExpr("topic", "partition", "offset", "timestamp", "o.order", "o.key as customer", "o.amount")
