"""Watches the topics that a member subscribes to: resolves patterns, and sees topics that appear, grow or disappear.

Runs on the control plane's loop. Changes are fed to the machine. The application is told when a topic that it named
does not exist or is denied, and when no topic matches a pattern of its own, once each time that happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from holdfast.client.config.keys import BLACKLIST, text
from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.patterns import blacklisted, compiled, is_pattern
from holdfast.group import member as mb
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError
from holdfast.net.cluster import Cluster
from holdfast.net.driver import MemberDriver
from holdfast.net.errors import NetError

LOOK_S = 30.0
"""Longest time between two metadata refreshes: new partitions are found within half a minute.
topic.metadata.refresh.interval.ms can make it shorter."""

SOON_S = 1.0
"""The same while a topic is missing, for as long as somebody may just be creating it (`topic_patience_s`)."""

AT_ONCE_S = 0.25
LOOKS = 3
"""A missing topic is reported after this many refreshes in a row without it. They come every AT_ONCE_S, because a
broker that has just started reports every topic as missing."""

Tell = Callable[[HoldfastError, str | None], None]
Running = Callable[[], Awaitable[str | None]]
Wish = tuple[tuple[str, ...], frozenset[str]]
"""Patterns and names."""


class Topics:
    """The subscription of one member, and the watch over its topics."""

    def __init__(
        self, cluster: Cluster, driver: MemberDriver, tell: Tell, running: Running, config: ConsumerConfig
    ) -> None:
        """`running` returns the assignor that the group runs, or None if that does not matter."""
        self._running = running
        self._internal = config.internal_topics
        self._blacklisted = blacklisted(text(config.raw, BLACKLIST, ""))
        """Whether a topic counts as if it did not exist, for us."""
        self._cluster = cluster
        self._driver = driver
        self._tell = tell
        self._patterns: tuple[str, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._unmatched: frozenset[str] = frozenset()
        """Patterns that no topic matched when we last looked."""
        self._told: dict[str, ErrorCode] = {}
        """The error that the application was told of each missing topic, and of each pattern without a match."""
        self._misses: dict[str, int] = {}
        """For each of them the number of refreshes in a row without it."""
        self._missing_since: float | None = None
        self._look_now = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def forget(self) -> None:
        """Unsubscribed. A refresh under way must not subscribe again."""
        self._patterns, self._names = (), frozenset()

    def want(self, topics: list[str]) -> Wish:
        """Note the subscription at once, so that an unsubscribe right after it takes effect."""
        self._patterns = tuple(topic for topic in topics if is_pattern(topic))
        self._names = frozenset(topic for topic in topics if not is_pattern(topic))
        self._told, self._misses, self._unmatched = {}, {}, frozenset()
        self._missing_since = None
        return self._wanted()

    def _wanted(self) -> Wish:
        return self._patterns, self._names

    async def subscribe(self, wanted: Wish) -> None:
        """Join with the topics that the patterns match. If they can't be looked up now, keep trying.

        `wanted` is what want() returned. If the subscription has changed by the time this runs, it does nothing.
        """
        while wanted == self._wanted():
            try:
                found = await self._resolve()
                runs = await self._running()
            except NetError as error:  # each try takes as long as default.api.timeout.ms says
                if not error.retriable:
                    self._tell(error, None)
                    await asyncio.sleep(SOON_S)
                continue
            if self._driver.closed.is_set():
                return
            if wanted == self._wanted():  # not unsubscribed or subscribed again meanwhile
                self._driver.feed(mb.Subscribe(found, runs))
                self._look_now.set()
                if self._watch is None:
                    self._watch = asyncio.create_task(self._keep_watching())
            return

    async def _resolve(self) -> frozenset[str]:
        names = frozenset(name for name in self._names if not self._blacklisted(name))
        if not self._patterns:
            return names
        await self._cluster.refresh(None)
        there = [
            name
            for name, topic in self._cluster.existing_topics().items()
            if (self._internal or not topic.internal) and not self._blacklisted(name)
        ]
        matches = {pattern: set(filter(compiled(pattern).search, there)) for pattern in self._patterns}
        self._unmatched = frozenset(pattern for pattern, found in matches.items() if not found)
        return names.union(*matches.values())

    async def _keep_watching(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()
            if self._patterns or self._names:  # else unsubscribed
                await self.look()

    def _pause_s(self) -> float:
        age_s = self._cluster.config.metadata_max_age_s
        usual = min(age_s, LOOK_S) if age_s > 0 else LOOK_S
        since = self._missing_since
        soon = since is not None and time.monotonic() - since <= self._cluster.config.topic_patience_s + SOON_S
        if any(count < LOOKS for count in self._misses.values()):
            return min(usual, AT_ONCE_S)
        return min(usual, SOON_S) if soon else usual

    async def look(self) -> None:
        """Refresh the metadata, and tell the machine and the application what changed."""
        wanted = self._wanted()
        try:
            topics = await self._resolve()
            # A leader watches every topic of its plan, also those that only other members subscribe to.
            view = await self._cluster.view(topics | set(self._driver.state.planning.counts or ()))
        except HoldfastError:  # unreachable just now: the next refresh will do
            return
        if self._wanted() != wanted:
            return  # subscribed to something else meanwhile, of which this view says nothing
        if self._patterns and topics != self._driver.state.topics:
            self._driver.feed(mb.Subscribe(topics))
        self._driver.feed(mb.MetadataChanged(view))
        self._tell_of_missing(frozenset(name for name in view.topics if not self._blacklisted(name)))

    def _tell_of_missing(self, there: frozenset[str]) -> None:
        """Report topics that were named and can't be read, and patterns that no topic matches."""
        errors = {name: self._cluster.topic_error(name) for name in sorted(self._names)}
        hidden = self._unmatched.union(filter(self._blacklisted, self._names))
        errors |= dict.fromkeys(sorted(hidden), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not any(code is not ErrorCode.NONE for code in errors.values()):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        for name, code in errors.items():
            if name in there or verdict(Ask.METADATA, code) is not Verdict.TELL:
                self._told.pop(name, None)  # it exists, or its error is a transient one
                self._misses.pop(name, None)
                continue
            self._misses[name] = self._misses.get(name, 0) + 1
            if self._misses[name] >= LOOKS and self._told.get(name) != code:
                self._told[name] = code
                self._tell(_unavailable(name, code), name)


def _unavailable(topic: str, code: ErrorCode) -> HoldfastError:
    error = refusal(Ask.METADATA, code)
    return HoldfastError(error.code, error.what.replace(": ", f": {topic}: ", 1), error.do)
