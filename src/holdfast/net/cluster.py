"""A cluster: who its brokers are, who leads what, who coordinates which group, and a connection to each.

Rules. Look-ups are bounded in time and back off between tries (KAFKA-10793; sarama once looked them up for ever). If
several callers need the same look-up it is made once, and a caller that is cancelled does not cancel it for the others
(in franz-go a cancelled commit once did). Connections are per address and *slot*: a parked JoinGroup blocks everything
after it, so requests that must not wait use a slot of their own. A connection that failed or timed out is dropped, and
the next request opens another.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

from holdfast.model import ClusterView, ErrorCode, TopicPartition
from holdfast.net.config import ClientConfig
from holdfast.net.connection import Connection
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.metadata import Broker, ClusterInfo, TopicInfo, cluster_info
from holdfast.wire.api import Api
from holdfast.wire.coordinators import coordinator_of, find_coordinator_body

Address = tuple[str, int]
T = TypeVar("T")

MAIN = "main"
"""The slot for requests that a broker answers at once."""

UNKNOWN_TOPIC_PATIENCE_S = 3.0
"""A topic just created takes a moment to be known everywhere; one still unknown after this does not exist."""


class Cluster:
    """Runs on one loop. `await close()` when done."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.info = ClusterInfo()
        """The newest metadata we have. Immutable, and replaced as a whole."""
        self._seen_at: dict[str, float] = {}
        """When each topic's metadata was last received."""
        self._last_good: dict[str, TopicInfo] = {}
        """Each topic's last metadata without an error."""
        self._missed: dict[str, float] = {}
        """Since when a known topic has been missing in answers."""
        self._errors: dict[str, ErrorCode] = {}
        """The last answer's error for each topic that had one."""
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._under_way: dict[object, asyncio.Task[Any]] = {}
        self._coordinators: dict[str, Address] = {}
        self._closed = False
        self._unreachable: NetError | None = None
        """Why the last attempt to connect failed; None after one that succeeded."""
        self.watchers: list[Callable[[Address, NetError | None], None]] = []
        """Called with the result of every attempt to connect."""

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- connections

    async def connection(self, address: Address, slot: str = MAIN) -> Connection:
        """An open connection to this address. Slots of one address don't wait for each other."""
        open_ = self._connections.get((address, slot))
        if open_ is not None and not open_.closed:
            return open_
        return await self._once(("open", address, slot), lambda: self._open(address, slot))

    async def _open(self, address: Address, slot: str) -> Connection:
        try:
            connection = await Connection.open(
                *address,
                client_id=self.config.client_id,
                security=self.config.security,
                family=self.config.family,
                timeout_s=self.config.connect_timeout_s,
            )
        except NetError as error:
            self._watched(address, error)
            raise
        if self._closed:
            await connection.close()
            raise _closed()
        before = self._connections.get((address, slot))
        if before is None or before.turned_away is None:
            self._watched(address, None)
        else:  # it hung up on our last connection: it counts as reachable once it answers a request
            self._watched(address, before.turned_away)
            connection.when_served = lambda: self._watched(address, None)
        self._connections[address, slot] = connection
        return connection

    def _watched(self, address: Address, error: NetError | None) -> None:
        self._unreachable = error
        for watcher in list(self.watchers):
            watcher(address, error)

    def addresses(self) -> list[Address]:
        """The addresses of the known brokers; before any is known, of the bootstrap servers."""
        known = [(broker.host, broker.port) for broker in self.info.brokers.values()]
        return known or list(self.config.bootstrap)

    async def broker_for(self, node_id: int, slot: str = MAIN) -> Connection:
        """A connection to the broker with this id."""
        if node_id not in self.info.brokers:
            await self.refresh()
        broker = self.info.brokers.get(node_id)
        if broker is None:
            raise NetError(
                "BROKER_UNKNOWN",
                f"Broker {node_id} is not in the cluster's metadata.",
                "It may be restarting; try again.",
                retriable=True,
            )
        return await self.connection((broker.host, broker.port), slot)

    def discard(self, connection: Connection) -> None:
        """Close it; the next request opens another."""
        for key, held in list(self._connections.items()):
            if held is connection:
                del self._connections[key]
        connection.abort("it was given up")

    async def close_slots(self, slots: Collection[str]) -> None:
        """Close the connections of these slots, whatever their address."""
        keys = [key for key in self._connections if key[1] in slots]
        await asyncio.gather(*(self._connections.pop(key).close() for key in keys))

    async def any_broker(self) -> Connection:
        """A connection to any broker: one that is open, a known broker, or a bootstrap server."""
        for (_, slot), connection in sorted(self._connections.items(), key=lambda item: item[0]):
            if slot == MAIN and not connection.closed:
                return connection
        known = [(broker.host, broker.port) for broker in self.info.brokers.values()]
        random.shuffle(known)
        failed: NetError | None = None
        for address in dict.fromkeys([*known, *self.config.bootstrap]):
            try:
                return await self.connection(address)
            except NetError as error:  # a broker that refuses the login does not speak for the others
                failed = error if failed is None or failed.retriable else failed
        if failed is None:
            raise NetError(
                "BOOTSTRAP_MISSING",
                "bootstrap.servers is not set: there is no broker to ask.",
                "Set it to host:port of one or more brokers.",
                retriable=True,
            )
        raise failed.again()

    async def request(self, api: Api, body: Any, *, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Ask one broker, or any. A connection that did not answer in time is dropped."""
        connection = await (self.any_broker() if node_id is None else self.broker_for(node_id))
        try:
            return await connection.request(api, body, timeout_s=timeout_s or self.config.request_timeout_s)
        except NetError as error:
            if error.code == "REQUEST_TIMED_OUT":
                self.discard(connection)
            raise

    # -- metadata

    async def refresh(self, topics: Iterable[str] | None = ()) -> ClusterInfo:
        """Fetch metadata of these topics, of every topic (None) or of brokers alone (empty). Bounded, with retries."""
        wanted = None if topics is None else tuple(sorted(set(topics)))
        return await self._once(("metadata", wanted), lambda: self.retried("metadata", lambda: self._metadata(wanted)))

    async def _metadata(self, topics: tuple[str, ...] | None) -> ClusterInfo:
        def body(version: int) -> dict[str, Any]:
            listed = None if topics is None else [{"name": topic} for topic in topics]
            if version == 0 and topics is None:
                listed = []  # version 0 had no null: an empty list meant every topic
            return {"topics": listed, "allow_auto_topic_creation": False}

        newer = cluster_info(await self.request(Api.METADATA, body))
        self.info = newer if topics is None else self.info.with_topics(newer)
        self._seen_at.update(dict.fromkeys(newer.topics, time.monotonic()))
        self._note_topics(newer, None if topics is None else frozenset(topics))
        return newer

    def _note_topics(self, newer: ClusterInfo, asked: frozenset[str] | None) -> None:
        """Keep new metadata. A topic that is missing in one answer is not forgotten at once: a broker that has just
        started knows less than we do."""
        now = time.monotonic()
        unseen = (frozenset(self._last_good) if asked is None else asked) - newer.topics.keys()
        errors = dict.fromkeys(unseen, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        errors.update({name: topic.error for name, topic in newer.topics.items()})
        self._errors.update(errors)
        for name, error in errors.items():
            if error is ErrorCode.NONE:
                self._last_good[name] = newer.topics[name]
                self._missed.pop(name, None)
            elif name in self._last_good and now - self._missed.setdefault(name, now) >= self.config.topic_patience_s:
                del self._last_good[name], self._missed[name]

    def existing_topics(self) -> dict[str, TopicInfo]:
        """Topics that exist, or did until a moment ago (topic.metadata.propagation.max.ms)."""
        gone_since = time.monotonic() - self.config.topic_patience_s
        return {name: topic for name, topic in self._last_good.items() if self._missed.get(name, math.inf) > gone_since}

    def topic_error(self, topic: str) -> ErrorCode:
        """The error of the last answer about this topic."""
        return self._errors.get(topic, ErrorCode.NONE)

    def _view(self, wanted: frozenset[str]) -> ClusterView:
        return ClusterInfo(brokers=self.info.brokers, topics=self.existing_topics()).view(wanted)

    def last_view(self, topics: Iterable[str]) -> ClusterView:
        """These topics from memory, however old: for a leader whose group waits while no broker answers."""
        return ClusterInfo(brokers=self.info.brokers, topics=self._last_good).view(topics)

    async def view(self, topics: Iterable[str], *, within_s: float = 0.0) -> ClusterView:
        """Metadata of these topics as planning needs it: at most `within_s` seconds old, fetched if need be."""
        wanted = frozenset(topics)
        oldest = time.monotonic() - within_s
        if wanted and all(self._seen_at.get(topic, -math.inf) >= oldest for topic in wanted):
            return self._view(wanted)
        await self.refresh(wanted)
        return self._view(wanted)

    async def leader_of(self, partition: TopicPartition) -> Broker:
        """The broker that leads this partition: from memory, or by asking until there is one."""
        known = self.info.leader_of(partition)
        if known is not None:
            return known

        async def ask() -> Broker:
            info = await self._metadata((partition.topic,))
            topic = info.topics.get(partition.topic)
            if topic is not None and topic.error is not ErrorCode.NONE:
                raise BrokerError(topic.error, f"The topic {partition.topic} can't be used.")
            leader = info.leader_of(partition)
            if leader is None:
                missing = topic is None or partition.partition not in topic.partitions
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.LEADER_NOT_AVAILABLE
                raise BrokerError(error, f"{partition} has no leader.")
            return leader

        return await self._once(("leader", partition), lambda: self.retried(f"the leader of {partition}", ask))

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Forget the leaders of these topics: an answer said that they are outdated."""
        gone = set(topics)
        for topic in gone:
            self._seen_at.pop(topic, None)
        kept = {name: topic for name, topic in self.info.topics.items() if name not in gone}
        self.info = ClusterInfo(
            cluster_id=self.info.cluster_id, controller=self.info.controller, brokers=self.info.brokers, topics=kept
        )

    # -- coordinators

    async def coordinator(self, group: str) -> Address:
        """Where the group's coordinator is, from memory or by asking. Bounded."""
        known = self._coordinators.get(group)
        if known is not None:
            return known
        return await self._once(
            ("coordinator", group),
            lambda: self.retried(f"the coordinator of group {group}", lambda: self._find_coordinator(group)),
        )

    def known_coordinator(self, group: str) -> Address | None:
        """Where the group's coordinator was last found, without asking."""
        return self._coordinators.get(group)

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    async def _find_coordinator(self, group: str) -> Address:
        connection = await self.any_broker()
        version = connection.version(Api.FIND_COORDINATOR)
        try:
            body = await connection.request(
                Api.FIND_COORDINATOR,
                find_coordinator_body(group, version),
                timeout_s=self.config.request_timeout_s,
                version=version,
            )
        except NetError as error:
            if error.code == "REQUEST_TIMED_OUT":
                self.discard(connection)
            raise
        found = coordinator_of(group, version, body)
        if found.error is not ErrorCode.NONE:
            raise BrokerError(found.error, f"No coordinator for group {group}.", message=found.message)
        self._coordinators[group] = (found.host, found.port)
        return found.host, found.port

    # -- shared and repeated work

    async def _once(self, key: object, work: Callable[[], Awaitable[T]]) -> T:
        """Wait for the work under way for this key, or start it. A caller that is cancelled does not cancel it for
        others."""
        if self._closed:
            raise _closed()
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.ensure_future(work())
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        try:
            result: T = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise _closed() from None
            raise
        except NetError as error:
            raise error.again() from None
        return result

    def _finished(self, key: object, task: asyncio.Task[Any]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # read it, or asyncio complains if every caller was cancelled

    async def retried(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Try until it succeeds, fails for good, or the time is up."""
        limit_s = self.config.lookup_timeout_s
        wait_s = self.config.backoff_s
        started = asyncio.get_running_loop().time()
        last: NetError | None = None
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        return await ask()
                    except NetError as error:
                        if not error.retriable or self._waited_enough(error, started):
                            raise
                        last = error
                    await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))
                    wait_s = min(wait_s * 2, self.config.backoff_max_s)
        except TimeoutError:
            last = last or self._unreachable  # a look-up inside this one may have used up the whole time
            why = "nobody answered" if last is None else last.what.rstrip(".")
            raise NetError(
                "LOOKUP_TIMED_OUT",
                f"{what[0].upper()}{what[1:]} was not found within {limit_s:g} s: {why}.",
                "Check that the brokers run and can be reached; default.api.timeout.ms sets the limit.",
                retriable=True,
            ) from last

    def _waited_enough(self, error: NetError, started: float) -> bool:
        unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        return unknown and asyncio.get_running_loop().time() - started >= UNKNOWN_TOPIC_PATIENCE_S


def _closed() -> NetError:
    return NetError("CLUSTER_CLOSED", "The client was closed.", "Make a new one.", retriable=False)
