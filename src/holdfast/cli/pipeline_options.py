"""The options of `holdfast pipeline run`, so that the command itself fits a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Job = Annotated[str | None, typer.Argument(metavar="JOB.py[:FUNCTION]", help="A function from DataFrame to DataFrame.")]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML with job, [source], [sink] and [spark].")
]
Subscribe = Annotated[str | None, typer.Option(metavar="TOPIC[,…]", help="What the job reads.")]
Group = Annotated[str | None, typer.Option(help="The group whose member the query is.")]
Sink = Annotated[str | None, typer.Option(metavar="PATH", help="Where the sink writes.")]
SinkFormat = Annotated[
    str | None,
    typer.Option(help="Of the sink: holdfast-files, any of Spark's, or foreachBatch.  [default: holdfast-files]"),
]
Checkpoint = Annotated[str | None, typer.Option(metavar="PATH", help="Spark's checkpoint, one for each application.")]
Trigger = Annotated[
    str | None, typer.Option(help="Time between batches (500ms, 5s), or available-now.  [default: 0ms]")
]
Master = Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]]")]
Name = Annotated[str | None, typer.Option(help="What the application is called.")]
SourceOption = Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="Of the source; may be repeated.")]
SinkOption = Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="Of the sink; may be repeated.")]
Conf = Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="Spark's settings; may be repeated.")]
Every = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two lines of progress.")]
Duration = Annotated[float | None, typer.Option(min=0.0, help="Drain and end after so many seconds.")]
WarmUp = Annotated[
    bool, typer.Option(help="Run the job on one record before joining, so that the first batch is quick.")
]
When = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Start Spark and warm up, then wait for this file before joining."),
]
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Start and warm up beside the running version, join, then let that one drain."),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="The member's trace goes there.")]
SparkLog = Annotated[Path | None, typer.Option(metavar="FILE", help="Spark's log goes there.")]
