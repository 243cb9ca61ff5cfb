"""What a driver does with its running queries: look at their membership, and drain them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError
from holdfast.spark import door
from holdfast.spark.plans import sources_of, sources_of_others
from holdfast_hook import NAME

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ASK_S = 10.0
DRAIN_S = 300.0
"""A drain waits for the running batch. A batch longer than max.poll.interval.ms (300 s) loses its partitions anyway."""
FIND_S = 30.0
"""How long to wait for the reader of a query that has just started: Spark starts a process for it."""


def report(query: StreamingQuery) -> list[dict[str, Any]]:
    """The membership of each holdfast source of this query: owned, lag, latest, member, generation, rebalances."""
    driver = jvm_pid()
    return [door.ask(driver, reader, "report", timeout_s=ASK_S) for reader in _readers(query, driver)]


def drain(query: StreamingQuery, *, timeout_s: float = DRAIN_S, stop: bool = True) -> None:
    """Hand over every partition while the query goes on working, leave the group, then stop the query.

    The running batch is finished and committed first, so nothing is done twice. With `stop=False` the query goes on
    without partitions. Raises HoldfastError READER_SILENT when the time is up: the query still runs, and the drain goes
    on.
    """
    driver = jvm_pid()
    deadline = time.monotonic() + timeout_s
    for reader in _readers(query, driver):
        door.ask(driver, reader, "drain", timeout_s=max(0.001, deadline - time.monotonic()))
    if stop:
        query.stop()


def _readers(query: StreamingQuery, driver: int) -> list[int]:
    """The process ids of this query's readers. Before its first progress names them, they are known only if no other
    query has a holdfast source."""
    wanted = sources_of(query, NAME)
    if not wanted:
        raise HoldfastError(
            "NO_HOLDFAST_SOURCE",
            f"the query {query.name or query.id} reads nothing from format('holdfast').",
            "There is no membership to look at or to drain: stop it with query.stop().",
        )
    deadline = time.monotonic() + FIND_S
    while True:
        if not query.isActive:
            raise HoldfastError(
                "QUERY_ENDED",
                f"the query {query.name or query.id} has ended, and left its group.",
                "See query.exception(), or start it again.",
            )
        living = door.readers(driver)
        named = [pid for pid in _named(query) if pid in living]
        if len(named) == wanted:
            return named
        if len(living) == wanted and not sources_of_others(query, NAME):
            return living
        if time.monotonic() > deadline:
            raise HoldfastError(
                "READER_UNKNOWN",
                f"of {len(living)} readers of this application none is known to be the query's.",
                "Wait until it has done a batch.",
            )
        time.sleep(0.05)


def _named(query: StreamingQuery) -> list[int]:
    progress = query.lastProgress
    return readers_in(source["latestOffset"] for source in ([] if progress is None else progress["sources"]))


def readers_in(latest_offsets: Iterable[str | None]) -> list[int]:
    """The readers' process ids, sorted, from `latestOffset` of each source in a query's progress, our report."""
    found = []
    for text in latest_offsets:
        try:
            found.append(int(json.loads(text or "")["reader"]))
        except (ValueError, KeyError, TypeError):
            continue  # another kind of source, or one that has not told yet
    return sorted(found)


def jvm_pid() -> int:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise HoldfastError(
            "NO_DRIVER",
            "there is no Spark driver in this process.",
            "Call it where the query was started; through Spark Connect it can't be done.",
        )
    return int(context._jvm.java.lang.ProcessHandle.current().pid())
