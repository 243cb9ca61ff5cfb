"""The broker: store, groups, users, listeners and housekeeping, put together on one event loop.

    async with Broker(settings) as broker:      listening from here on
        print(broker.bootstrap)

Everything runs on the loop that started it. Starting refuses what would be unsafe before anything is opened; stopping
answers waiting clients, closes connections and leaves the data folder in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import re
from pathlib import Path
from types import TracebackType

from holdfast.broker.clock import Clock, SystemClock
from holdfast.broker.dispatch import Dispatcher
from holdfast.broker.faults import Faults
from holdfast.broker.flusher import Flusher
from holdfast.broker.groups import Groups
from holdfast.broker.security.tls import check_exposure, server_context
from holdfast.broker.security.users import Users, load_users
from holdfast.broker.server import Server
from holdfast.broker.settings import BrokerSettings
from holdfast.broker.state import Node, State
from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy
from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace import TraceFile

log = logging.getLogger("holdfast.broker")

HOUSEKEEPING_SECONDS = 0.5
"""Interval flushes are at least a second apart; files are removed soon, and retention has its share of work in each."""
MAX_RACKS = 64
"""One listener each."""
MAX_PORT = 65_535
KAFKAS_FILE = "meta.properties"
"""Every log directory of Kafka has one."""

_NOT_IN_A_NAME = re.compile(r"[^\w.-]")


class Broker:
    """One broker in one process."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        users: Users | None = None,
        faults: Faults | None = None,
    ) -> None:
        """`users` stands in for the users file, `faults` outlives this broker: both are for tests."""
        self.settings = settings
        self.clock: Clock = SystemClock() if clock is None else clock
        self.faults = Faults() if faults is None else faults
        self._users = users
        self._stack = contextlib.ExitStack()
        self._housekeeper: asyncio.TimerHandle | None = None
        self._server: Server | None = None
        self._state: State | None = None
        self._trace: TraceFile | None = None

    @property
    def state(self) -> State:
        assert self._state is not None, "the broker was not started"
        return self._state

    @property
    def server(self) -> Server:
        assert self._server is not None, "the broker was not started"
        return self._server

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap.servers."""
        return ",".join(address_text(node.host, node.port) for node in self.state.nodes)

    # Starting

    async def start(self) -> None:
        settings = self.settings
        users = self._load_users()
        check_exposure(settings.host, settings.security, users=bool(users))
        check_advertised(settings.advertised_host or settings.host)
        check_not_kafkas(settings.data)
        tls = server_context(settings.security)
        try:
            self._open(users)
            self._server = Server(
                limits=settings.limits,
                dispatch=Dispatcher(self.state, self.faults),
                limited_log=self.state.limited_log,
                tls=tls,
                login_required=bool(users),
            )
            self.state.nodes = tuple(self._listen(self._server))
        except BaseException:
            await self.stop()
            raise
        self.state.groups.start(self.state.partition_exists)
        self._keep_house()

    def _load_users(self) -> Users:
        """A users file without users is treated as a mistake: it would leave the broker open to everybody."""
        path = self.settings.security.users
        if self._users is not None or path is None:
            return self._users or Users()
        users = load_users(path, others_may=self.settings.security.insecure)
        if not users and not path.exists():
            raise HoldfastError(
                "NO_USERS",
                f"There is no file {path}.",
                "Correct the name, or create it with `holdfast broker user add`.",
            )
        if not users:
            raise HoldfastError(
                "NO_USERS", f"{path} names nobody.", "Add users with `holdfast broker user add`, or leave out --users."
            )
        return users

    def _open(self, users: Users) -> None:
        settings, clock = self.settings, self.clock
        try:
            store = Store(
                settings.data,
                clock=clock.wall_ms,
                steady=clock.now_ms,
                flush=FlushPolicy(settings.flush),
                flush_interval_ms=settings.flush_interval_ms,
            )
        except OSError as error:
            raise _unusable(settings.data, error) from error
        self._stack.callback(store.close)
        for recovery in store.recoveries:
            log.warning("%s: %s", recovery.kind, recovery)
        store.on_recovery = _report
        if settings.trace is not None:
            self._trace = self._stack.enter_context(TraceFile(settings.trace))
        flusher = Flusher(store)
        groups = Groups(
            journal=store.journal("groups"),
            clock=clock,
            settings=settings.groups,
            flusher=flusher,
            trace=None if self._trace is None else self._write_trace,
        )
        self._state = State(
            settings=settings,
            store=store,
            clock=clock,
            flusher=flusher,
            groups=groups,
            users=users,
            unsent_bytes=lambda: 0 if self._server is None else self._server.unsent_bytes,
        )

    def _listen(self, server: Server) -> list[Node]:
        """One listener, or one per rack: clients take two brokers at one address for the same broker."""
        settings = self.settings
        racks: tuple[str | None, ...] = settings.racks or (None,)
        if len(racks) > MAX_RACKS:
            raise HoldfastError("TOO_MANY_RACKS", f"{len(racks)} racks were given.", f"Use at most {MAX_RACKS}.")
        host = settings.advertised_host or settings.host
        if settings.port + len(racks) - 1 > MAX_PORT:
            raise HoldfastError(
                "CANNOT_LISTEN",
                f"{len(racks)} racks need as many ports, and there are not so many from {settings.port} on.",
                f"Choose a --listen port of {MAX_PORT - len(racks) + 1} at most.",
            )
        nodes = []
        for number, rack in enumerate(racks):
            port = settings.ports[number] if settings.ports else settings.port + number if settings.port else 0
            nodes.append(Node(number, host, server.listen(settings.host, port, node_id=number), rack))
        return nodes

    def _write_trace(self, record: TraceRecord) -> None:
        """A trace that can't be written must not stop a group: say so once, and go on without it."""
        if self._trace is None:
            return
        try:
            self._trace.write(record)
        except OSError as error:
            log.error("the trace can't be written, and ends here: %s", error)
            self._trace = None

    # Running

    def _keep_house(self) -> None:
        self.state.flusher.tick()
        self.state.groups.keep_house()
        self.state.cleaner.tick()
        try:
            self.state.store.keep_house()
        except StorageError as error:
            log.error("%s %s", error.what, error.do)
        self._housekeeper = asyncio.get_running_loop().call_later(HOUSEKEEPING_SECONDS, self._keep_house)

    # Stopping

    async def stop(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.cancel()
        if self._state is not None and self._server is not None:
            self._state.groups.stop()
            await self._state.groups.drained()
        if self._server is not None:
            await self._server.stop()
        if self._state is not None:
            await self._state.changes.drained()
            await self._state.flusher.drained()
            self._state.slices.stop()
            self._state.collector.let_go()
            await self._state.cleaner.drained()
            self._state.compiled.stop()
        self._stack.close()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_advertised(host: str) -> None:
    """Clients connect to the advertised address: it must be one host's name or address, not "every address" or more
    than a host."""
    if _NOT_IN_A_NAME.search(host) and not _is_address(host):
        raise HoldfastError(
            "ADVERTISE_INVALID",
            f"{host!r} is not the name or the address of a host, and clients could not connect to it.",
            "Give --advertise the host alone; its port is the one of --listen.",
        )
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared with, not listened on
        raise HoldfastError(
            "ADVERTISE_NEEDED",
            f"Clients can't be told to connect to {host}.",
            "Give --advertise with the name or address by which they reach this machine.",
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_not_kafkas(folder: Path | None) -> None:
    """Refuse the folder of an Apache Kafka. It would look empty to us; and Kafka does not start any more once there are
    other folders in its own."""
    if folder is not None and (folder / KAFKAS_FILE).exists() and not (folder / "catalog").exists():
        raise HoldfastError(
            "DATA_FOLDER_UNUSABLE",
            f"{folder} can't be used as the data folder: it belongs to an Apache Kafka ({KAFKAS_FILE}).",
            "Choose another --data folder; the records of a Kafka can't be taken over.",
        )


def _unusable(folder: Path | None, error: OSError) -> HoldfastError:
    at = "" if error.filename is None or Path(error.filename) == folder else f" ({error.filename})"
    why = "it is not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror or error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HoldfastError(
            "DATA_FOLDER_UNUSABLE",
            f"{folder} can't be used as the data folder: {why}{at}; the disk or the quota is full.",
            "Free some space, or choose a --data folder on another disk.",
        )
    return HoldfastError(
        "DATA_FOLDER_UNUSABLE",
        f"{folder} can't be used as the data folder: {why}{at}.",
        "Choose a --data folder that this user may read and write, or change its owner with chown.",
    )


def _report(recovery: Recovery) -> None:
    log.warning("%s: %s", recovery.kind, recovery)
