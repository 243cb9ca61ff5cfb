"""`holdfast ui`: serves the page on which you watch a rebalance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.common import BootstrapServer, CommandConfig, Output, OutputForm, client_settings
from holdfast.model import HoldfastError


def ui(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes a free port.")] = 8_642,
    host: Annotated[str, typer.Option(help="A loopback address.")] = "127.0.0.1",
    scene: Annotated[str, typer.Option(help="The ready scene to open with.", metavar="NAME")] = "tick8",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    group: Annotated[list[str] | None, typer.Option(help="Show this live group; all if none is named.")] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Trace files of members and brokers, or a folder of them. Repeat it."),
    ] = None,
    trace_topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="A topic with the members' traces (`holdfast.trace.topic`).")
    ] = "",
    output: OutputForm = Output.TABLE,
) -> None:
    """Serve the page: a group's lanes, members and coordinator while it rebalances, simulated or live.

    With --bootstrap-server it shows the groups of a cluster, which it only reads. Prints a link with a token; anybody
    on this machine who has it may use the page. Ctrl-C ends it.
    """
    try:
        from holdfast.ui.serving import Live, PageServer, listen
    except ModuleNotFoundError as error:
        raise ui_missing(error) from error
    from holdfast.sim.ready import scene_named

    scene_named(scene)
    live = None
    if bootstrap_server or command_config or group or trace or trace_topic:
        settings = client_settings(bootstrap_server, command_config)
        live = Live(settings, tuple(group or ()), tuple(trace or ()), trace_topic)
    server = PageServer(listen(host, port), live)
    link = server.link(scene=scene) if live is None else server.link(live=live.groups[0] if live.groups else "")
    print(json.dumps({"url": link}) if output is Output.JSON else f"The page: {link}\nCtrl-C ends it.", flush=True)
    server.serve_until_ended()


def ui_missing(error: ModuleNotFoundError) -> HoldfastError:
    what = f"the page needs {error.name}, which is not installed."
    return HoldfastError("UI_MISSING", what, "pip install 'holdfast[ui]'")
