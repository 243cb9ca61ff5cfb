"""The machine's part of the consumer's configuration, and the socket on which peers poke it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Sequence

from holdfast.client.config.settings import ConsumerConfig
from holdfast.group import member as mb
from holdfast.group.user_data import Endpoint, can_be_poked
from holdfast.net.poke_socket import open_poke_socket

SPREAD = (0.8, 1.2)
"""Range of the random factor on a member's back-offs, so that members refused together don't come back together."""

LOOK_UP_S = 1.0
"""How long it may take to look a broker's name up for this. The loop is shared by all AsyncConsumers of a process, and
subscribe() waits."""


def member_config(
    config: ConsumerConfig, *, endpoint: Endpoint | None, responsive_ms: float | None, backoff_max_s: float
) -> mb.MemberConfig:
    return mb.MemberConfig(
        group=config.group,
        assignors=config.assignors,
        protocol=config.protocol,
        eager_assignors=config.eager_assignors,
        cooperative_after_ms=config.cooperative_after_ms,
        name=config.client_id,
        client_id=config.client_id,
        instance_id=config.instance_id,
        rack=config.rack,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=int(backoff_max_s * 1_000),
        retry_spread=random.uniform(*SPREAD),
        instant_rejoin=config.inventions.instant_rejoin,
        hand_over_offsets=config.inventions.offset_handover,
        hot_heartbeats=config.inventions.hot_heartbeats,
        endpoint=endpoint,
        responsive_ms=responsive_ms,
    )


async def poke_socket_for(
    config: ConsumerConfig, brokers: Sequence[tuple[str, int]]
) -> tuple[socket.socket, Endpoint] | tuple[None, None]:
    """A socket for pokes, on the address from which we reach the first of these brokers. None if that is not wanted or
    not possible: then pokes don't reach us, and rounds begin for us a little later."""
    if config.inventions.poke and brokers:
        with contextlib.suppress(OSError):  # no UDP here, or the broker's name is not known or not answered for
            host = await _our_address(brokers[0])
            if can_be_poked(host):  # false for an address that is valid only on this machine, like fe80::1%eth0
                return open_poke_socket(host)
    return None, None


async def _our_address(broker: tuple[str, int]) -> str:
    """Our address on the way to this broker, where peers can reach us. Connecting a UDP socket sends nothing."""
    async with asyncio.timeout(LOOK_UP_S):
        found = await asyncio.get_running_loop().getaddrinfo(*broker, type=socket.SOCK_DGRAM)
    family, kind, number, _, address = found[0]
    with socket.socket(family, kind, number) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
