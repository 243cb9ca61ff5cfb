"""Members of one group that compute windows, totals and distinct events, and what their sinks say."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.parquet as pq
from state_events import Events, as_totals, as_windows, parsed

import holdfast.spark
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import committed_files
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.store import open_store
from holdfast.spark.state.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WHAT = ("windows", "totals", "distinct")
LIMIT_S = 180.0
TOPIC = "orders"


def write(rows: DataFrame, batch_id: int, folder: Path, name: str) -> None:
    """The three results of a batch, each with a state and a sink of its own."""
    agg: dict[str, Any] = {"n": "count", "s": ("sum", "n")}
    rows.persist()

    def on(what: str) -> Any:
        return holdfast.spark.stateful(rows, state=str(folder / "state" / what), writer=name)

    try:
        windows = on("windows").window("t", size="10 seconds", watermark="5 seconds", by=["k"], agg=agg)
        windows.write_batch(str(folder / "windows"), batch_id)
        on("totals").aggregate(by=["k"], agg=agg).write_batch(str(folder / "totals"), batch_id)
        distinct = on("distinct").drop_duplicates(["id"], time="t", watermark="5 seconds")
        distinct.write_batch(str(folder / "distinct"), batch_id)
    finally:
        rows.unpersist()


class App:
    """One member, in the test's own Spark."""

    options: ClassVar[dict[str, str]] = {}
    """Of the stream, beside those that all have."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, name: str, limit: int = 300) -> None:
        self._folder, self.name = folder, name
        options = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": "g", "subscribe": TOPIC}
        options |= {"startingOffsets": "earliest", "kafka.holdfast.share": "true", "maxOffsetsPerTrigger": str(limit)}
        options |= {"kafka.heartbeat.interval.ms": "300", **self.options}
        rows = parsed(spark.readStream.format("holdfast").options(**options).load())
        self._writer = rows.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        self.query: StreamingQuery
        self.start()

    def start(self) -> None:
        """The first time, and again from its checkpoint."""
        self.query = self._writer.foreachBatch(self._write).start()

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        write(rows, batch_id, self._folder, self.name)

    def owned(self) -> int:
        try:
            return sum(len(found) for told in holdfast.spark.report(self.query) for found in told["owned"].values())
        except HoldfastError:
            return 0  # it has no reader yet

    def drain(self) -> None:
        holdfast.spark.drain(self.query)

    def kill_reader(self) -> None:
        """kill -9 of the process that is the member; the query fails of it."""
        with contextlib.suppress(HoldfastError, ProcessLookupError):
            for told in holdfast.spark.report(self.query):
                os.kill(told["reader"], signal.SIGKILL)


def wait(holds: Callable[[], bool], *apps: App) -> None:
    """Until it holds; a query that ends meanwhile fails the test."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        for app in apps:
            assert app.query.isActive, app.query.exception()
        assert time.monotonic() < deadline, [app.query.lastProgress for app in apps]
        time.sleep(0.05)


def stands(folder: Path, what: str, partitions: int) -> dict[int, int]:
    """Up to where the state of each partition reaches."""
    store = open_store(str(folder / "state" / what))
    tips = {number: Chain(store, TopicPartition(TOPIC, number)).tip() for number in range(partitions)}
    return {number: tip.end for number, tip in tips.items() if tip is not None}


def all_done(folder: Path, events: Events) -> bool:
    ends: dict[int, int] = {}
    for event in events.made:
        ends[event.partition] = ends.get(event.partition, 0) + 1
    return all(stands(folder, what, events.partitions) == ends and _delivered(folder, what, ends) for what in WHAT)


def _delivered(folder: Path, what: str, ends: dict[int, int]) -> bool:
    """Whether the sink has what the last entries say; it comes a moment later than the entry."""
    state, sink = open_store(str(folder / "state" / what)), open_store(str(folder / what))
    for number in ends:
        partition = TopicPartition(TOPIC, number)
        files = [file for entry in Chain(state, partition).since(0) for file in entry.output]
        if files and (Ledger(sink, partition).tip().end or 0) <= files[-1].last:
            return False
    return True


def rows_in(sink: Path) -> list[dict[str, Any]]:
    return [row for file in committed_files(str(sink)) for row in pq.read_table(file).to_pylist()]


def check(folder: Path, events: Events) -> None:
    """The sinks beside a batch over everything."""
    windows, wanted = as_windows(rows_in(folder / "windows")), events.windows()
    missing = wanted.keys() - windows.keys()
    split = [name for name in windows if windows[name] != wanted.get(name)]
    assert (len(missing), len(split), len(windows)) == (0, 0, len(wanted))
    assert sorted(row["id"] for row in rows_in(folder / "distinct")) == events.distinct()
    assert as_totals(rows_in(folder / "totals")) == events.totals()
