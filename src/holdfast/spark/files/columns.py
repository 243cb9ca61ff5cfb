"""Which columns say where a row came from, and that they are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model import HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the three columns that the ledger goes by."""

    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"

    def options(self) -> dict[str, str]:
        return {"topicColumn": self.topic, "partitionColumn": self.partition, "offsetColumn": self.offset}


TYPES: Mapping[str, frozenset[str]] = {
    "topic": frozenset({"string"}),
    "partition": frozenset({"short", "integer", "long"}),
    "offset": frozenset({"integer", "long"}),
}
"""What each may be, in Spark's names of types."""


def parse_columns(options: Mapping[str, str]) -> Columns:
    """Names are case-insensitive, as Spark's are."""
    found = {key.lower(): value for key, value in options.items()}
    return Columns(
        topic=found.get("topiccolumn", "topic"),
        partition=found.get("partitioncolumn", "partition"),
        offset=found.get("offsetcolumn", "offset"),
    )


def check_columns(columns: Columns, types: Mapping[str, str]) -> None:
    """Refuse rows that don't say where they came from. `types` maps the rows' columns to Spark's names of types."""
    for what, allowed in TYPES.items():
        name = getattr(columns, what)
        if name not in types:
            raise HoldfastError(
                "SINK_NEEDS_ORIGIN",
                f"The rows have no column {name!r}: they have {', '.join(sorted(types)) or 'none'}.",
                "Select topic, partition and offset too, or name them by the options topicColumn, partitionColumn and "
                "offsetColumn. Aggregations lose them: write those with holdfast.spark.exactly_once().",
            )
        if types[name] not in allowed:
            raise HoldfastError(
                "SINK_NEEDS_ORIGIN",
                f"The column {name!r} is of type {types[name]}, not {' or '.join(sorted(allowed))}.",
                f"Keep the source's {what} as it is.",
            )
