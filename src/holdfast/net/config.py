"""Client configuration under Kafka's and librdkafka's own keys: from a mapping, or from a properties file.

Shared by the consumer, the Spark source and the command line (`--command-config`). Keys that have no meaning here are
ignored: other code reads the same mapping.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError
from holdfast.net.security import Security, security_from
from holdfast.records.compression import LIMITS, Limits

DEFAULT_PORT = "9092"

NO_SERVERS: tuple[str, ...] = ()
"""Stands for "no bootstrap servers", where that is intended. Every look-up then fails when its time is up."""

MAX_PROPERTIES_BYTES = 1_000_000
"""A configuration file is a page or two; something larger is the wrong file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster. Defaults are Kafka's."""

    bootstrap: tuple[tuple[str, int], ...]
    security: Security
    client_id: str = "holdfast"
    family: int = socket.AF_UNSPEC
    """Which addresses of a broker are tried (broker.address.family)."""
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    lookup_timeout_s: float = 60.0
    """How long a look-up of metadata or a coordinator may take, with all retries (default.api.timeout.ms)."""
    backoff_s: float = 0.1
    backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    topic_patience_s: float = 30.0
    """How long a known topic counts as existing while answers don't contain it (topic.metadata.propagation.max.ms)."""


def client_config(config: Mapping[str, Any]) -> ClientConfig:
    """The part of a configuration that is about reaching the cluster."""
    servers = config.get("bootstrap.servers")
    if servers != NO_SERVERS:
        servers = servers or config.get("metadata.broker.list")
    if not servers and servers != NO_SERVERS:
        raise HoldfastError(
            "BOOTSTRAP_MISSING",
            "bootstrap.servers is not set.",
            "Set it to host:port of one or more brokers, or set KAFKA_BOOTSTRAP_SERVERS for the command line.",
        )
    return ClientConfig(
        bootstrap=parse_bootstrap(servers) if servers else (),
        security=security_from(config),
        client_id="holdfast" if config.get("client.id") is None else str(config["client.id"]),
        family=_family(config),
        request_timeout_s=_seconds(config, ("request.timeout.ms", "socket.timeout.ms"), 30_000),
        connect_timeout_s=_seconds(config, ("socket.connection.setup.timeout.ms",), 10_000),
        lookup_timeout_s=_seconds(config, ("default.api.timeout.ms",), 60_000),
        backoff_s=_seconds(config, ("retry.backoff.ms",), 100),
        backoff_max_s=_seconds(config, ("retry.backoff.max.ms",), 1_000),
        metadata_max_age_s=_metadata_age_s(config),
        topic_patience_s=_seconds(config, ("topic.metadata.propagation.max.ms",), 30_000),
    )


MAX_BATCH_KEY = "holdfast.max.batch.bytes"
LARGEST_BATCH_BYTES = 2**30
"""Arrow counts a column's bytes with 32 bits."""


def unpack_limits(config: Mapping[str, Any]) -> Limits:
    """How much one compressed batch may unpack to."""
    value = config.get(MAX_BATCH_KEY)
    if value is None:
        return LIMITS
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= LARGEST_BATCH_BYTES):
        what = f"{MAX_BATCH_KEY} is {value!r}, not a number of bytes."
        raise HoldfastError("CONFIG_INVALID", what, f"Give 1 to {LARGEST_BATCH_BYTES}.")
    return Limits(max_bytes=int(text))


def _metadata_age_s(config: Mapping[str, Any]) -> float:
    """0 means that the caller decides. So does -1, with which librdkafka never refreshes: added partitions would go
    unnoticed."""
    if config.get("metadata.max.age.ms") is None and str(config.get("topic.metadata.refresh.interval.ms")) == "-1":
        return 0.0
    return _seconds(config, ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"), 300_000)


def _family(config: Mapping[str, Any]) -> int:
    name = str(config.get("broker.address.family") or "any").lower()
    found = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}.get(name)
    if found is None:
        raise HoldfastError("CONFIG_INVALID", f"broker.address.family is {name!r}.", "Use any, v4 or v6.")
    return found


def parse_bootstrap(servers: str | list[str] | tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """`"host:9092,[::1]:9093"` or a list of such. The port defaults to 9092."""
    listed = servers.split(",") if isinstance(servers, str) else [str(server) for server in servers]
    found = tuple(_address(server.strip()) for server in listed if server.strip())
    if not found:
        raise HoldfastError("BOOTSTRAP_INVALID", "bootstrap.servers names no server.", "Give host:port.")
    return found


def _address(server: str) -> tuple[str, int]:
    _, scheme, rest = server.rpartition("://")
    server = rest if scheme else server
    if server.startswith("["):
        host, _, port = server[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = server.partition(":")
    port = port or DEFAULT_PORT
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise HoldfastError(
            "BOOTSTRAP_INVALID", f"{server!r} is not host:port.", "Write for instance broker1:9092 or [::1]:9092."
        )
    return host, int(port)


def _seconds(config: Mapping[str, Any], names: tuple[str, ...], default_ms: int) -> float:
    for name in names:
        if config.get(name) is not None:
            try:
                value = float(config[name])
            except (TypeError, ValueError):
                value = -1.0
            if not 0 <= value < float("inf"):
                raise HoldfastError("CONFIG_INVALID", f"{name} is not a number of milliseconds.", "Give 0 or more.")
            return value / 1000.0
    return default_ms / 1000.0


def read_properties(path: str | Path) -> dict[str, str]:
    """A properties file as Kafka's own tools take it."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_PROPERTIES_BYTES:
            raise HoldfastError(
                "CONFIG_UNREADABLE", f"{path} is larger than {MAX_PROPERTIES_BYTES} bytes.", "Is it the right file?"
            )
        text = file.read_text("utf-8")
    except OSError as error:
        raise HoldfastError(
            "CONFIG_UNREADABLE", f"{path} can't be read: {error.strerror}.", "Check the path and its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise HoldfastError("CONFIG_UNREADABLE", f"{path} is not UTF-8 text.", "Is it the right file?") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` or `key: value` lines, # and ! comments, a backslash continues a line."""
    found: dict[str, str] = {}
    pending = ""
    for line in text.splitlines():
        line = pending + line.lstrip()
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        _take(found, line)
    if pending:
        _take(found, pending)
    return found


def _take(found: dict[str, str], line: str) -> None:
    if not line or line[0] in "#!":
        return
    at = min((place for place in (line.find("="), line.find(":")) if place >= 0), default=len(line))
    found[line[:at].strip()] = line[at + 1 :].strip().replace("\\\\", "\\")
