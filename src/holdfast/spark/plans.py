"""A streaming query's plan, read through the driver's JVM: what it reads, and whether it keeps state.

Spark's internals are read here and in `batch_ranges` only. Seen on PySpark 4.2: the analysed plan is a tree of nodes
with `children()`, `isStreaming()` and a class name; a leaf `StreamingRelationV2` has the source's name and options.
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
"""Operators that keep state when what they read is a stream. `limit` does: it counts what it has let through. Of
`subtract` and `intersect` Spark makes an aggregation later."""
JOIN = "Join"
WITH_STATE = "WithState"
"""In the names of all operators with a state of the user's making: mapGroups, transformWithState, and what comes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is looked for."""

    sources: tuple[Mapping[str, str], ...]
    """Options of each streaming source of ours, by lower-case name; one that is used twice counts once."""
    operators: tuple[str, ...]
    """Operators that keep state, sorted."""


def plan_of(frame: DataFrame, source: str) -> Plan:
    """The plan of a frame that is about to be started."""
    with_jvm: Any = frame
    return read_plan(lambda: with_jvm._jdf.queryExecution().analyzed(), source)


def sources_of(query: StreamingQuery, source: str) -> int:
    """How many readers of ours a started query has."""
    started: Any = query
    return len(read_plan(lambda: started._jsq.streamingQuery().analyzedPlan(), source).sources)


def sources_of_others(query: StreamingQuery, source: str) -> int:
    """How many readers of ours the other running queries of this driver have, of whatever session."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    running = session._jsparkSession.sharedState().activeStreamingQueries()  # py4j shows it as a mapping of Python's
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
    """Collects below a node, and tells whether it is a stream. A view does not say so itself: what it reads does."""
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
    """Spark makes one reader of equal relations, as of a frame that is united with itself."""
    found: list[Any] = []
    for leaf in leaves:
        if not any(leaf.equals(other) for other in found):
            found.append(leaf)
    return found


def _options(leaf: Any) -> dict[str, str]:
    entries = leaf.extraOptions().asCaseSensitiveMap()
    return {str(key).lower(): str(entries[key]) for key in entries}
