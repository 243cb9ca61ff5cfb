"""A PySpark streaming query as a real member of a consumer group.

    import holdfast.spark
    holdfast.spark.register(spark)
    spark.readStream.format("holdfast").option("kafka.group.id", "billing")...

Options, schema and habits are those of Spark's own `kafka` source; `kafka.group.id` makes the query a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` known to this session."""
    from holdfast.spark.source import HoldfastSource

    spark.dataSource.register(HoldfastSource)
