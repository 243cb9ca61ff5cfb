"""A task whose disk is full leaves nothing behind: its worker lives on, and would keep the space."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.model import TopicPartition
from holdfast.spark.state.aggregates import parse_aggregates
from holdfast.spark.state.chain import beginning, decode
from holdfast.spark.state.task import TaskPlan, Work
from holdfast.spark.state.windows import Totals

P = TopicPartition("orders", 3)
FIELDS = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "k": pa.string()}
SCHEMA = pa.schema([pa.field(name, kind) for name, kind in FIELDS.items()])


def a_plan(folder: Path) -> TaskPlan:
    return TaskPlan(
        state=str(folder / "state"),
        sink=str(folder / "sink"),
        schema_id="s",
        operator=Totals(by=("k",), aggregates=parse_aggregates({"n": "count"}, SCHEMA)),
        given=SCHEMA,
        ranges={P: (0, 9)},
        work={P: Work(beginning(0), 9)},
        told="batch 7",
        writer="w",
    )


ROWS = pa.RecordBatch.from_pylist(
    [{"topic": "orders", "partition": 3, "offset": at, "k": f"k{at % 2}"} for at in range(9)], schema=SCHEMA
)


def files(folder: Path) -> list[str]:
    return sorted(path.suffix or path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(("at", "left"), [(1, []), (2, [".arrow"])])
def test_a_disk_that_is_full_at_the_state_or_at_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, left: list[str]
) -> None:
    """Symptom: the unfinished output stayed on that disk under a hidden name. Rule: a task that fails drops it."""
    plain, synced = os.fsync, [0]

    def full(handle: int) -> None:
        synced[0] += stat.S_ISREG(os.fstat(handle).st_mode)
        if synced[0] == at and stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device") as raised:
            list(a_plan(tmp_path)([ROWS]))
    assert files(tmp_path) == left
    del raised  # a worker ends with the error in hand: what is only done when that is freed is not done
    (answer,) = a_plan(tmp_path)([ROWS])
    (text,) = answer.column("entry").to_pylist()
    assert text is not None
    assert decode(text.encode()).end == 9
