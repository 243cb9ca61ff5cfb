"""A Spark application for the tests: one query, one database file that it shares with others, commands on its input.

Rows go in under (partition, offset), once; one that is there already is noted in `twice`. Prints a line when it runs
and when it is done. Commands: `drain`, `stop`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

from pyspark.sql import SparkSession

import holdfast.spark


def main(name: str, database: str, checkpoint: str, master: str, options: dict[str, str]) -> None:
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "512m",
    }.items():
        builder = builder.config(key, value)
    spark = holdfast.spark.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def write(frame: Any, _number: int) -> None:
        rows = [(row.partition, row.offset, name) for row in frame.select("partition", "offset").collect()]
        with sqlite3.connect(database, timeout=60) as connection:
            for row in rows:
                added = connection.execute("insert or ignore into rows values (?, ?, ?)", row).rowcount
                if not added:
                    connection.execute("insert into twice values (?, ?, ?)", row)

    stream = spark.readStream.format("holdfast").options(**options).load()
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
    print("running", flush=True)
    for line in sys.stdin:
        if line.strip() == "drain":
            holdfast.spark.drain(query)
        elif line.strip() == "stop":
            query.stop()
        print(f"{line.strip()} done", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    name, database, checkpoint, master, options = sys.argv[1:6]
    main(name, database, checkpoint, master, json.loads(options))
