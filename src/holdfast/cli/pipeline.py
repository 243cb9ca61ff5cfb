"""`holdfast pipeline`: run a PySpark job as a member of a group, and look after its exactly-once file sink.

Progress and events go to standard output, a line each, or with `-o json` an object each; Spark's own log goes to a
file. SIGTERM and Ctrl-C drain: what the query owns is handed over while it works, then it leaves.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    client_settings,
    wrong_use,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.model import TopicPartition
    from holdfast.spark.files.store import Store

GRACE = "24h"
"""What nobody names any more is kept so long: longer than any batch, and than any reader uses its list of files."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SinkPath = Annotated[str, typer.Argument(metavar="PATH", help="The sink's path.")]
KeyValues = list[str]


@app.command()
def run(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB.py[:FUNCTION]", help="A function from DataFrame to DataFrame.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML with job, [source], [sink] and [spark].")
    ] = None,
    subscribe: Annotated[str | None, typer.Option(metavar="TOPIC[,…]", help="What the job reads.")] = None,
    group: Annotated[str | None, typer.Option(help="The group whose member the query is.")] = None,
    sink: Annotated[str | None, typer.Option(metavar="PATH", help="Where the sink writes.")] = None,
    sink_format: Annotated[
        str | None,
        typer.Option(help="Of the sink: holdfast-files, any of Spark's, or foreachBatch.  [default: holdfast-files]"),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PATH", help="Spark's checkpoint, one for each application.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option(help="Time between batches (500ms, 5s), or available-now.  [default: 0ms]")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]]")] = None,
    name: Annotated[str | None, typer.Option(help="What the application is called.")] = None,
    source_option: Annotated[KeyValues, typer.Option(metavar="KEY=VALUE", help="Of the source; may be repeated.")] = [],  # noqa: B006 - typer copies it
    sink_option: Annotated[KeyValues, typer.Option(metavar="KEY=VALUE", help="Of the sink; may be repeated.")] = [],  # noqa: B006 - typer copies it
    conf: Annotated[KeyValues, typer.Option(metavar="KEY=VALUE", help="Spark's settings; may be repeated.")] = [],  # noqa: B006 - typer copies it
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two lines of progress.")] = 2.0,
    duration: Annotated[float | None, typer.Option(min=0.0, help="Drain and end after so many seconds.")] = None,
    warm_up: Annotated[
        bool, typer.Option(help="Run the job on one record before joining, so that the first batch is quick.")
    ] = True,
    when: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Start Spark and warm up, then wait for this file before joining."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Start and warm up beside the running version, join, then let that one drain."),
    ] = False,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="The member's trace goes there.")] = None,
    spark_log: Annotated[Path | None, typer.Option(metavar="FILE", help="Spark's log goes there.")] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a job as a member of a consumer group, with live progress, until SIGTERM or Ctrl-C.

    The job's file defines `def transform(rows): return …`. Start as many as you like with the same group and sink and
    a checkpoint each: they share the topic, and each row is written once.
    """
    from holdfast.spark.pipeline import settings as st

    pipeline = st.Pipeline() if config is None else st.read_toml(config)
    if job is not None:
        pipeline = st.with_job(pipeline, job, Path.cwd())
    source = st.key_values(source_option, "--source-option")
    if bootstrap_server or command_config or "kafka.bootstrap.servers" not in pipeline.source:
        source = _kafka_options(bootstrap_server, command_config) | source
    source |= {} if subscribe is None else {"subscribe": subscribe}
    source |= {} if group is None else {"kafka.group.id": group}
    pipeline = st.with_options(
        pipeline,
        source=source,
        sink=({} if sink is None else {"path": sink}) | st.key_values(sink_option, "--sink-option"),
        spark=st.key_values(conf, "--conf"),
        sink_format=sink_format,
        checkpoint=checkpoint,
        trigger=trigger,
        master=master,
        name=name,
    )
    st.check(pipeline)
    from holdfast.spark.pipeline.progress import Report
    from holdfast.spark.pipeline.runner import Run

    def say(report: Report) -> None:
        text = report.as_line() if output is Output.TABLE else json.dumps(report.as_json(), sort_keys=True)
        print(text, flush=True)

    one = Run(
        pipeline,
        say=say,
        trace=None if trace is None else trace.resolve(),
        log=None if spark_log is None else spark_log.resolve(),
        warm_up=warm_up,
        when=None if when is None else when.resolve(),
        replace=replace,
    )
    with one, Interrupt() as interrupt:  # in this order: Spark takes Ctrl-C for itself when it starts
        one.run(asked=interrupt.asked, every_s=every, duration_s=duration)


def _kafka_options(bootstrap_server: str | None, command_config: Path | None) -> dict[str, str]:
    """The connection's settings as options of the source."""
    found = client_settings(bootstrap_server, command_config)
    for ours in ("client.id", "default.api.timeout.ms"):  # meant for commands that somebody waits for
        found.pop(ours, None)
    return {f"kafka.{key}": str(value) for key, value in found.items()}


# -- from Spark's own Kafka source, and back

Group = Annotated[str, typer.Option(help="The group that holds the offsets.")]
Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint of a query on Spark's source.")]


@app.command(name="import-checkpoint")
def import_checkpoint(
    checkpoint: Checkpoint,
    group: Group,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Commit to a group the offsets at which a query on Spark's own Kafka source has stopped.

    Stop the old query first, then start the new one with startingOffsets=committed: no record is lost or doubled.
    """
    from holdfast.spark import checkpoints

    settings = client_settings(bootstrap_server, command_config)
    found = checkpoints.import_checkpoint(
        checkpoint, bootstrap=settings["bootstrap.servers"], group=group, config=settings
    )
    _print_offsets(found.offsets, output)
    if found.unfinished:
        what = "a later batch was begun and not finished: its records are read again, and its output may be there."
        typer.echo(f"holdfast: {what}", err=True)


@app.command(name="export-checkpoint")
def export_checkpoint(
    checkpoint: Checkpoint,
    group: Group,
    topic: Annotated[list[str], typer.Option(help="Only these topics; may be repeated.")] = [],  # noqa: B006 - typer copies it
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Write a checkpoint on which Spark's own Kafka source begins where a group stands. Stop its members first."""
    from holdfast.spark import checkpoints

    settings = client_settings(bootstrap_server, command_config)
    found = checkpoints.export_checkpoint(
        checkpoint, bootstrap=settings["bootstrap.servers"], group=group, topics=topic or None, config=settings
    )
    _print_offsets(found, output)


def _print_offsets(offsets: Mapping[TopicPartition, int], output: Output) -> None:
    rows = [{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in sorted(offsets.items())]
    _print_rows(rows, output)


# -- the file sink


@app.command()
def show(path: SinkPath, output: OutputForm = Output.TABLE) -> None:
    """What a sink holds: by partition the next offset, rows, files, bytes and ledger entries."""
    from holdfast.spark.files.sink import contents

    found = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "from": content.start,
            "next_offset": content.end,
            "rows": sum(file.rows for file in content.files),
            "files": len(content.files),
            "bytes": sum(file.bytes for file in content.files),
            "entries": content.entries,
        }
        for partition, content in contents(_sink(path))
    ]
    _print_rows(found, output)


@app.command()
def files(path: SinkPath) -> None:
    """The committed Parquet files, a path a line, for readers that know no ledger."""
    from holdfast.spark.files.sink import committed_files

    _sink(path)
    for file in committed_files(path):
        print(file)


@app.command()
def compact(
    path: SinkPath,
    target_mib: Annotated[int, typer.Option(min=1, max=4096, help="How large a merged file may get.")] = 128,
    output: OutputForm = Output.TABLE,
) -> None:
    """Merge small files and shorten the ledger, while the sink is written and read. Deletes nothing: see `clean`."""
    from holdfast.spark.files import upkeep

    done = upkeep.compact(_sink(path), target_bytes=target_mib * 1024 * 1024)
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "files_before": one.files_before,
            "files_after": one.files_after,
            "entries": one.entries,
        }
        for one in done
    ]
    _print_rows(rows, output)


@app.command()
def clean(
    path: SinkPath,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Keep what is younger: longer than the longest batch and query.")
    ] = GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Remove what nobody names any more: leftovers of crashes, what compaction has replaced, old ledger entries."""
    from dataclasses import asdict

    from holdfast.spark.files import upkeep

    done = upkeep.clean(_sink(path), now=time.time(), grace_s=_seconds(older_than), dry_run=dry_run)
    _print_rows([asdict(done)], output)


@app.command()
def state(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path of a stateful query's state.")],
    clean_up: Annotated[bool, typer.Option("--clean", help="Remove files that nobody names any more.")] = False,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="With --clean, keep what is younger: longer than the longest batch.")
    ] = GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --clean, only count.")] = False,
    start_empty: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-N", help="Forget the state of one partition. Stop the applications first."),
    ] = None,
    skip_to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-N=OFFSET", help="Leave out records that are gone. Stop the applications first."),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """What a stateful query holds: by partition the next offset, watermark, rows, bytes, and what is kept for whom."""
    from dataclasses import asdict

    from holdfast.spark.files.store import open_store
    from holdfast.spark.state import upkeep
    from holdfast.spark.state.opening import read_state

    store = open_store(path)
    read_state(store)
    if start_empty is not None:
        gone = upkeep.start_empty(store, upkeep.parse_partition(start_empty))
        _print_rows([{"partition": start_empty, "files_removed": gone}], output)
    elif skip_to is not None:
        name, _, offset = skip_to.rpartition("=")
        if not offset.isdigit():
            wrong_use("INVALID_OPTION", f"--skip-to {skip_to!r} has no offset.", "Write orders-3=700.")
        before = upkeep.skip_to(store, upkeep.parse_partition(name), int(offset))
        _print_rows([{"partition": name, "from": before, "to": int(offset)}], output)
    elif clean_up:
        done = upkeep.clean(store, now=time.time(), grace_s=_seconds(older_than), dry_run=dry_run)
        _print_rows([asdict(done)], output)
    else:
        _print_rows(upkeep.held(store), output)


def _sink(path: str) -> Store:
    from holdfast.spark.files.sink import sink_columns
    from holdfast.spark.files.store import open_store

    store = open_store(path)
    sink_columns(store)
    return store


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _UNITS_S:
        wrong_use("TIME_INVALID", f"--older-than {text!r} is no time.", "Write 90s, 30m, 24h or 7d.")
    return float(int(number) * _UNITS_S[unit])


def _print_rows(rows: list[dict[str, Any]], output: Output) -> None:
    if output is Output.JSON:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print("nothing to do")
        return
    titles = [name.upper().replace("_", "-") for name in rows[0]]
    cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[at]) for line in [titles, *cells]) for at in range(len(titles))]
    for line in [titles, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
