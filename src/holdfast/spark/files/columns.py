"""The columns that say which topic, partition and offset a row came from, and the check that rows have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model import HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the three columns that the ledger needs."""

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
"""The types that each may have, under Spark's names."""


def parse_columns(options: Mapping[str, str]) -> Columns:
    """Read the column names from the options. Option names are case-insensitive, as in Spark."""
    found = {key.lower(): value for key, value in options.items()}
    return Columns(
        topic=found.get("topiccolumn", "topic"),
        partition=found.get("partitioncolumn", "partition"),
        offset=found.get("offsetcolumn", "offset"),
    )


def check_columns(columns: Columns, types: Mapping[str, str]) -> None:
    """Refuse rows without these columns. `types` maps the rows' columns to Spark's type names."""
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
