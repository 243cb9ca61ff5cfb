"""One Spark application of `holdfast bench spark`, in a process of its own: it reads with one source.

Its task is one JSON argument, its result one JSON line. It knows nothing of goals, and treats all sources alike.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 600
SMALL_WARM_UP = 10
"""Batches that are not counted, while the JVM compiles."""


def session(asked: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    from holdfast.spark import configure

    builder = configure(SparkSession.builder.master("local[2]").appName("holdfast-bench"))
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    settings |= {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if asked["jars"]:
        settings["spark.jars"] = asked["jars"]
    for key, value in sorted(settings.items()):
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream(spark: SparkSession, asked: dict[str, Any], starting: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": asked["bootstrap"], "subscribe": asked["topic"], "startingOffsets": starting}
    if asked["format"] == "holdfast":
        options["kafka.group.id"] = f"bench-{uuid.uuid4()}"
    return spark.readStream.format(asked["format"]).options(**options, **asked["options"]).load()


def _sum(frame: DataFrame, _number: int) -> None:
    frame.selectExpr("sum(length(value))").collect()


def start(frame: DataFrame, sink: str, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.option("checkpointLocation", str(folder / uuid.uuid4().hex))
    writer = writer.foreachBatch(_sum) if sink == "sum" else writer.format("noop")
    return (writer.trigger(**trigger) if trigger else writer).start()


def throughput(spark: SparkSession, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Seconds to read the whole topic as one query: the first time in this application, and then again and again."""
    return timed(
        asked,
        lambda: partial(start, stream(spark, asked, "earliest"), asked["sink"], folder, availableNow=True),
        limit_s=LIMIT_S,
    )


def timed(asked: dict[str, Any], prepare: Callable[[], Callable[[], StreamingQuery]], limit_s: int) -> dict[str, Any]:
    """Time and CPU time of a query that reads all records, cold and then warm. Only what `prepare` returns is timed."""
    seconds, busy = [], []
    for _ in range(1 + asked["repeats"]):
        begin = prepare()
        began, used = time.perf_counter(), cpu_seconds()
        query = begin()
        ended = query.awaitTermination(limit_s)
        seconds.append(time.perf_counter() - began)
        busy.append(cpu_seconds() - used)
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        # A sink that uses a batch twice counts its rows twice; it only matters that none is missing.
        if not ended or rows < asked["records"]:
            raise RuntimeError(f"{asked['format']} read {rows} of {asked['records']} records")
    return {"cold_s": seconds[0], "warm_s": seconds[1:], "cpu_s": busy[1:]}


def cpu_seconds() -> float:
    """CPU time of this application on all cores: driver, JVM, readers and workers, including ended ones."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])  # its own and its ended children's
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def small_batches(spark: SparkSession, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Milliseconds of one trigger, by Spark's own clock, for batches of each size."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": asked["bootstrap"], "linger.ms": 0, "acks": "all"})
    found: dict[str, Any] = {}
    query = start(stream(spark, asked, "latest"), "noop", folder)
    wait_for(lambda: query.status["message"] == "Waiting for data to arrive", query)
    for size in asked["sizes"]:
        times = []
        for number in range(SMALL_WARM_UP + asked["batches"]):
            before = _batches(query)
            for record in range(size):
                producer.produce(asked["topic"], b"x" * 100, partition=(number + record) % asked["partitions"])
            producer.flush(30)
            wait_for(lambda seen=before: len(_batches(query)) > len(seen), query)
            times += [took for batch, took in _batches(query).items() if batch not in before]
        found[f"batch_{size}_ms"] = times[SMALL_WARM_UP:]
    query.stop()
    return found


def _batches(query: StreamingQuery) -> dict[int, int]:
    """Batch id -> how long its trigger took, for batches with rows."""
    return {
        progress["batchId"]: progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    }


def wait_for(holds: Any, query: StreamingQuery) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > deadline or not query.isActive:
            raise RuntimeError(f"the query stands still: {query.lastProgress}, {query.exception()}")
        time.sleep(0.005)


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(asked)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        work = {"throughput": throughput, "small": small_batches}[asked["work"]]
        print(json.dumps(work(spark, asked, Path(folder))))
        spark.stop()


if __name__ == "__main__":
    main()
