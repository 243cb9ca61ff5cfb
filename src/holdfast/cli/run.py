"""`holdfast run -- COMMAND`: run a process that uses holdfast, and stop it without disturbing its groups.

SIGTERM and Ctrl-C ask its consumers to drain: they hand over what they own while they go on working, and only then does
the process get SIGTERM. It is killed if it does not end, and with --restart started again when it fails. The exit code
is the process's own. There is one line on standard error per event.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli.common import Output, OutputForm, show_error, wrong_use
from holdfast.model import HoldfastError

CONTROL = "HOLDFAST_CONTROL"


class Restart(StrEnum):
    NO = "no"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


def run(
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="What to run.")] = None,
    drain_timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="How long consumers may take to hand over.")
    ] = 20.0,
    grace: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="From SIGTERM to SIGKILL.")] = 10.0,
    restart: Annotated[Restart, typer.Option(help="When to start it again.")] = Restart.NO,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="In a row; a minute without a failure resets the count.")
    ] = 10,
    control: Annotated[
        str | None, typer.Option(metavar="PATH", envvar=CONTROL, help="The path of the socket for --drain.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Ask the process with this --control to drain; return when it has.")
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Run a process that uses holdfast: drained before it is stopped, restarted when it fails."""
    from holdfast.client.operate.supervisor import Orders, Supervisor, ask_to_drain

    if drain:
        if command or control is None:
            wrong_use("RUN_DRAIN", "--drain needs --control PATH and no command.", f"Or set {CONTROL}.")
        if not ask_to_drain(control, drain_timeout):
            show_error(
                HoldfastError(
                    "DRAIN_TIMED_OUT", f"not drained within {drain_timeout:g} s.", "It goes on until SIGTERM."
                )
            )
            raise typer.Exit(1)
        return
    if not command:
        wrong_use(
            "RUN_COMMAND_MISSING", "There is no command.", "Write for example holdfast run -- python consumer.py."
        )
    orders = Orders(
        command=tuple(command),
        control=control,
        drain_s=drain_timeout,
        grace_s=grace,
        restart=restart.value,
        max_restarts=max_restarts,
    )
    raise typer.Exit(Supervisor(orders, _json_line if output is Output.JSON else _line).run())


WORDS = {
    "started": "started {program} (pid {pid})",
    "signalled": "{signal}",
    "draining": "draining: {members} consumer(s) hand over",
    "drained": "drained in {took_ms} ms",
    "drain-timed-out": "{members} consumer(s) still not out after {after_s:g} s",
    "stopping": "SIGTERM to the process: {why}",
    "killed": "SIGKILL: it did not end within {after_s:g} s",
    "ended": "ended with code {code}",
    "restarting": "restart {restart} in {wait_s:g} s",
    "given-up": "given up after {restarts} restarts in a row",
}


def _line(event: str, **data: Any) -> None:
    print(f"holdfast run: {WORDS[event].format(**data)}", file=sys.stderr, flush=True)


def _json_line(event: str, **data: Any) -> None:
    print(json.dumps({"event": event, **data}, sort_keys=True), file=sys.stderr, flush=True)
