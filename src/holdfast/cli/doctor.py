"""`holdfast doctor`: what happened to groups, from their logs, and what to change. A PySpark job.

holdfast doctor logs/ traces/ --html report.html
holdfast doctor logs/ --follow --html report.html --parquet doctor/
holdfast doctor --bootstrap-server localhost:9092 --group billing --for 60
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    ask,
    client_settings,
    wrong_use,
)
from holdfast.cli.doctor_shown import Progress, Tables, extra_of, notes_of, read_line, show, worst
from holdfast.doctor.finding import counted
from holdfast.doctor.tables import examined
from holdfast.doctor.words import size_text
from holdfast.model import HoldfastError
from holdfast.model.text import one_line

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster

LOOK_S = 0.5


def doctor(
    paths: Annotated[list[str] | None, typer.Argument(help="Files and folders, or addresses in object stores.")] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    group: Annotated[
        str | None, typer.Option("--group", help="This group only; with a broker, the one to watch.")
    ] = None,
    for_s: Annotated[float, typer.Option("--for", metavar="SECONDS", help="How long to watch a live group.")] = 10.0,
    master: Annotated[str, typer.Option(help="Spark's master, or sc://… for Spark Connect.")] = "local[*]",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")] = None,
    parquet: Annotated[str | None, typer.Option(metavar="DIR", help="Write all tables as Parquet.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running, and keep everything up to date until Ctrl-C.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="With --follow: read lines from this topic.")] = None,
    reader_group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Read the topic as a member of it.  [default: holdfast-doctor-TOPIC]"),
    ] = None,
    keep: Annotated[str, typer.Option(metavar="TIME", help="With --follow: forget events after this time.")] = "7d",
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --follow: its checkpoint.  [default: in the --parquet folder]"),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Find who rebalances a group, what it costs and what to change: in logs of brokers and clients, traces, saved
    --describe outputs; or in a group that is watched for a while. Exit code 1 if something is wrong."""
    if follow:
        from holdfast.cli.doctor_follow import Wanted, check
        from holdfast.cli.doctor_follow import follow as stay

        asked = Wanted(
            paths=paths or [], topic=topic, reader_group=reader_group, kafka={}, group=group, master=master, html=html,
            parquet=parquet, checkpoint=checkpoint, keep=keep, output=output,
        )  # fmt: skip
        check(asked)
        stay(replace(asked, kafka=client_settings(bootstrap_server, command_config)) if topic is not None else asked)
        return
    if topic is not None or reader_group is not None or checkpoint is not None:
        wrong_use("DOCTOR_WHAT", "--topic, --reader-group and --checkpoint are for --follow.", "Add --follow.")
    if paths and (bootstrap_server is not None or command_config is not None):
        wrong_use(
            "DOCTOR_WHAT", "Both paths and a broker were given.", "Give files or folders, or a broker and --group."
        )
    if not paths:
        if group is None:
            wrong_use("DOCTOR_WHAT", "There is nothing to look at.", "Give files or folders, or a broker and --group.")
        if parquet is not None:
            wrong_use("DOCTOR_WHAT", "A live group has no Parquet tables.", "Give paths, or leave --parquet out.")
        found = _watched(client_settings(bootstrap_server, command_config), group, for_s)
        shown = f"{one_line(group)} was watched for {for_s:g} s."
        show(shown, found, [], html, output, extra={})
    else:
        found = _read(paths, group, master, html, parquet, output)
    if found["findings"]:
        raise typer.Exit(1)


# -- files


def _read(
    paths: list[str], group: str | None, master: str, html: Path | None, parquet: str | None, output: Output
) -> Tables:
    from holdfast.spark.doctor.job import Job
    from holdfast.spark.doctor.pieces import found_under, pieces_of
    from holdfast.spark.doctor.session import session

    with Progress() as progress:
        progress.say("looking for files")
        pieces = pieces_of(found_under(paths))
        progress.say(f"{counted(pieces.files, 'file')}, {size_text(pieces.size)}; starting Spark")
        with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as scratch:
            spark = session(master, Path(scratch))
            try:
                progress.watch(spark, f"reading {size_text(pieces.size)} in {counted(pieces.tasks, 'part')}")
                job = Job(spark, pieces, only=group)
                summary = job.summary()
                if group is not None and not summary.groups:
                    raise HoldfastError("DOCTOR_NO_SUCH_GROUP", f"nothing in the files is about {one_line(group)}.",
                                        "Leave --group out to see which groups there are.")  # fmt: skip
                found: Tables = {"groups": summary.groups, "findings": summary.findings}
                if html is not None:
                    progress.say("drawing")
                    drawn = worst(summary.groups)
                    found |= {name: rows for name, rows in job.drawn(drawn).items() if name not in found}
                    found["drawn"] = [{"group": name} for name in drawn]
                if parquet is not None:
                    progress.say("writing Parquet")
                    job.write(parquet)
                job.close()
            finally:
                spark.stop()
    show(read_line(summary), found, notes_of(summary), html, output, extra=extra_of(summary))
    return found


# -- a live group


def _watched(settings: dict[str, Any], group: str, for_s: float) -> Tables:
    from holdfast.cli.groups_shown import unknown_group
    from holdfast.cli.groups_watched import looks
    from holdfast.doctor.events import Event
    from holdfast.doctor.looks import Watched

    watched, events = Watched(group), list[Event]()
    with Interrupt() as interrupt, Progress() as progress:
        progress.say(f"watching {one_line(group)} for {for_s:g} s")

        async def work(cluster: Cluster) -> None:
            async for look in looks(cluster, [group], every_s=LOOK_S, for_s=for_s, stopped=interrupt.asked):
                found = look[group]
                if isinstance(found, HoldfastError):
                    if watched.history.last is None or not found.retriable:
                        raise unknown_group(group, found)  # as `groups check`: nobody is there to be watched
                    continue
                events.extend(watched.see(found, time.time() * 1000))

        ask(settings, work)
    if watched.history.last is None:
        print(f"holdfast: Stopped before {one_line(group)} was seen.", file=sys.stderr)
        raise typer.Exit(130)
    if not events:
        raise HoldfastError("DOCTOR_NOTHING_SEEN", f"{one_line(group)} was in a rebalance all the time.",
                            "Watch it for longer with --for.")  # fmt: skip
    found: Tables = {}
    for name, row in examined(group, events):
        found.setdefault(name, []).append(json.loads(json.dumps(row)))
    found.setdefault("findings", [])
    found["drawn"] = [{"group": group}]
    return found
