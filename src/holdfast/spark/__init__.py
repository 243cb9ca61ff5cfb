"""PySpark pipelines as real members of a consumer group.

    import holdfast.spark
    spark = holdfast.spark.configure(SparkSession.builder).getOrCreate()
    spark.readStream.format("holdfast").option("kafka.group.id", "billing")...

Options, schema and behaviour are those of Spark's own `kafka` source; `kafka.group.id` makes the query a member.
PySpark finds an installed holdfast itself (`pyspark_holdfast`); otherwise call `register`. Importing this package loads
neither pyspark nor pyarrow, but from then on each query's plan is checked before the query starts (`guard`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.spark.delta import exactly_once_delta
from holdfast.spark.driving import drain, report
from holdfast.spark.exactly_once import exactly_once
from holdfast.spark.explaining import explain
from holdfast.spark.guard import install as _install_guard
from holdfast.spark.session import SETTINGS, Setting, configure
from holdfast.spark.state.api import stateful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SETTINGS",
    "Setting",
    "configure",
    "drain",
    "exactly_once",
    "exactly_once_delta",
    "explain",
    "register",
    "report",
    "stateful",
]

_install_guard()


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` and `format("holdfast-files")` known to this session.

    Raises WORKER_PYTHON if Spark's workers run another Python in which holdfast is not installed.
    """
    from holdfast.spark.files.source import FilesSource
    from holdfast.spark.internals import ours_first, pass_on_partition_by
    from holdfast.spark.source import HoldfastSource
    from holdfast.spark.worker_python import check_python

    check_python()
    spark.dataSource.register(HoldfastSource)
    spark.dataSource.register(FilesSource)
    pass_on_partition_by()
    ours_first()
