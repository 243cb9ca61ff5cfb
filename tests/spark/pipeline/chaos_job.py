"""The job of the chaos test: passes rows on, and stands still for as long as a file tells it to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FLAG = "HOLDFAST_CHAOS_SLEEP"
"""The environment names a file. While it holds a number, the next task that takes it sleeps that many seconds."""


def transform(rows: DataFrame) -> DataFrame:
    flag = os.environ[FLAG]

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _sleep_once(Path(flag))
            yield batch

    kept = rows.select("topic", "partition", "offset", "value")
    return kept.mapInArrow(pass_on, kept.schema)


def _sleep_once(flag: Path) -> None:
    mine = flag.with_suffix(f".{os.getpid()}")
    try:
        flag.rename(mine)
    except FileNotFoundError:
        return
    time.sleep(float(mine.read_text()))
