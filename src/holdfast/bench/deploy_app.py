"""One streaming application of `holdfast bench deploy`: it logs what it has output, and when.

    python -m holdfast.bench.deploy_app '{"source": "holdfast", "bootstrap": …}'

Every finished batch becomes a line in its log: the time, and the offsets of each partition. Commands come on standard
input, one per line (`report`, `drain`, `stop`); answers go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session(options: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    import holdfast.spark

    builder = SparkSession.builder.master("local[1]").appName(options["name"])
    # For both sources, so that only the source differs.
    builder = holdfast.spark.configure(builder)
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.driver.memory", "600m").config("spark.log.level", "ERROR")
    if options["jars"]:
        builder = builder.config("spark.jars", options["jars"])
    spark = builder.getOrCreate()
    holdfast.spark.register(spark)
    return spark


def stream(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.format(options["source"]).option("kafka.bootstrap.servers", options["bootstrap"])
    reader = reader.option("subscribe", options["topic"]).option("startingOffsets", "earliest")
    for key, value in options["settings"].items():
        reader = reader.option(key, value)
    return reader.load()


def main() -> None:
    options = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session(options)
    with Path(options["log"]).open("a", buffering=1) as log:

        def out(batch: DataFrame, _number: int) -> None:
            seen: dict[int, list[int]] = {}
            for partition, offset in batch.select("partition", "offset").collect():
                seen.setdefault(partition, []).append(offset)
            log.write(json.dumps({"at": time.time() * 1_000, "out": seen}) + "\n")

        writer = stream(spark, options).writeStream.foreachBatch(out)
        writer = writer.option("checkpointLocation", options["checkpoint"])
        query = writer.trigger(processingTime=options["trigger"]).start()
        _say("started")
        for line in sys.stdin:
            word = line.strip()
            if word == "report":
                from holdfast.spark import report

                sys.stdout.write(json.dumps(report(query)[0]) + "\n")
                sys.stdout.flush()
            elif word in ("drain", "stop"):
                if word == "drain":
                    from holdfast.spark import drain

                    drain(query)
                else:
                    query.stop()
                break
    spark.stop()
    _say("ended")


def _say(word: str) -> None:
    sys.stdout.write(json.dumps({"event": word}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
