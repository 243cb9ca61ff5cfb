"""Rows for an exactly-once sink must say where they came from. What is refused, and why; pure.

The ledger knows rows by topic, partition and offset alone. A row without an offset would be written with every replay,
and an offset that the batch did not read moves the ledger past records that are still to come: those would be left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import checked_topic
from holdfast.spark.offsets import Ranges


def checked_ranges(found: Iterable[tuple[Any, ...]], columns: Columns) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> [first offset, last offset + 1). `found`: by topic and partition the lowest and the highest offset,
    and whether some row has none."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for topic, number, first, last, no_offset in found:
        missing = {columns.topic: topic is None, columns.partition: number is None, columns.offset: no_offset}
        for name, is_missing in missing.items():
            if is_missing:
                raise HoldfastError(
                    "SINK_NEEDS_ORIGIN",
                    f"A row has no {name}.",
                    "Every row must say where it came from; outer joins and aggregations lose that. Leave such rows "
                    f'out (.where("{name} is not null")), or write the batch as a whole: exactly_once(…, by="batch").',
                )
        for name, lowest in ((columns.partition, number), (columns.offset, first)):
            if lowest < 0:
                raise HoldfastError(
                    "SINK_NEEDS_ORIGIN",
                    f"A row's {name} is {lowest}, which no record has.",
                    "Let the rows keep the columns topic, partition and offset as the source gives them.",
                )
        ranges[TopicPartition(checked_topic(topic), number)] = (first, last + 1)
    return dict(sorted(ranges.items()))


def check_origins(ranges: Ranges, origins: Ranges | None) -> None:
    """Refuse offsets that the batch did not read. `origins`: what it read; None if nobody can tell."""
    if origins is None:
        return
    for partition, (start, end) in sorted(ranges.items()):
        first, last = origins.get(partition, (0, 0))
        if start < first or end > last:
            read = f"[{first}, {last})" if partition in origins else "nothing"
            raise HoldfastError(
                "ROWS_NOT_OF_BATCH",
                f"Rows say that they are {partition} from offset {start} to {end - 1}, and of that this batch read "
                f"{read}.",
                "Let topic, partition and offset be those of the record that a row came from. Rows of other batches "
                '(from a join of streams, or read back from a table) need exactly_once(…, by="batch"), or a write of '
                "their own.",
            )
