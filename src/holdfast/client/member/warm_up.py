"""Load what a member's first round needs before the round begins."""

from __future__ import annotations

import gc
import sys
import threading
from functools import cache

from holdfast.assign import plan_round
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicView
from holdfast.model.consumer_protocol import encode_subscription
from holdfast.wire.api import Api
from holdfast.wire.codec import preload

GROUP_APIS = (
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.METADATA,
)

SMALL_HEAP = 1_000_000
"""Blocks of memory that Python holds. holdfast, numpy and confluent-kafka are 180,000 of them; a full garbage
collection takes 20 to 50 ms then, and five times as long with a million."""


def warm_up() -> None:
    """Load now what the first round would have to load: a new leader must not make its group wait for imports.

    Once per process: hundreds of members may start together, and each would hold the interpreter for it.
    """
    with _warming:
        _warm_up()


_warming = threading.Lock()


@cache
def _warm_up() -> None:
    preload(*((api, api.highest) for api in GROUP_APIS))
    metadata = encode_subscription(Subscription(topics=("t",)))
    plan_round("cooperative-sticky", ClusterView({"t": TopicView(2)}), [JoinedMember(member_id="m", metadata=metadata)])
    _collect_now()


def _collect_now() -> None:
    """Loading all this makes a full garbage collection due. Python would run it a few hundred objects later, in the
    first rounds, while partitions that move wait for it. In a program with a large heap our part makes none due, and a
    collection would take long: there it is left to Python."""
    if gc.isenabled() and sys.getallocatedblocks() < SMALL_HEAP:
        gc.collect()
