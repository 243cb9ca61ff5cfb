"""`holdfast ui`: the page on which one watches a rebalance happen."""

from __future__ import annotations

import json
import secrets
import socket
from typing import Annotated

import typer

from holdfast.cli.common import Output, OutputForm
from holdfast.model import HoldfastError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATIENCE_S = 1
"""How long the end waits for whoever has not read an answer or not finished a question."""


def ui(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes a free port.")] = 8_642,
    host: Annotated[str, typer.Option(help="A loopback address.")] = "127.0.0.1",
    scene: Annotated[str, typer.Option(help="The ready scene to open with.", metavar="NAME")] = "tick8",
    output: OutputForm = Output.TABLE,
) -> None:
    """Serve the page: a group's lanes, members and coordinator while it rebalances, in virtual time.

    Prints a link with a token; whoever has it may use the page, on this machine. Ctrl-C ends it.
    """
    if host not in LOOPBACK:
        raise HoldfastError("NOT_LOOPBACK", f"{host} can be reached by others.", "Use 127.0.0.1, or a tunnel to it.")
    try:
        import uvicorn

        from holdfast.ui.app import page
    except ModuleNotFoundError as error:
        raise HoldfastError(
            "UI_MISSING", f"the page needs {error.name}, which is not installed.", "pip install 'holdfast[ui]'"
        ) from error
    from holdfast.sim.ready import scene_named

    scene_named(scene)
    listening = _listen(host, port)
    token = secrets.token_urlsafe(24)
    shown = f"[{host}]" if ":" in host else host
    link = f"http://{shown}:{listening.getsockname()[1]}/?scene={scene}#token={token}"
    print(json.dumps({"url": link}) if output is Output.JSON else f"The page: {link}\nCtrl-C ends it.", flush=True)
    app = page(token)

    class Server(uvicorn.Server):
        """Tells the page first that it ends: an answer in work would hold up the end until it is there."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.ending.set()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        date_header=False,
        lifespan="off",
        timeout_graceful_shutdown=PATIENCE_S,
    )
    Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise HoldfastError(
            "PORT_TAKEN", f"port {port} can't be opened: {error.strerror}.", "Give another --port, or 0 for a free one."
        ) from error
