"""What a broker can be told. The command line and `holdfast.testing.Broker` make one of these; nothing else configures
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.broker.limits import Limits
from holdfast.group.coordinator.settings import CoordinatorSettings

DEFAULT_PARTITIONS = 1
"""Kafka's num.partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Who may connect, and how."""

    certificate: Path | None = None
    """TLS is on when there is one: a PEM file with the certificate and those that vouch for it."""
    key: Path | None = None
    """Its private key, if it is not in the same file."""
    client_ca: Path | None = None
    """Clients must show a certificate that one of these signed. SASL still says who they are."""
    users: Path | None = None
    """The users file. Once it names anybody, a login is required and everything not allowed is denied."""
    insecure: bool = False
    """Listen beyond loopback without TLS and SASL, and take PLAIN passwords without TLS: the user said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    host: str = "127.0.0.1"
    port: int = 9092
    """0 takes a free one. With racks it is the first one's, and the others have the next ones."""
    ports: tuple[int, ...] = ()
    """The port of each rack's broker, where they don't follow each other."""
    advertised_host: str | None = None
    """What clients are told to connect to; None: the host itself."""
    data: Path | None = None
    """The data folder; None keeps everything in memory."""
    racks: tuple[str, ...] = ()
    """One simulated broker per name, each with a port of its own: client.rack and rack-aware assignment on one
    machine."""
    auto_create_topics: bool = True
    default_partitions: int = DEFAULT_PARTITIONS
    flush: str = "os"
    """When appends are forced to the disk: "os", "interval" or "always" (see `storage.sync`)."""
    flush_interval_ms: int = 1_000
    groups: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    limits: Limits = field(default_factory=Limits)
    security: Security = field(default_factory=Security)
    trace: Path | None = None
    """Where the coordinator's trace records go, as JSON lines."""
