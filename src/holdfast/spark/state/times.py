"""Event times, durations, and the watermark of one partition. Pure. All in microseconds since 1970.

The watermark is the largest time seen in the partition so far, minus the allowed delay. It moves with every record, not
with every batch: whether a record is late depends only on the records before it in its partition. So results do not
depend on how batches were cut, and a partition that moved continues as if it had stayed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.model import HoldfastError
from holdfast.spark.state.keys import flat, picked
from holdfast.spark.state.runs import NOT_YET

Times = npt.NDArray[np.int64]

FARTHEST = 2**61
"""A time farther from 1970 than this (70,000 years) is not one. It comes from a timestamp that does not fit: the source
gives the largest one that does. Sums with a delay or a gap would overflow, and a watermark that far would make every
later row late.
"""

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+?)s?")


def duration_us(text: str, what: str, *, least: int = 1) -> int:
    """Durations as in Spark: "10 minutes", "1 hour 30 minutes"."""
    words = str(text).lower().removeprefix("interval ").split()
    parts = [_PART.fullmatch(f"{number} {unit}") for number, unit in zip(words[::2], words[1::2], strict=False)]
    if not words or len(words) % 2 or not all(part and part[2] in _UNITS for part in parts):
        raise _bad(text, what)
    found = sum(int(part[1]) * _UNITS[part[2]] for part in parts if part)
    if not least <= found <= FARTHEST:
        raise _bad(text, what)
    return found


def _bad(text: str, what: str) -> HoldfastError:
    return HoldfastError(
        "INVALID_DURATION", f"{what} is {text!r}.", 'Write a number and a unit: "30 seconds", "10 minutes", "1 day".'
    )


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows that have a time, with the watermark at each of them."""

    rows: pa.Table
    at: Times
    met: Times
    """The watermark before each row."""
    watermark: int
    """The watermark after the last one."""
    without: int
    """How many rows have no time, or one beyond `FARTHEST`. They are dropped, and counted with the late ones."""


def timed(rows: pa.Table, column: str, delay_us: int, watermark: int) -> Timed:
    """Times and watermarks of rows in the order of their offsets."""
    times: Any = flat(rows[column])
    at = times.cast(pa.timestamp("us", tz=times.type.tz)).cast(pa.int64()).fill_null(-(2**63)).to_numpy()
    there = (at > -FARTHEST) & (at < FARTHEST)
    without = len(at) - int(there.sum())
    if without:
        rows, at = rows.filter(picked(there)), at[there]
    after = np.maximum.accumulate(np.concatenate([np.array([watermark], np.int64), at - delay_us]))
    return Timed(rows, np.asarray(at, np.int64), after[:-1], int(after[-1]), without)


def check_time_type(name: str, kind: pa.DataType) -> None:
    if not pa.types.is_timestamp(kind):
        raise HoldfastError(
            "STATE_TIME_TYPE",
            f"The column {name!r} is of type {kind}, and not a timestamp.",
            "Name a timestamp column as the event time; cast it first.",
        )


def shown(watermark: int) -> str | None:
    """The watermark as a date and time; None if there is none yet."""
    from datetime import UTC, datetime, timedelta

    if watermark == NOT_YET:
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark)).isoformat()
    except OverflowError:  # Python's years end with 9999
        return f"{np.datetime64(watermark, 'us')}+00:00"
