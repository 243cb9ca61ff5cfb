"""`holdfast broker`: a Kafka-compatible broker in one process, and the users that may log in to it.

It prints one ready line on standard output once clients can connect; everything else goes to standard error. SIGTERM,
SIGINT and SIGHUP (a closed terminal) shut it down cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import typer

from holdfast.broker.broker import Broker
from holdfast.broker.limits import MAX_CONNECTIONS, Limits
from holdfast.broker.security.rules import parse_rules
from holdfast.broker.security.scram import DEFAULT_ITERATIONS
from holdfast.broker.security.tls import check_given
from holdfast.broker.security.users import Users, load_users, save_users
from holdfast.broker.settings import BrokerSettings, Security
from holdfast.cli.common import Output, wrong_use
from holdfast.cli.listing import Listing
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.model import HoldfastError

DEFAULT_LISTEN = "127.0.0.1:9092"
LONGEST_SESSION_MS = CoordinatorSettings().group_max_session_timeout_ms
"""A shortest session above the longest one would keep everybody out of every group."""
SWITCH_SECONDS = 0.001
"""How long the event loop may wait for the GIL while another thread computes. Python's default of 5 ms adds up over the
calls of one request."""


def _not_empty(text: str) -> str:
    """An empty value is a shell variable that is not set: as a path it would mean this folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty.")
    return text


def _folder(text: str) -> Path:
    return Path(_not_empty(text))


class Flush(StrEnum):
    OS = "os"
    INTERVAL = "interval"
    ALWAYS = "always"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
user = typer.Typer(
    cls=Listing, help="Users who may log in, and what they may do.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(user, name="user")


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    listen: str = typer.Option(DEFAULT_LISTEN, help="HOST:PORT to listen on; port 0 takes a free one."),
    data: Path | None = typer.Option(None, parser=_folder, metavar="PATH", help="The folder that keeps everything."),
    memory: bool = typer.Option(False, "--memory", help="Keep everything in memory, and forget it at the end."),
    advertise: str | None = typer.Option(
        None, parser=_not_empty, metavar="HOST", help="The host that clients are told to connect to."
    ),
    rack: list[str] = typer.Option(
        [],
        parser=_not_empty,
        metavar="NAME",
        help="One simulated broker in this rack, on a port of its own. Repeat it.",
    ),
    partitions: int = typer.Option(1, min=1, max=10_000, help="Partitions of topics created without a number."),
    auto_create: bool = typer.Option(True, help="Create topics that clients ask for."),
    flush: Flush = typer.Option(Flush.OS, help="When records are forced to disk: see the docs on durability."),
    rebalance_delay_ms: int = typer.Option(3_000, min=0, help="How long a group's first round waits for members."),
    min_session_timeout_ms: int = typer.Option(
        6_000, min=1, max=LONGEST_SESSION_MS, help="The shortest session timeout a member may ask for."
    ),
    max_connections: int = typer.Option(
        MAX_CONNECTIONS, min=1, max=100_000, help="Connections at a time; a client keeps 2 to 4."
    ),
    tls_cert: Path | None = typer.Option(None, help="PEM file with the certificate chain: turns TLS on."),
    tls_key: Path | None = typer.Option(None, help="PEM file with the private key, if it is not in --tls-cert."),
    tls_client_ca: Path | None = typer.Option(None, help="Clients need a certificate signed by one of these."),
    users: Path | None = typer.Option(None, help="The users file; see `holdfast broker user`."),
    insecure: bool = typer.Option(False, "--insecure", help="Allow what is refused because it is not protected."),
    trace: Path | None = typer.Option(None, help="Write the coordinator's trace records here, as JSON lines."),
    output: Output = typer.Option(Output.TABLE, "-o", "--output", help="Form of the ready line."),
) -> None:
    """Run a Kafka-compatible broker in this process."""
    if context.invoked_subcommand is not None:
        return
    if memory and data is not None:
        wrong_use("DATA_OR_MEMORY", "--data keeps the records in a folder, --memory does not.", "Give one of the two.")
    if not memory and data is None:
        wrong_use("DATA_OR_MEMORY", "A broker keeps its records in a folder or in memory.", "Give --data or --memory.")
    security = Security(certificate=tls_cert, key=tls_key, client_ca=tls_client_ca, users=users, insecure=insecure)
    try:
        check_given(security)
    except HoldfastError as error:
        wrong_use(error.code, error.what, error.do)
    host, port = _address(listen)
    settings = BrokerSettings(
        host=host,
        port=port,
        advertised_host=advertise,
        data=data,
        racks=tuple(rack),
        auto_create_topics=auto_create,
        default_partitions=partitions,
        flush=flush.value,
        groups=replace(
            CoordinatorSettings(),
            group_initial_rebalance_delay_ms=float(rebalance_delay_ms),
            group_min_session_timeout_ms=min_session_timeout_ms,
        ),
        limits=Limits(max_connections=max_connections),
        security=security,
        trace=trace,
    )
    _log_to_stderr()
    sys.setswitchinterval(SWITCH_SECONDS)
    _take_all_files()
    asyncio.run(_serve(settings, output))


class _Dated(logging.Formatter):
    """Puts the time, in UTC, in front of every line."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Dated("%(asctime)s holdfast broker: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _take_all_files() -> None:
    """Raise the limit of open files as far as allowed: a shell's usual 1,024 is too low for a large group."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: BrokerSettings, output: Output) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup: it is to outlive its terminal
        loop.add_signal_handler(number, stopping.set)
    async with Broker(settings) as running:
        node = running.state.nodes[0]
        if output is Output.JSON:
            line = json.dumps(
                {"bootstrap": running.bootstrap, "host": node.host, "pid": os.getpid(), "port": node.port},
                sort_keys=True,
            )
        else:
            line = f"ready on {running.bootstrap} (pid {os.getpid()})"
        print(line, flush=True)
        await stopping.wait()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        wrong_use("LISTEN_INVALID", f"{text!r} is not an address to listen on.", f"Write HOST:PORT: {DEFAULT_LISTEN}.")
    return host, int(port)


# -- users

USERS = typer.Option(..., "--users", help="The users file.")


@user.command()
def add(
    name: str = typer.Argument(help="The user's name."),
    users: Path = USERS,
    allow: list[str] = typer.Option([], help="A rule, as read,write:topic:orders-* or read:group:billing or all."),
    password_file: Path | None = typer.Option(None, help="A file with the password; otherwise it is asked for."),
    iterations: int = typer.Option(
        DEFAULT_ITERATIONS, help="Hash iterations, which make guessing slow: 4,096 to 100,000."
    ),
) -> None:
    """Add a user, or give one a new password and new rules."""
    for text in allow:
        parse_rules(text)
    if password_file is not None:
        password = _read_password(password_file)
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    before = load_users(users)
    save_users(users, before.with_user(name, password, allow=allow, iterations=iterations))
    done = "has a new password and new rules" if name in before.by_name else "was added"
    if allow:
        typer.echo(f"{name} {done}, and may: {' '.join(allow)}", err=True)
    else:
        typer.echo(f"{name} {done}, and may do nothing yet: add the user again with --allow.", err=True)


@user.command()
def remove(name: str = typer.Argument(help="The user's name."), users: Path = USERS) -> None:
    """Remove a user."""
    save_users(users, _there(users).without_user(name))
    typer.echo(f"{name} was removed.", err=True)


@user.command(name="list")
def list_users(
    users: Path = USERS,
    output: Output = typer.Option(Output.TABLE, "-o", "--output", help="Form of the list."),
) -> None:
    """List the users and what they may do."""
    found = {name: list(entry.allow) for name, entry in sorted(_there(users).by_name.items())}
    if output is Output.JSON:
        print(json.dumps(found, sort_keys=True))
        return
    for name, allow in found.items():
        print(f"{name}  {' '.join(allow) or '(nothing)'}")


def _there(path: Path) -> Users:
    """The users of a file that must exist: a misspelt name must not look like a file without users."""
    if not path.exists():
        raise HoldfastError("NO_USERS", f"There is no file {path}.", "Correct the name, or add a user to create it.")
    return load_users(path)


def _read_password(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(
            "NO_PASSWORD", f"{path} can't be read: {error}.", "Give a file with the password."
        ) from error
