"""What must work, or be refused in words, on the PySpark of this environment. Prints one JSON object.

Run by `test_spark_versions.py` in an environment of its own for each version; by hand: python version_check.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import SparkSession

import holdfast.spark
from holdfast.spark.files import positions
from holdfast.spark.pipeline.python import use_bundled_java
from holdfast.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 20
LIMIT_S = 300.0


def session() -> SparkSession:
    use_bundled_java()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key, value in (("spark.driver.host", "127.0.0.1"), ("spark.driver.bindAddress", "127.0.0.1")):
        builder = builder.config(key, value)
    spark = holdfast.spark.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def options(broker: Broker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.group.id": "g",
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }


def run_stream(rows: DataFrame, sink: str, checkpoint: Path) -> int:
    """The rows that a stream has put into a sink."""
    query = rows.writeStream.format("holdfast-files").option("checkpointLocation", str(checkpoint)).start(sink)
    deadline = time.monotonic() + LIMIT_S
    try:
        while _written(sink) < ROWS and time.monotonic() < deadline:
            query.awaitTermination(1)
    finally:
        query.stop()
    return _written(sink)


def _written(sink: str) -> int:
    return sum(positions(sink).values()) if Path(sink, "_holdfast").exists() else 0


def told(what: Callable[[], Any]) -> Any:
    """What came of it, or the first word of what was said."""
    try:
        return what()
    except Exception as error:
        return holdfast.spark.explain(error).partition(":")[0]


def main() -> None:
    from confluent_kafka import Producer

    folder = Path(tempfile.mkdtemp())
    with Broker() as broker:
        broker.topics.create("orders", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log.connection.close": False})
        for number in range(ROWS):
            producer.produce("orders", str(number).encode(), partition=number % 2)
        producer.flush()
        spark = session()
        batch = spark.read.format("holdfast").options(**options(broker)).load()
        found: dict[str, Any] = {"version": pyspark.__version__, "read": batch.count()}
        sink = str(folder / "batch")
        batch.write.format("holdfast-files").mode("append").option("partitionBy", "partition").save(sink)
        again = spark.read.format("holdfast-files").load(sink)
        found["files"], found["filtered"] = again.count(), again.where("partition = 1").count()
        found["option"] = told(lambda: spark.read.format("holdfast").option("startingOfsets", "x").load())
        rows = spark.readStream.format("holdfast").options(**options(broker)).load()
        found["stream"] = told(lambda: run_stream(rows, str(folder / "stream"), folder / "c1"))
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        rows = rate.selectExpr("'orders' topic", "0 partition", "value offset")
        found["sink"] = told(lambda: run_stream(rows, str(folder / "rate"), folder / "c2") >= ROWS)
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
