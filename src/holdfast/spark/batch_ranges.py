"""Which ranges the running micro-batch really reads, found inside `foreachBatch`.

The offset log holds what was planned, but after a restart the source leaves out ranges that it no longer owns. What it
really reads is in the physical plan: the input partitions of its scan are our own pickled `Slice`s. That is internal to
Spark, so all of it is in this module, and a plan that is not recognised is an error, never a guess.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.offsets import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCAN = "MicroBatchScanExec"
ADAPTIVE = "AdaptiveSparkPlanExec"
"""Wraps a plan with a shuffle; also a stream's, unless it keeps state."""
HIDING = ("Adaptive", "QueryStage")
"""Parts of the names of operators that don't show what is below them."""

CACHED = "InMemoryTableScanExec"
"""Reads what `persist` has kept of another plan."""

IN_PLACE = frozenset(
    {
        SCAN,
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "ColumnarToRowExec",
        "DeserializeToObjectExec",
        "EventTimeWatermarkExec",
        "FilterExec",
        "GenerateExec",
        "InputAdapter",
        "MapElementsExec",
        "MapInArrowExec",
        "MapInPandasExec",
        "ProjectExec",
        "RDDScanExec",
        "SerializeFromObjectExec",
        "SubqueryBroadcastExec",
        "WholeStageCodegenExec",
    }
)
"""Operators that keep rows in the task in which they were read, and in that order. `foreachBatch` gets the batch's own
rows as an RDD."""


def batch_ranges(batch: DataFrame) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> [from, to) of the batch that `foreachBatch` is called with; empty if it reads nothing."""
    ranges, _ = ranges_and_topics(batch)
    return ranges


def ranges_and_topics(batch: DataFrame) -> tuple[dict[TopicPartition, tuple[int, int]], dict[str, str]]:
    """The ranges, and the ids of their topics. A topic that was made anew, or is on another cluster, has another id."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it publishes no types
    from pyspark.errors import PySparkException

    try:
        slices = _slices(_execution(batch))
    except (AttributeError, Py4JError, PySparkException) as error:
        raise _unknown(f"Spark answered {type(error).__name__}: {error}") from error
    pieces = [piece for slice_ in slices for piece in slice_.pieces]
    found: dict[TopicPartition, tuple[int, int]] = {}
    for partition, start, end in sorted(pieces):
        first, _ = found.get(partition, (start, end))
        found[partition] = (first, end)
    return found, {name: id_ for slice_ in slices for name, id_ in slice_.topic_ids.items()}


_delivered: ContextVar[Ranges | None] = ContextVar("delivered", default=None)


@contextmanager
def delivering(ranges: Ranges) -> Iterator[None]:
    """Inside, the rows are a stateful query's results of these ranges. After a crash they may reach beyond what the
    running batch reads."""
    token = _delivered.set(ranges)
    try:
        yield
    finally:
        _delivered.reset(token)


def origins(batch: DataFrame) -> Ranges | None:
    """Where the batch's rows can have come from; None if it can't be told, as for streams of other sources."""
    delivered = _delivered.get()
    if delivered is not None:
        return delivered
    try:
        return batch_ranges(batch)
    except HoldfastError:
        return None


def query_of(batch: DataFrame) -> str:
    """The id of the query whose thread calls us: the same after every restart from its checkpoint."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise _unknown("it is not called by a streaming query")
    return str(found)


def running_query(batch: DataFrame) -> Any:
    """The JVM's side of the query that calls us."""
    session: Any = batch.sparkSession
    wanted = query_of(batch)
    # The session of foreachBatch is a clone that does not know its query, so look in the state that sessions share.
    running = session._jsparkSession.sharedState().activeStreamingQueries()
    query = running.get(session._jvm.java.util.UUID.fromString(wanted))
    if query is None:
        raise _unknown(f"the query {wanted} is not among the active ones")
    return query


def _execution(batch: DataFrame) -> Any:
    """The plan that runs now."""
    return running_query(batch).lastExecution().executedPlan()


def _slices(plan: Any) -> list[Any]:
    from holdfast.spark.source import Slice

    found: list[Any] = []
    for leaf in _leaves(plan):
        name = _name(leaf)
        if any(word in name for word in HIDING):
            raise _unknown(f"the plan has a {name}, which hides what it reads")
        if name != SCAN:
            continue
        inputs = leaf.inputPartitions()
        for index in range(inputs.size()):
            # The bytes come from our own source in our own driver, through Spark's memory.
            value = pickle.loads(bytes(inputs.apply(index).pickedPartition()))  # noqa: S301 - see above
            if isinstance(value, Slice):
                found.append(value)
            elif value is not None:
                raise _unknown(f"the query reads from another streaming source as well ({type(value).__name__})")
    return found


def _leaves(node: Any) -> list[Any]:
    """Also those below an adaptive plan, which claims to be a leaf."""
    children = _children(node)
    return [leaf for child in children for leaf in _leaves(child)] if children else [node]


def _children(node: Any) -> list[Any]:
    if _name(node) == ADAPTIVE:
        return [node.inputPlan()]
    found = node.children()
    return [found.apply(number) for number in range(found.size())]


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _unknown(what: str) -> HoldfastError:
    return HoldfastError(
        "BATCH_RANGES_UNKNOWN",
        f"What this batch reads can't be told: {what}.",
        'Use by="batch" only in foreachBatch of a query that reads from format("holdfast") alone; else by="rows".',
    )


def stays_in_place(batch: DataFrame) -> bool:
    """Whether all rows of a partition come out of one task, in the order of their offsets.

    False is always safe: the rows are then sorted. So an operator that is not known gives False. `batch` may be what
    `foreachBatch` was called with, or what the job made of it there.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        plan = _execution(batch)
        pieces = [piece[0] for slice_ in _slices(plan) for piece in slice_.pieces]
        whole = len(pieces) == len(set(pieces))
        return whole and _in_place(plan) and _in_place(batch._jdf.queryExecution().executedPlan())
    except (AttributeError, Py4JError, PySparkException):
        return False


def _in_place(node: Any) -> bool:
    if _name(node) == CACHED:
        return _in_place(node.relation().cachedPlan())
    return _name(node) in IN_PLACE and all(map(_in_place, _children(node)))
