"""What the deploy bench reads from the applications' logs, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.bench.deploy import Row, judged
from holdfast.bench.deploy_replace import Versions
from holdfast.bench.deploy_run import PARTITIONS, Application, Batch, measured, silences
from holdfast.model import TopicPartition
from holdfast.spark.files.layout import data_folder_of
from holdfast.spark.files.ledger import Addition, FileRef, Ledger
from holdfast.spark.files.store import open_store


def steadily(app: str, partitions: list[int], begin: int, end: int) -> list[Batch]:
    return [Batch(app, float(at), dict.fromkeys(partitions, (0,))) for at in range(begin, end, 500)]


def test_a_silence_counts_if_it_reaches_into_the_time_that_is_watched() -> None:
    everything = list(range(PARTITIONS))
    batches = [Batch("one", at, dict.fromkeys(everything, (0,))) for at in (0.0, 400.0, 2_400.0, 2_900.0)]

    assert [one.ms for one in silences(batches, 1_000.0, 2_500.0) if one.partition == 0] == [2_000.0, 500.0]
    assert [one.ms for one in silences(batches, 100.0, 350.0) if one.partition == 5] == [400.0]


def test_partitions_are_told_apart_by_who_put_them_out() -> None:
    """0–5 are one's; it is restarted from 10 s to 20 s, and two takes 0–2 meanwhile; 3–5 wait; 6–11 are two's."""
    rest = [3, 4, 5]
    batches = [
        *steadily("one", [0, 1, 2, *rest], 0, 10_001),
        *steadily("two", list(range(6, 12)), 0, 30_001),
        *steadily("two", [0, 1, 2], 11_000, 20_001),
        *steadily("one", [0, 1, 2, *rest], 20_500, 30_001),
    ]
    seen = measured(batches, "one", 2_000.0, 10_000.0, 25_000.0, down=10_300.0)

    assert seen.moved_ms == [1_000.0] * 3
    assert seen.waited_ms == [10_500.0] * 3
    assert seen.unmoved_ms == [500.0] * 12, "also of those that moved, while they did not"
    assert seen.steady_ms == 500.0, "what begins with the restart is not steady"


def row(deploy: str, **more: float | int | None) -> Row:
    values: dict[str, float | int | None] = {
        "repetitions": 2,
        "moved_ms": 900.0,
        "unmoved_ms": 800.0,
        "restarted_ms": None,
        "steady_ms": 700.0,
        "rebalances": 4,
        "lost": 0,
        "doubled": 0,
    }
    return Row(deploy=deploy, **{**values, **more})  # type: ignore[arg-type]  # one dict for fields of several types


REDEPLOY = row("redeploy", moved_ms=None, unmoved_ms=None, restarted_ms=12_000.0, rebalances=None)


def test_a_deploy_is_compared_with_a_redeploy() -> None:
    _, drained = judged([REDEPLOY, row("drain")])

    assert (drained.times_better, drained.missed) == (13.3, "")


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        (row("drain", moved_ms=2_001.0), "moved above 2000"),
        (row("drain", moved_ms=None), "moved above 2000"),
        (row("stop", moved_ms=1_990.0, lost=1), "lost or doubled"),
        (row("drain", doubled=3), "lost or doubled"),
        (row("stop", doubled=3), "lost or doubled"),
        (row("static", moved_ms=None, rebalances=1), "1 rebalances"),
        (row("static", moved_ms=None, rebalances=0), ""),
        (row("drain", unmoved_ms=1_701.0), "unmoved more than 2 batches above steady"),
    ],
)
def test_a_goal_of_the_deploy_bench_that_is_missed_is_named(seen: Row, missed: str) -> None:
    assert judged([REDEPLOY, seen])[1].missed == missed


def test_less_than_five_times_better_than_a_redeploy_is_a_miss() -> None:
    quick = row("redeploy", moved_ms=None, unmoved_ms=None, restarted_ms=4_000.0, rebalances=None)

    assert judged([quick, row("drain")])[1].missed == "under 5 times better"


def test_versions_of_one_application_are_told_apart_in_the_sink_that_both_write(tmp_path: Path) -> None:
    """`replace`: a partition moved if another version wrote it next; a batch that added nothing is no output."""
    place = Application.Place(bootstrap="nowhere:1", topic="orders", folder=tmp_path)
    versions = Versions(place)
    ledger = Ledger(open_store(versions.sink), TopicPartition("orders", 3))
    batches = ((0, 10, 10, "version-1 batch 4"), (10, 12, 0, "version-1 batch 5"), (12, 25, 13, "version-2 batch 0"))
    for start, end, rows, writer in batches:
        file = FileRef(
            name=f"{data_folder_of(ledger.partition)}/{end}.parquet",
            rows=rows,
            bytes=1,
            first=start,
            last=end,
            schema="s",
        )
        addition = Addition(first=start, end=end, files=(file,))
        ledger.append(lambda _, addition=addition: addition, writer=writer)  # type: ignore[misc]

    assert [(batch.app, list(batch.out)) for batch in versions.batches()] == [("version-1", [3]), ("version-2", [3])]
