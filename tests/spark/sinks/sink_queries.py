"""Running a query until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 180.0
TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a new Python process 10 s, and no setting changes it. Beside other tests it may need another try."""


def run_query(start: Callable[[], StreamingQuery], holds: Callable[[], bool]) -> None:
    """Start, wait until it holds, stop. A query that fails fails the test, unless the machine was too slow for it."""
    from pyspark.errors import StreamingQueryException

    deadline = time.monotonic() + LIMIT_S
    query = start()
    try:
        while not holds():
            assert time.monotonic() < deadline, query.lastProgress
            try:
                assert not query.awaitTermination(0.1)  # type: ignore[arg-type]  # seconds, whole or not
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error):
                    raise
                query = start()
    finally:
        query.stop()
