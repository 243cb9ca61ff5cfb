"""What all benchmark commands have in common."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from holdfast.bench.assign import assign
from holdfast.bench.broker import broker
from holdfast.bench.consume import consume
from holdfast.bench.deploy import deploy
from holdfast.bench.describe import describe
from holdfast.bench.groups import groups
from holdfast.bench.handover import handover
from holdfast.bench.output import report
from holdfast.bench.spark import spark
from holdfast.bench.state import state


@pytest.mark.parametrize(
    "command", [assign, broker, consume, deploy, describe, groups, handover, spark, state], ids=lambda one: one.__name__
)
def test_a_misspelt_output_is_refused_before_anything_is_measured(command: object) -> None:
    """Symptom: `bench handover -o jsno` measured for ten minutes and then printed a table."""
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]  # typer wants a function
    told = CliRunner().invoke(app, ["-o", "jsno"])
    assert told.exit_code == 2
    assert "'jsno' is neither table nor json" in told.output


@pytest.mark.parametrize("reached", [True, False])
def test_a_missed_goal_is_the_exit_code_and_the_figures_are_printed_all_the_same(
    reached: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[dict[str, int]] = []
    for output in ("json", "table"):
        if reached:
            report({"ms": 28}, output, shown.append, reached=True)
        else:
            with pytest.raises(typer.Exit) as ended:
                report({"ms": 28}, output, shown.append, reached=False)
            assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out) == {"ms": 28}
    assert shown == [{"ms": 28}]
