"""The doctor's Spark session: a local one that starts quickly, a cluster's, or Spark Connect (`sc://…`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(master: str, scratch: Path) -> SparkSession:
    """`scratch` is a folder that lives as long as the session does."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise HoldfastError(
            "DOCTOR_NEEDS_SPARK", "PySpark is not installed.", "Install it: pip install 'holdfast[spark]'."
        ) from error
    from holdfast.spark.pipeline.python import quick_python, use_bundled_java

    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).appName("holdfast doctor").getOrCreate()
    use_bundled_java()
    builder = SparkSession.builder.master(master).appName("holdfast doctor")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", quick_python(scratch))
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
