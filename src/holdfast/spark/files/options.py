"""The options of `holdfast-files`. One that does not exist is refused, as the source does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.client.config.known import did_you_mean
from holdfast.model import HoldfastError
from holdfast.spark.files.columns import Columns, parse_columns
from holdfast.spark.files.folders import parse_partition_by
from holdfast.spark.files.parquet import COMPRESSIONS
from holdfast.spark.files.store_options import PREFIX

SPELLED = ("topicColumn", "partitionColumn", "offsetColumn", "compression", "partitionBy", "writer")
"""As people write them. Spark hands them over in lower case."""

SPARKS = frozenset({"path", "checkpointlocation", "queryname"})
"""Spark's own, which it hands over together with ours."""


def check_options(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in SPELLED} | SPARKS
    for name in sorted(options):
        if name.lower() not in known and not name.lower().startswith((PREFIX, "__")):
            near = did_you_mean(name, (*SPELLED, "checkpointLocation", "path"))
            raise HoldfastError(
                "INVALID_OPTION",
                f"option {name} is not an option of holdfast-files.",
                near or f"The options are {', '.join(SPELLED)}, and {PREFIX}… for an object store.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a writer was told to write."""

    columns: Columns
    compression: str
    partition_by: tuple[str, ...]
    writer: str
    """This application's name in the ledger, for people."""


def parse_writing(options: Mapping[str, str]) -> Writing:
    """What can be said of a writer's options without Spark and without its rows."""
    check_options(options)
    found = {name.lower(): value for name, value in options.items()}
    compression = str(found.get("compression", "snappy")).lower()
    if compression not in COMPRESSIONS:
        raise HoldfastError(
            "INVALID_OPTION",
            f"option compression is {compression!r}.",
            did_you_mean(compression, COMPRESSIONS) or f"Choose {', '.join(COMPRESSIONS)}.",
        )
    return Writing(
        columns=parse_columns(options),
        compression=compression,
        partition_by=parse_partition_by(found.get("partitionby")),
        writer=str(found.get("writer", "")),
    )
