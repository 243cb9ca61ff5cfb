"""A sink's columns over time: which may come together, told when it is written and when it is read.

A job's output may change: columns come and go. One name with two types, or in two spellings, is refused, because
nobody could read both. The types are Spark's; whether nulls are allowed inside them does not matter here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql.types import StructField, StructType

from holdfast.model import HoldfastError
from holdfast.spark.files.layout import SCHEMAS
from holdfast.spark.files.sink import schemas
from holdfast.spark.files.store import Store


def type_names(schema: StructType) -> dict[str, str]:
    """Column -> Spark's name of its type."""
    return {field.name: field.dataType.typeName() for field in schema.fields}


def check_types(store: Store, schema: StructType) -> None:
    """Refuse rows whose columns have other types than the sink has them in already."""
    names = [name.removesuffix(".json") for name in store.names(SCHEMAS)]
    before = [StructType.fromJson(json.loads(text)) for text in schemas(store, names).values()]
    merged((*before, schema), "Cast it to the type it had, give the new column another name, or write to another path.")


def merged(found: Iterable[StructType], way_out: str) -> StructType:
    """The columns of all, in the order they came."""
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
    # A column that some file lacks, or may lack one day, is null there.
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in fields.values()])
