"""A streaming query's plan, read through the driver's JVM: what it reads, and whether it keeps state.

Spark's plans are read only here and in `batch_ranges`. On PySpark 4.2 the analysed plan is a tree of nodes with
`children()`, `isStreaming()` and a class name; a leaf `StreamingRelationV2` has the source's name and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

RELATION = "StreamingRelationV2"
KEEPS_STATE = frozenset(
    {"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Except", "GlobalLimit", "Intersect"}
)
"""Operators that keep state on a stream. `limit` does, because it counts rows. `subtract` and `intersect` become
aggregations later."""
JOIN = "Join"
WITH_STATE = "WithState"
"""Part of the names of all operators with user-defined state: mapGroups, transformWithState, and future ones."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What we need to know of a plan."""

    sources: tuple[Mapping[str, str], ...]
    """The options of each of our streaming sources, by lower-case name. A source that is used twice counts once."""
    operators: tuple[str, ...]
    """Operators that keep state, sorted."""


def plan_of(frame: DataFrame, source: str) -> Plan:
    """The plan of a frame that is about to be started."""
    with_jvm: Any = frame
    return read_plan(lambda: with_jvm._jdf.queryExecution().analyzed(), source)


def sources_of(query: StreamingQuery, source: str) -> int:
    """How many of our readers a started query has."""
    started: Any = query
    return len(read_plan(lambda: started._jsq.streamingQuery().analyzedPlan(), source).sources)


def sources_of_others(query: StreamingQuery, source: str) -> int:
    """How many of our readers the driver's other running queries have, in all sessions."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    running = session._jsparkSession.sharedState().activeStreamingQueries()  # a Python mapping, thanks to py4j
    others = [one for one in running.values() if one is not None and one.id().toString() != str(query.id)]
    return sum(len(read_plan(other.analyzedPlan, source).sources) for other in others)


def read_plan(tree: Callable[[], Any], source: str) -> Plan:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it publishes no types
    from pyspark.errors import PySparkException

    try:
        leaves: list[Any] = []
        operators: set[str] = set()
        _walk(tree(), leaves, operators)
        ours = _distinct([leaf for leaf in leaves if str(leaf.sourceName()).lower() == source])
        return Plan(sources=tuple(map(_options, ours)), operators=tuple(sorted(operators)))
    except (AttributeError, Py4JError, PySparkException) as error:
        raise HoldfastError(
            "PLAN_UNREADABLE",
            f"the query's plan can't be looked at: Spark answered {type(error).__name__}: {error}.",
            "Report it with the version of Spark, and use PySpark 4.2 until then: this was made for it.",
        ) from error


def _walk(node: Any, leaves: list[Any], operators: set[str]) -> bool:
    """Collect leaves and operators below a node; returns whether it is a stream. For a view, its children decide."""
    name = str(node.getClass().getSimpleName())
    found = node.children()
    below = [_walk(found.apply(number), leaves, operators) for number in range(found.size())]
    streaming = any(below) or bool(node.isStreaming())
    if name == RELATION:
        leaves.append(node)
    if streaming and (name in KEEPS_STATE or WITH_STATE in name or (name == JOIN and all(below))):
        operators.add(name)
    return streaming


def _distinct(leaves: list[Any]) -> list[Any]:
    """Spark makes one reader for equal relations, for example of a frame in a union with itself."""
    found: list[Any] = []
    for leaf in leaves:
        if not any(leaf.equals(other) for other in found):
            found.append(leaf)
    return found


def _options(leaf: Any) -> dict[str, str]:
    entries = leaf.extraOptions().asCaseSensitiveMap()
    return {str(key).lower(): str(entries[key]) for key in entries}
