"""The broker's limits, each with its reason.

They are fields of one value, so that a test can make each small, and so that nothing is limited in two places. Limits
of groups are in `group.coordinator.settings`, those of logs in `storage`, those of a message's parts in `wire`.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.wire.frames import MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_LOGIN

KIB = 1024
MIB = 1024 * KIB


MAX_CONNECTIONS = 8_192
"""A client keeps two to four connections, so these serve a group of 2,000 members. An idle one costs about 20 KB. If
the system allows fewer open files, that is the limit, and further clients wait in the system's queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are seconds, because only the event loop uses them."""

    max_connections: int = MAX_CONNECTIONS
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_frame_bytes_before_login: int = MAX_FRAME_BYTES_BEFORE_LOGIN
    max_bytes_in_flight: int = 128 * MIB
    """Requests being received or worked on, beyond the first 16 KiB of each. If that is used up, further large requests
    wait."""
    max_response_bytes: int = 16 * MIB
    """Records in one fetch answer. A single larger batch is still sent, or nobody could ever read past it."""
    max_description_bytes: int = 4 * MIB
    """Groups, or their offsets, in one answer about several groups; clients ask again for the rest. At least one group
    is always answered. Unlike records they are held in memory, and can't be sent straight from a file."""
    max_bytes_unsent: int = 64 * MIB
    """Unsent answers of slow clients. Above half of it, fetches get one batch at a time. Beyond it, the connection that
    is stalled longest is closed."""
    frame_seconds: float = 10.0
    """To finish a frame once its first byte came; also for a TLS hand-shake, and for a login where one is required."""
    idle_seconds: float = 600.0
    """Kafka's connections.max.idle.ms is ten minutes too; clients reconnect by themselves."""
    max_fetch_wait_seconds: float = 60.0
    """A fetch waits at most this long for records, whatever it asks for. Clients ask for half a second."""
    max_topics: int = 10_000
    """Every topic costs a folder and an entry in each client's metadata."""
    max_partitions: int = 20_000
    """In all. Each costs a few files and some memory; Kafka recommends 4,000 for a broker of its own."""
