"""Run by test_sink_delta.py in a process of its own, with Delta's jars: batches into a table, and what came of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock


def main(jars: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", ",".join(str(path) for path in Path(jars).glob("*.jar")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    print(json.dumps(Checks(session, f"{folder}/orders").run()))


class Checks:
    def __init__(self, session: Any, path: str) -> None:
        from holdfast.spark import exactly_once_delta

        self.session, self.path = session, path
        self.write = exactly_once_delta(path, sink="orders")

    def run(self) -> dict[str, Any]:
        return {
            "first": self.after(lambda: self.write(self.rows(0, 50), 0)),
            "again": self.after(lambda: self.write(self.rows(0, 50), 0)),
            "other cuts": self.after(lambda: self.write(self.rows(30, 80), 1)),
            "killed": self.after(self.killed),
            "overtaken": self.after(self.overtaken),
            "optimised": self.after(self.optimised),
            "refused": [self.refused(self.other_columns), self.refused(self.forgetful)],
        }

    def rows(self, start: int, end: int) -> Any:
        """Of two partitions, the second with every other offset."""
        return self.session.range(start, end).selectExpr("'orders' topic", "cast(id % 2 as int) partition", "id offset")

    def after(self, act: Any) -> list[int]:
        """Rows in the table, and distinct ones."""
        act()
        table = self.session.read.format("delta").load(self.path)
        return list(table.selectExpr("count(*)", "count(distinct partition, offset)").first())

    def killed(self) -> None:
        """Files are written, and the commit never comes."""
        self.around_commit(lambda: (_ for _ in ()).throw(KeyboardInterrupt), swallow=True, rows=self.rows(80, 100))

    def overtaken(self) -> None:
        """A zombie has read where the table stands; the new owner writes more; the zombie commits."""
        self.around_commit(lambda: self.write(self.rows(80, 120), 3), swallow=False, rows=self.rows(70, 110))

    def around_commit(self, before: Any, *, swallow: bool, rows: Any) -> None:
        from holdfast.spark import delta

        commit = delta.Table.commit

        def held(table: Any, *given: Any) -> bool:
            holding.stop()
            before()
            return commit(table, *given)

        holding = mock.patch.object(delta.Table, "commit", held)
        holding.start()
        try:
            self.write(rows, 2)
        except KeyboardInterrupt:
            assert swallow

    def optimised(self) -> None:
        self.session.sql(f"optimize delta.`{self.path}`")
        self.write(self.rows(100, 130), 4)

    def other_columns(self) -> None:
        self.write(self.rows(130, 140).selectExpr("*", "1 more"), 5)

    def forgetful(self) -> None:
        name = "delta.setTransactionRetentionDuration"
        self.session.sql(f"alter table delta.`{self.path}` set tblproperties ('{name}' = 'interval 1 day')")
        self.write(self.rows(130, 140), 5)

    def refused(self, act: Any) -> str:
        from holdfast.model import HoldfastError

        try:
            act()
        except HoldfastError as error:
            return error.code
        return "done"


main(*sys.argv[1:])
