"""`exactly_once` refuses rows that do not say where they came from: the ledger knows rows by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.batch_ranges import delivering, origins
from holdfast.spark.exactly_once_origin import check_origins, checked_ranges
from holdfast.spark.files.columns import Columns

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS = Columns(offset="position")


def test_the_ranges_of_rows_are_sorted_and_end_behind_the_last_offset() -> None:
    found = [("orders", 1, 4, 4, False), ("orders", 0, 0, 9, False)]
    assert list(checked_ranges(found, COLUMNS).items()) == [(P0, (0, 10)), (P1, (4, 5))]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((None, 0, 1, 2, False), "A row has no topic"),
        (("orders", None, 1, 2, False), "A row has no partition"),
        (("orders", 0, 1, 2, True), "A row has no position"),
        (("orders", 0, None, None, True), "A row has no position"),
        (("orders", -1, 1, 2, False), "A row's partition is -1"),
        (("orders", 0, -7, 2, False), "A row's position is -7"),
    ],
)
def test_a_row_without_a_place_in_a_topic_is_refused(row: tuple[Any, ...], what: str) -> None:
    """Symptom: a row whose offset was null (an outer join) was written, and again with every replay; beside rows that
    were in already, it was dropped. Cause: the lowest and the highest offset do not count nulls."""
    with pytest.raises(HoldfastError, match=f"SINK_NEEDS_ORIGIN: {what}"):
        checked_ranges([("orders", 1, 0, 3, False), row], COLUMNS)


def test_a_topic_that_no_broker_could_have_is_refused() -> None:
    """It could be the name under which the ledger counts a query's batches."""
    with pytest.raises(HoldfastError, match="NOT_A_TOPIC"):
        checked_ranges([("query/1234", 0, 1, 2, False)], COLUMNS)


@pytest.mark.parametrize("rows", [(0, 10), (9, 11), (0, 1_000_000), (4, 5)])
def test_offsets_that_the_batch_did_not_read_are_refused(rows: tuple[int, int]) -> None:
    """Symptom: a job that computed `offset` moved the ledger to 1,000,000, and all later rows were left out."""
    with pytest.raises(HoldfastError, match=r"ROWS_NOT_OF_BATCH: .*orders-0 from offset .* this batch read \[5, 10\)"):
        check_origins({P0: rows}, {P0: (5, 10)})
    with pytest.raises(HoldfastError, match=r"ROWS_NOT_OF_BATCH: .* this batch read nothing"):
        check_origins({P0: rows}, {P1: (0, 10)})


def test_a_part_of_what_was_read_is_fine_and_so_is_everything_where_nobody_knows() -> None:
    check_origins({P0: (6, 9)}, {P0: (5, 10), P1: (0, 3)})
    check_origins({P0: (6, 9)}, None)


def test_results_of_a_stateful_query_may_reach_beyond_its_batch() -> None:
    """After a crash it delivers what an earlier and longer batch left. That is known, and what its batch reads is not
    asked."""
    with delivering({P0: (0, 100)}):
        assert origins(None) == {P0: (0, 100)}  # type: ignore[arg-type]  # no Spark here
