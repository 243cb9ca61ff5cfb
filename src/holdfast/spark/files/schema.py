"""A sink's columns over time: which schemas are compatible, checked on write and on read.

A job's output may change: columns come and go. One name with two types, or in two spellings, is refused, because no
reader could handle both. The types are Spark's; whether they allow nulls does not matter here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql.types import StructField, StructType

from holdfast.model import HoldfastError
from holdfast.spark.files.layout import SCHEMAS, schema_names
from holdfast.spark.files.sink import schemas
from holdfast.spark.files.store import Store


def type_names(schema: StructType) -> dict[str, str]:
    """Column -> Spark's type name."""
    return {field.name: field.dataType.typeName() for field in schema.fields}


def check_types(store: Store, schema: StructType) -> None:
    """Refuse rows with a column that the sink already has in another type."""
    kept = schemas(store, schema_names(store.names(SCHEMAS)))
    before = [StructType.fromJson(json.loads(text)) for text in kept.values()]
    merged((*before, schema), "Cast it to the type it had, give the new column another name, or write to another path.")


def merged(found: Iterable[StructType], way_out: str) -> StructType:
    """The columns of all schemas, in the order in which they appear."""
    fields: dict[str, StructField] = {}
    for schema in found:
        for field in schema.fields:
            known = fields.setdefault(field.name.lower(), field)
            before, now = known.dataType.simpleString(), field.dataType.simpleString()
            if (known.name, before) != (field.name, now):
                raise HoldfastError(
                    "SCHEMA_CONFLICT",
                    f"This sink has the column {known.name} {before}, and here is {field.name} {now}.",
                    way_out,
                )
    # All nullable: a column may be missing in some file, now or later.
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in fields.values()])
