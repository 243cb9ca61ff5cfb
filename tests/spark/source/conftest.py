"""What tests of the source share: one Spark, and readers that are put away with the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast.net import reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def readers_end_with_the_test() -> Iterator[None]:
    """Executors keep them for good; here they would outlive their broker."""
    yield
    while reading.READERS:
        reading.READERS.popitem()[1].close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Starting it takes seconds. Nothing is registered by hand: PySpark finds the source by the name of its module."""
    from pyspark.sql import SparkSession

    from holdfast.spark import configure
    from holdfast.spark.pipeline.python import quick_python

    os.environ.setdefault("PYSPARK_PYTHON", quick_python(tmp_path_factory.mktemp("python")))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
