"""What a pipeline tells of itself, and what a sink's ledger proves of a run."""

from __future__ import annotations

import json
from collections import Counter

from holdfast.model import TopicPartition
from holdfast.spark.explaining import explain
from holdfast.spark.pipeline.progress import Batches, InGroup, Report, count_batches, in_group
from holdfast.spark.pipeline.scene import rate_and_lag
from holdfast.spark.pipeline.verdict import Balance, Commit, Event, balance, effect, longest_pause

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def progress(batch: int, rows: int, took: int) -> dict[str, object]:
    return {"batchId": batch, "numInputRows": rows, "durationMs": {"triggerExecution": took}}


def test_batches_are_counted_once_and_idle_moments_not_at_all() -> None:
    seen = [progress(3, 10, 80), progress(4, 5, 120), progress(5, 0, 3)]
    assert count_batches(seen, after=2) == Batches(count=2, rows=15, longest_ms=120, last_id=4)
    assert count_batches(seen, after=4) == Batches(last_id=4)


def test_a_report_says_the_same_to_people_and_to_programs() -> None:
    told = {"member": "m-1", "generation": 7, "owned": {"orders": [0, 1]}, "lag": 1234, "rebalances": 3, "latest": {}}
    report = Report(
        at_s=12.34,
        name="orders",
        in_group=in_group(told),
        batches=Batches(count=2, rows=30, longest_ms=120, last_id=4),
        seconds=2.0,
        total_rows=99,
    )
    line = report.as_line()
    assert "gen 7" in line
    assert "orders[0,1]" in line or "orders[0-1]" in line
    assert "lag   1,234" in line
    assert "15 rows/s" in line
    assert "3 rebalances" in line
    as_json = json.loads(json.dumps(report.as_json()))
    assert as_json["owned"] == {"orders": [0, 1]}
    assert (as_json["lag"], as_json["rows_per_s"], as_json["event"]) == (1234, 15.0, "progress")


def test_before_anything_is_known_nothing_is_claimed() -> None:
    line = Report(at_s=0.0, name="x", in_group=InGroup()).as_line()
    assert "gen -" in line
    assert "lag       ?" in line


def test_of_a_failed_querys_long_story_the_cause_is_told() -> None:
    story = "[STREAM_FAILED] Query terminated\nTraceback …\n  x\nholdfast.model.errors.HoldfastError: CODE: what. do.\n"
    assert explain(story) == "CODE: what. do."
    assert explain("") == "the query failed"


# -- the verdict


def commits(*found: tuple[float, str]) -> list[Commit]:
    return [Commit(at, writer, 1) for at, writer in found]


def test_what_moved_and_how_long_it_stood_still_is_read_from_the_ledger() -> None:
    ledger = {
        P0: commits((0, "a"), (1, "a"), (2, "a"), (3, "a"), (4, "a")),
        P1: commits((0, "a"), (1, "a"), (3.5, "b"), (4, "b")),
        P2: commits((0, "b"), (1, "b"), (2, "b"), (3, "b"), (4, "b")),
    }
    found = effect(Event(what="b takes over", began_s=1.5, ended_s=4.0), ledger)
    assert found.moved == {P1: ("a", "b")}
    assert found.moved_pause_s == 2.5
    assert found.unmoved_pause_s == 1.0


def test_a_partition_that_falls_silent_has_a_pause_as_long_as_the_window() -> None:
    assert longest_pause(commits((0, "a")), 5.0, 9.0) == 4.0


def test_lost_and_doubled_records_are_counted() -> None:
    written = {0: Counter({0: 1, 1: 2, 2: 1}), 1: Counter({0: 1})}
    assert balance({0: range(4), 1: range(1)}, written) == Balance(records_in=5, records_out=5, lost=1, doubled=1)
    assert balance({0: range(2)}, {}) == Balance(records_in=2, records_out=0, lost=2, doubled=0)


def test_what_a_member_of_the_scene_lags_is_a_question_mark_before_it_is_known() -> None:
    """The first lines of `make run` said "lag None"."""
    assert rate_and_lag({"rows_per_s": 1234.5, "lag": None}) == "1,234 rows/s, lag ?"
    assert rate_and_lag({"rows_per_s": 0.0, "lag": 1_200}) == "0 rows/s, lag 1,200"
