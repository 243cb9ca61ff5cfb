"""A Spark with its own Kafka source beside ours: one job for each line of input, `SOURCE CHECKPOINT`.

Each reads everything that is there, and prints (partition, offset) of its rows as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import holdfast.spark  # noqa: F401 - it looks at the plans of queries on our source

LIMIT_S = 150


def main(bootstrap: str, jars: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        kind, checkpoint = line.split()
        print(json.dumps(job(spark, kind, bootstrap, checkpoint)), flush=True)
    spark.stop()


def job(spark: SparkSession, kind: str, bootstrap: str, checkpoint: str) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
    if kind == "holdfast":
        options |= {"kafka.group.id": "g", "kafka.holdfast.watchdog": "false"}

    def take(frame: Any, _number: int) -> None:
        seen.extend((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    writer = spark.readStream.format(kind).options(**options).load().writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(LIMIT_S):
        raise TimeoutError(f"{kind} did not end: {query.lastProgress}")
    return seen


if __name__ == "__main__":
    main(*sys.argv[1:])
