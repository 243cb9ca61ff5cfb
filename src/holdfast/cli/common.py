"""What the commands that talk to a cluster share: how to reach it, the form of the output, and how a run ends.

The brokers' addresses come from --bootstrap-server, else from the --command-config file, else from the environment. The
file holds Kafka's own keys, as for Kafka's tools; the same file is used for our own connections and for librdkafka.

It knows no command, and imports a client only when one is needed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster

T = TypeVar("T")

ENVIRONMENT = "KAFKA_BOOTSTRAP_SERVERS"

ANSWER_MS = 10_000
"""How long a command waits for a cluster that does not answer. Kafka's default of a minute is for services."""


SILENCE_S = 2.0
"""How long a command that can't reach a broker stays quiet: a broker that restarts is usually back by then."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help=f"Brokers to ask first.  [default: ${ENVIRONMENT}]"
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", help="Properties for the connection: TLS, SASL and the like."),
]
OutputForm = Annotated[Output, typer.Option("-o", "--output", help="Form of the output.")]


def wrong_use(code: str, what: str, do: str) -> NoReturn:
    """The command line is wrong: print one line and exit with code 2."""
    show_error(HoldfastError(code, what, do))
    raise typer.Exit(2)


def show_error(error: HoldfastError) -> None:
    """Print an error in the form that `main` uses, for commands that go on after it."""
    typer.echo(f"holdfast: {error.code}: {error.what} {error.do}", err=True)


def client_settings(bootstrap: str | None, command_config: Path | None) -> dict[str, Any]:
    """Kafka's keys from the options, the file and the environment, in this order."""
    found: dict[str, Any] = {}
    if command_config is not None:
        from holdfast.net.config import read_properties

        found.update(read_properties(command_config))
    servers = bootstrap or found.get("bootstrap.servers") or os.environ.get(ENVIRONMENT)
    if not servers:
        wrong_use(
            "BOOTSTRAP_MISSING", "No broker was named.", f"Give --bootstrap-server HOST:PORT or set {ENVIRONMENT}."
        )
    check_servers(str(servers))
    found["bootstrap.servers"] = servers
    found.setdefault("client.id", "holdfast-cli")
    found.setdefault("default.api.timeout.ms", ANSWER_MS)
    return found


def check_servers(servers: str) -> None:
    """In every command, a value that is not a list of addresses is wrong use."""
    from holdfast.net.config import parse_bootstrap

    try:
        parse_bootstrap(servers)
    except HoldfastError as error:
        wrong_use(error.code, error.what, error.do)


def ask(settings: Mapping[str, Any], work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Open a cluster, run `work` with it, and close it."""
    from holdfast.net.cluster import Cluster
    from holdfast.net.config import client_config

    config = client_config(settings)

    async def run() -> T:
        async with Cluster(config) as cluster:
            patience = Patience(settings["bootstrap.servers"], config.lookup_timeout_s)
            cluster.watchers.append(lambda at, error: patience.heard(None if error is None else error.what, at))
            timer = asyncio.get_running_loop().call_later(SILENCE_S, patience.tell)
            try:
                return await work(cluster)
            finally:
                timer.cancel()

    return asyncio.run(run())


class Patience:
    """Prints one line if a command can't connect for seconds: what it tries, and why that fails."""

    def __init__(self, servers: str, limit_s: float) -> None:
        self._servers = servers
        self._limit_s = limit_s
        self._reached: set[object] = set()
        self._why: str | None = None

    def heard(self, why: str | None, address: object = None) -> None:
        """Why an attempt to connect failed; None if it succeeded."""
        if why is None:
            self._reached.add(address)
        else:
            self._reached.discard(address)
            self._why = why

    def tell(self) -> None:
        if not self._reached:
            why = self._why or f"No answer from {self._servers} yet."
            typer.echo(f"holdfast: {why} Still trying, for {self._limit_s:g} s in all.", err=True)


# -- librdkafka

JAVA_ONLY = frozenset(
    {
        "bootstrap.controllers",
        "default.api.timeout.ms",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "metric.reporters",
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "ssl.enabled.protocols",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "value.deserializer",
        "value.serializer",
    }
)
"""Keys for Kafka's Java tools that librdkafka refuses. Their settings for TLS and SASL are translated."""


def librdkafka_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under librdkafka's names. Wrong ones are refused here, before librdkafka is loaded."""
    from holdfast.net.config import client_config

    security = client_config(settings).security
    kept = {key: value for key, value in settings.items() if key not in JAVA_ONLY}
    kept["security.protocol"] = security.protocol
    if security.tls is not None:
        tls = security.tls
        told = {
            "ssl.ca.location": tls.ca_location,
            "ssl.ca.pem": tls.ca_pem,
            "ssl.certificate.location": tls.certificate_location,
            "ssl.certificate.pem": tls.certificate_pem,
            "ssl.key.location": tls.key_location or (tls.certificate_location if tls.key_pem is None else None),
            "ssl.key.pem": None if tls.key_pem is None else tls.key_pem.reveal(),
            "ssl.key.password": None if tls.key_password is None else tls.key_password.reveal(),
            "ssl.endpoint.identification.algorithm": "https" if tls.verify_host_name else "none",
        }
        kept.update({key: value for key, value in told.items() if value is not None})
    if security.sasl is not None:
        kept.pop("sasl.mechanisms", None)
        kept["sasl.mechanism"] = security.sasl.mechanism
        kept["sasl.username"] = security.sasl.user
        kept["sasl.password"] = security.sasl.password.reveal()
    return kept


def kafka_error(error: Any, what: str, do: str) -> HoldfastError:
    """librdkafka's `KafkaError` as one of ours: its name is the code, its text is kept."""
    said = str(error.str()).strip().rstrip(".")
    if said.partition(" ")[0].isalpha():  # a word, not an address
        said = f"{said[:1].upper()}{said[1:]}"
    return HoldfastError(str(error.name()).lstrip("_"), f"{what} {said}.", do)


# -- the end of a run


class Interrupt:
    """Ctrl-C, SIGTERM and SIGHUP (a closed terminal) as a flag: a run ends cleanly. A second one ends it at once.

    The handler raises nothing: Python drops exceptions inside a `__del__` or while a module is imported, and the signal
    would be lost.

    With `second_ends=False` a second signal does not end the run at once, which would leave processes that it has
    started behind.
    """

    def __init__(self, *, second_ends: bool = True) -> None:
        self._second_ends = second_ends
        self._asked = False
        self._number = 0
        self._tell: Callable[[], None] = lambda: None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup: the run is to outlive its terminal
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def asked(self) -> bool:
        return self._asked

    def tells(self, tell: Callable[[], None]) -> None:
        """Call this when a signal comes, or now if one has come."""
        self._tell = tell
        if self._asked:
            tell()

    def exit_if_asked(self) -> None:
        """Exit with the code that a shell reports for a process ended by a signal."""
        if self._asked:
            raise SystemExit(128 + self._number)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._asked, self._number = True, number
        if self._second_ends:
            self._restore()
        self._tell()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
