"""The page's server: where it listens, its link, and how it runs and ends."""

from __future__ import annotations

import secrets
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import uvicorn

from holdfast.model import HoldfastError
from holdfast.ui.app import page
from holdfast.ui.live.answers import Acts
from holdfast.ui.live.hub import Hub
from holdfast.ui.live.tails import check_paths

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATIENCE_S = 1
"""How long shutdown waits for clients that have not read an answer or not finished a request."""
START_S = 30.0


class Live(NamedTuple):
    """The groups that the page shows."""

    settings: dict[str, Any]
    groups: tuple[str, ...] = ()
    traces: tuple[Path, ...] = ()
    trace_topic: str = ""


class PageServer(uvicorn.Server):
    """Tells the page about the shutdown first, because an answer that is being computed would delay it."""

    def __init__(self, listening: socket.socket, live: Live | None = None, acts: Acts | None = None) -> None:
        if live is not None:
            check_paths(live.traces)
        self.token = secrets.token_urlsafe(24)
        self._listening = listening
        self.hub = None if live is None else _hub_of(live)
        self._app = page(self.token, self.hub, acts)
        super().__init__(
            uvicorn.Config(
                self._app,
                log_level="warning",
                server_header=False,
                date_header=False,
                lifespan="off",
                timeout_graceful_shutdown=PATIENCE_S,
            )
        )

    def link(self, **words: str) -> str:
        """The link to open; `words` say what is shown first."""
        host, port = self._listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/?{urlencode(words)}#token={self.token}"

    def serve_until_ended(self) -> None:
        """Serve until a signal comes, or `end` is called."""
        self.run(sockets=[self._listening])

    def end(self) -> None:
        """May be called from any thread or signal handler, also before it serves."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.ending.set()
        if self.hub is not None:
            await self.hub.close()
        await super().shutdown(sockets)


def _hub_of(live: Live) -> Hub:
    return Hub(live.settings, groups=live.groups, traces=live.traces, trace_topic=live.trace_topic)


class Beside:
    """Serves the page on a thread, while this process does something else."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self._thread = threading.Thread(target=server.serve_until_ended, name="holdfast-page", daemon=True)

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self.server

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.end()
        self._thread.join(START_S)


def listen(host: str, port: int) -> socket.socket:
    if host not in LOOPBACK:
        raise HoldfastError("NOT_LOOPBACK", f"{host} can be reached by others.", "Use 127.0.0.1, or a tunnel to it.")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise HoldfastError(
            "PORT_TAKEN", f"port {port} can't be opened: {error.strerror}.", "Give another --port, or 0 for a free one."
        ) from error


def listen_near(port: int) -> socket.socket:
    """Listen on this port, or on any free one."""
    try:
        return listen("127.0.0.1", port)
    except HoldfastError:
        return listen("127.0.0.1", 0)
