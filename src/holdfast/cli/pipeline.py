"""`holdfast pipeline`: run a PySpark job as a member of a group, and look after its exactly-once file sink.

Progress and events go to standard output, one line each, or with `-o json` one object each; Spark's own log goes to a
file. SIGTERM and Ctrl-C drain: the query hands its partitions over while it still works, then leaves.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import pipeline_options as o
from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    client_settings,
    wrong_use,
)
from holdfast.cli.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.model import TopicPartition
    from holdfast.spark.files.store import Store
    from holdfast.spark.pipeline.progress import Report

GRACE = "24h"
"""How long unreferenced files are kept: longer than any batch, and longer than any reader uses its list of files."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

app = typer.Typer(cls=Listing, no_args_is_help=True, rich_markup_mode=None)

SinkPath = Annotated[str, typer.Argument(metavar="PATH", help="The sink's path.")]


@app.command()
def run(
    job: o.Job = None,
    config: o.Config = None,
    subscribe: o.Subscribe = None,
    group: o.Group = None,
    sink: o.Sink = None,
    sink_format: o.SinkFormat = None,
    checkpoint: o.Checkpoint = None,
    trigger: o.Trigger = None,
    master: o.Master = None,
    name: o.Name = None,
    source_option: o.SourceOption = [],  # noqa: B006 - typer copies it
    sink_option: o.SinkOption = [],  # noqa: B006 - typer copies it
    conf: o.Conf = [],  # noqa: B006 - typer copies it
    every: o.Every = 2.0,
    duration: o.Duration = None,
    warm_up: o.WarmUp = True,
    when: o.When = None,
    replace: o.Replace = False,
    trace: o.Trace = None,
    spark_log: o.SparkLog = None,
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
    source |= _given({"subscribe": subscribe, "kafka.group.id": group})
    pipeline = st.with_options(
        pipeline,
        source=source,
        sink=_given({"path": sink}) | st.key_values(sink_option, "--sink-option"),
        spark=st.key_values(conf, "--conf"),
        sink_format=sink_format, checkpoint=checkpoint, trigger=trigger, master=master, name=name,
    )  # fmt: skip
    st.check(pipeline)
    from holdfast.spark.pipeline.runner import Run

    paths = {"trace": trace, "log": spark_log, "when": when}
    resolved = {name: None if path is None else path.resolve() for name, path in paths.items()}
    one = Run(
        pipeline, say=_line if output is Output.TABLE else _json_line, warms_up=warm_up, takes_over=replace, **resolved
    )
    with one, Interrupt() as interrupt:  # in this order: Spark installs its own handler for Ctrl-C when it starts
        one.run(asked=interrupt.asked, every_s=every, duration_s=duration)


def _given(options: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in options.items() if value is not None}


def _line(report: Report) -> None:
    print(report.as_line(), flush=True)


def _json_line(report: Report) -> None:
    print(json.dumps(report.as_json(), sort_keys=True), flush=True)


def _kafka_options(bootstrap_server: str | None, command_config: Path | None) -> dict[str, str]:
    """The connection's settings as options of the source."""
    found = client_settings(bootstrap_server, command_config)
    for ours in ("client.id", "default.api.timeout.ms"):  # they suit short commands, not a running query
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
        what = "a later batch was begun and not finished: its records are read again, though its output may exist."
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
    """Write a checkpoint on which Spark's own Kafka source begins at a group's offsets. Stop its members first."""
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
    _print_rows(found, output, if_none="nothing is committed yet")


@app.command()
def files(path: SinkPath) -> None:
    """The committed Parquet files, one path per line, for readers that do not know the ledger."""
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
        str, typer.Option(metavar="TIME", help="Keep younger files. Longer than the longest batch and query.")
    ] = GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Remove files that nothing refers to any more: leftovers of crashes, compacted files, old ledger entries."""
    from dataclasses import asdict

    from holdfast.spark.files import upkeep

    done = upkeep.clean(_sink(path), now=time.time(), grace_s=_seconds(older_than), dry_run=dry_run)
    _print_rows([asdict(done)], output)


@app.command()
def state(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path of a stateful query's state.")],
    clean_up: Annotated[bool, typer.Option("--clean", help="Remove files that nothing refers to any more.")] = False,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="With --clean, keep younger files. Longer than the longest batch.")
    ] = GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --clean, only count.")] = False,
    start_empty: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-N", help="Forget the state of one partition. Stop the applications first."),
    ] = None,
    skip_to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-N=OFFSET", help="Skip records that are gone. Stop the applications first."),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """What a stateful query holds: by partition the next offset, watermark, rows, bytes, and files kept for others."""
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
        if not offset.isdecimal():
            wrong_use("INVALID_OPTION", f"--skip-to {skip_to!r} has no offset.", "Write orders-3=700.")
        before = upkeep.skip_to(store, upkeep.parse_partition(name), int(offset))
        _print_rows([{"partition": name, "from": before, "to": int(offset)}], output)
    elif clean_up:
        done = upkeep.clean(store, now=time.time(), grace_s=_seconds(older_than), dry_run=dry_run)
        _print_rows([asdict(done)], output)
    else:
        _print_rows(upkeep.held(store), output, if_none="no partition has state yet")


def _sink(path: str) -> Store:
    from holdfast.spark.files.sink import sink_columns
    from holdfast.spark.files.store import open_store

    store = open_store(path)
    sink_columns(store)
    return store


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _UNITS_S:
        wrong_use("TIME_INVALID", f"--older-than {text!r} is not a time.", "Write 90s, 30m, 24h or 7d.")
    return float(int(number) * _UNITS_S[unit])


def _print_rows(rows: list[dict[str, Any]], output: Output, *, if_none: str = "nothing to do") -> None:
    if output is Output.JSON:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print(if_none)
        return
    titles = [name.upper().replace("_", "-") for name in rows[0]]
    cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[at]) for line in [titles, *cells]) for at in range(len(titles))]
    for line in [titles, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
