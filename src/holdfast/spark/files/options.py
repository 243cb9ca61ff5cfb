"""The options of `holdfast-files`. One that does not exist is refused, as the source does."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.client.config.known import did_you_mean
from holdfast.model import HoldfastError
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
