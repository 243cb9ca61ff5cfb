"""`holdfast demo`: PySpark queries of one group on an embedded broker; one joins, one drains, one is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import Interrupt, Output, OutputForm
from holdfast.cli.ui import ui_missing
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from holdfast.spark.pipeline.scene import SceneResult
    from holdfast.spark.pipeline.verdict import Effect


def demo(
    partitions: Annotated[int, typer.Option(min=3, max=100, help="Partitions of the topic.")] = 6,
    rate: Annotated[int, typer.Option(min=1, max=100_000, help="Orders a second.")] = 200,
    trigger: Annotated[str, typer.Option(help="Time between the starts of two batches.")] = "200ms",
    watch: Annotated[float, typer.Option(min=1, max=600, help="Seconds to watch after each event.")] = 6.0,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep sink, logs and traces there (a new folder).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Members that the page's buttons control, until Ctrl-C. No Spark.")
    ] = False,
    members: Annotated[int, typer.Option(min=1, max=12, help="With --live: members to begin with.")] = 3,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where the page listens; 0 takes a free port.")] = 8_642,
    output: OutputForm = Output.TABLE,
) -> None:
    """Play the scene: two streaming queries share a topic; a third joins, one drains, one is killed with kill -9.

    With --live: a group of Python consumers, and a page on which they are added, drained, killed, hung and restarted.
    Prints what moved, how long partitions stood still, and the records in, out, lost and doubled. Exit code 1 if any
    record was lost or doubled.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) if keep is None else keep.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if live:
            _live(folder, members=members, partitions=partitions, rate=rate, port=port, output=output)
        else:
            _play(folder, partitions=partitions, rate=rate, trigger=trigger, watch=watch, port=port, output=output)
    except HoldfastError:
        keep = folder if any(folder.iterdir()) else keep  # the error names a log in it
        raise
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _play(folder: Path, *, partitions: int, rate: int, trigger: str, watch: float, port: int, output: Output) -> None:
    """Run the demo to its end, or until a signal ends it."""
    from holdfast.spark.pipeline.python import need_pyspark
    from holdfast.spark.pipeline.scene import Scene, SceneOptions

    need_pyspark()
    options = SceneOptions(folder=folder, partitions=partitions, rate=rate, trigger=trigger, watch_s=watch)

    def say(text: str) -> None:
        typer.echo(text, err=output is Output.JSON)

    with Interrupt(second_ends=False) as interrupt, contextlib.ExitStack() as beside:
        result = Scene(
            options,
            say,
            opened=lambda at: _page_beside(beside, at, options.traces, port, say),
            check=interrupt.exit_if_asked,
        ).play()
    print(json.dumps(_as_json(result), sort_keys=True) if output is Output.JSON else _as_text(result))
    if not result.clean:
        raise typer.Exit(1)


def _page_beside(
    beside: contextlib.ExitStack, bootstrap: str, traces: Path, port: int, say: Callable[[str], None]
) -> None:
    """Serve the page while the demo runs. If the page is not installed, the demo goes on without it."""
    from holdfast.spark.pipeline.scene import GROUP

    try:
        from holdfast.ui.serving import Beside, Live, PageServer, listen_near
    except ModuleNotFoundError as error:
        say(f"          watch it on a page with: {ui_missing(error).do}")
        return
    server = PageServer(listen_near(port), Live(_page_settings(bootstrap), (GROUP,), (traces,)))
    beside.enter_context(Beside(server))
    say(f"          watch it while it plays: {server.link(live=GROUP)}")


def _page_settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "client.id": "holdfast-page", "default.api.timeout.ms": 10_000}


def _live(folder: Path, *, members: int, partitions: int, rate: int, port: int, output: Output) -> None:
    """Run the live demo until a signal ends it."""
    try:
        from holdfast.ui.live.demo import GROUP, Demo
        from holdfast.ui.serving import Live, PageServer, listen
    except ModuleNotFoundError as error:
        raise ui_missing(error) from error
    listening = listen("127.0.0.1", port)

    def say(text: str) -> None:
        typer.echo(text, err=output is Output.JSON)

    # Without our handler, SIGTERM would end only this process and leave the broker and the producer running.
    with Interrupt(second_ends=False) as interrupt:
        with Demo(
            folder, members=members, partitions=partitions, rate=rate, say=say, check=interrupt.exit_if_asked
        ) as demo:
            server = PageServer(listening, Live(_page_settings(demo.bootstrap), (GROUP,), (demo.traces,)), demo)
            interrupt.tells(server.end)
            link = server.link(live=GROUP)
            if output is Output.JSON:
                print(json.dumps({"url": link, "bootstrap": demo.bootstrap}), flush=True)
            else:
                print(f"The page: {link}\nThe broker: {demo.bootstrap}\nCtrl-C ends it.", flush=True)
            server.serve_until_ended()
        interrupt.exit_if_asked()


def _as_text(result: SceneResult) -> str:
    rows = [("EVENT", "MOVED", "PAUSE OF MOVED", "OF UNMOVED")]
    rows += [
        (one.event.what, _moves(one), _pause(one.moved_pause_s), _pause(one.unmoved_pause_s)) for one in result.effects
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = result.balance
    return "\n".join(
        [
            "",
            *lines,
            "",
            f"A pause is the time between two commits of a partition; undisturbed it was {result.steady_pause_s:.2f} s "
            "at most.",
            f"records in {counts.records_in:,}, out {counts.records_out:,}, lost {counts.lost:,}, "
            f"doubled {counts.doubled:,}; {result.seconds:.0f} s in all",
        ]
    )


def _moves(one: Effect) -> str:
    by_way: dict[tuple[str, str], list[int]] = {}
    for partition, way in one.moved.items():
        by_way.setdefault(way, []).append(partition.partition)
    parts = [
        f"{before} -> {after}: {','.join(map(str, numbers))}" for (before, after), numbers in sorted(by_way.items())
    ]
    return "; ".join(parts) or "nothing"


def _pause(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _as_json(result: SceneResult) -> dict[str, Any]:
    counts = result.balance
    return {
        "events": [
            {
                "event": one.event.what,
                "moved": {str(partition): list(way) for partition, way in sorted(one.moved.items())},
                "moved_pause_s": one.moved_pause_s,
                "unmoved_pause_s": one.unmoved_pause_s,
            }
            for one in result.effects
        ],
        "steady_pause_s": result.steady_pause_s,
        "records_in": counts.records_in,
        "records_out": counts.records_out,
        "lost": counts.lost,
        "doubled": counts.doubled,
        "seconds": round(result.seconds, 1),
    }
