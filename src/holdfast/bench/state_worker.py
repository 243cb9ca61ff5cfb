"""One Spark application of `holdfast bench state`, in a process of its own. Asked by one JSON argument.

`throughput`: a windowed count by key over a whole topic, with our source and state or with Spark's own, again and
again; answers with one JSON line. `follow`: a member that counts by key for ever, until its standard input ends.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.bench.spark_worker import cpu_seconds, session, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 1_800
SIZE, DELAY = "10 seconds", "5 seconds"


def ours(rows: DataFrame, folder: Path) -> StreamingQuery:
    from holdfast.spark import stateful

    kept = rows.selectExpr("topic", "partition", "offset", "timestamp", "cast(key as string) k")
    counts = stateful(kept, state=str(folder / "state")).window(
        "timestamp", size=SIZE, watermark=DELAY, by=["k"], agg={"n": "count"}
    )
    return counts.start(str(folder / "out"), checkpoint=str(folder / "cp"), trigger={"availableNow": True})


def theirs(rows: DataFrame, folder: Path) -> StreamingQuery:
    from pyspark.sql import functions as f

    kept = rows.selectExpr("timestamp", "cast(key as string) k").withWatermark("timestamp", DELAY)
    counts = kept.groupBy(f.window("timestamp", SIZE), "k").agg(f.count("*").alias("n"))
    writer = counts.writeStream.outputMode("append").format("parquet").option("checkpointLocation", str(folder / "cp"))
    return writer.trigger(availableNow=True).start(str(folder / "out"))


def throughput(spark: SparkSession, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    seconds, busy = [], []
    for _ in range(1 + asked["repeats"]):
        began, used = time.perf_counter(), cpu_seconds()
        work = ours if asked["format"] == "holdfast" else theirs
        query = work(stream(spark, asked, "earliest"), folder / uuid.uuid4().hex)
        ended = query.awaitTermination(LIMIT_S)
        seconds.append(time.perf_counter() - began)
        busy.append(cpu_seconds() - used)
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        if not ended or rows < asked["records"]:
            raise RuntimeError(f"{asked['format']} read {rows} of {asked['records']} records")
    return {"cold_s": seconds[0], "warm_s": seconds[1:], "cpu_s": busy[1:]}


def follow(spark: SparkSession, asked: dict[str, Any]) -> None:
    from holdfast.spark import drain, stateful

    options = {"kafka.bootstrap.servers": asked["bootstrap"], "kafka.group.id": "bench-state"}
    options |= {"subscribe": asked["topic"], "startingOffsets": "earliest"}
    rows = spark.readStream.format("holdfast").options(**options).load()
    kept = rows.selectExpr("topic", "partition", "offset", "cast(key as string) k")
    counts = stateful(kept, state=asked["state"], writer=asked["name"]).aggregate(by=["k"], agg={"n": "count"})
    query = counts.start(asked["sink"], checkpoint=asked["checkpoint"])
    sys.stdin.read()
    drain(query)


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(asked)
    if asked["work"] == "follow":
        follow(spark, asked)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            print(json.dumps(throughput(spark, asked, Path(folder))))
    spark.stop()


if __name__ == "__main__":
    main()
