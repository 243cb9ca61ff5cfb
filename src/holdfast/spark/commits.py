"""Commits the offsets of finished work, one commit at a time, until the group has them.

Runs on the member's loop. `work` knows what still has to be committed, `starting` makes a commit's metadata.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.control import ControlPlane
from holdfast.group.messages import CommitAnswer, OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.spark.work import Work

log = logging.getLogger("holdfast")

COMMIT_LIMIT_S = 5.0
"""The next batch waits this long for the commit of the batch before, so that after a restart at most one batch is not
committed."""

BETWEEN = frozenset({"REBALANCE_IN_PROGRESS", "NOT_OWNED"})
"""Commits that are refused only for now: the group is between two generations, or the round has not ended here yet."""

DENIED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})

Note = Callable[[str], str]
"""A topic's note, for the metadata of its commits."""


class Commits:
    """One query's commits. `manual`: its partitions come from `assign`, and it commits without a membership."""

    def __init__(self, config: ConsumerConfig, plane: ControlPlane, work: Work, note: Note, *, manual: bool) -> None:
        self._config = config
        self._plane = plane
        self._work = work
        self._note = note
        self._manual = manual
        self.running: asyncio.Future[float] | None = None
        """The running commit."""
        self._refused_since: float | None = None
        self._told = False

    async def commit(self, partitions: Iterable[TopicPartition] | None = None, limit_s: float = COMMIT_LIMIT_S) -> None:
        """Commit until the group has the positions of these partitions (or of all), or the time is up."""
        wanted = None if partitions is None else set(partitions)
        deadline = time.monotonic() + limit_s
        while (owed := self._work.owed()) and (wanted is None or not wanted.isdisjoint(owed)):
            if self._plane.state.lost:
                return  # nothing may be committed: the partitions are about to be lost, and may be assigned again
            if self.running is None or self.running.done():
                self.running = asyncio.ensure_future(self._commit_once())
            await asyncio.wait({self.running}, timeout=max(0.0, deadline - time.monotonic()))
            if not self.running.done():
                return  # it may still succeed
            await asyncio.sleep(self.running.result())
            if time.monotonic() > deadline:
                return

    async def commit_for_others(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for partitions of others for which the group has no offset. Their owner may not know where to
        continue; if this commit fails, the owner reports that itself."""
        deadline = time.monotonic() + COMMIT_LIMIT_S
        while offsets and time.monotonic() < deadline:
            try:
                await self._plane.offsets.commit_soon(self._entries(offsets))
            except HoldfastError as error:
                if error.code not in BETWEEN:
                    return
                await asyncio.sleep(0.01)
            else:
                return

    def _entries(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetEntry]:
        return {p: OffsetEntry(at, metadata=self._note(p.topic)) for p, at in offsets.items()}

    async def _commit_once(self) -> float:
        """Commit what is owed. Returns how many seconds to wait before the next attempt."""
        owned = self._plane.state.owned
        owed = {p: at for p, at in self._work.owed().items() if self._manual or p in owned}
        if not owed:
            return 0.002 if self._work.owed() else 0.0
        try:
            answer = await self._plane.offsets.commit(self._entries(owed), member=not self._manual)
        except HoldfastError as error:
            if error.code in BETWEEN:
                return 0.01
            self._tell(error.code)
            return self._config.retry_backoff_ms / 1_000.0
        self._work.committed({p: at for p, at in owed.items() if answer.errors.get(p) is ErrorCode.NONE})
        self._check(answer)
        if answer.first_error is ErrorCode.NONE:
            self._tell(None)
            return 0.0
        self._tell(answer.first_error.name)
        return 0.02

    def _tell(self, refused: str | None) -> None:
        """Log once that commits have failed for long, and once that they succeed again."""
        now, name = time.monotonic(), self._config.shown
        if refused is None:
            if self._told:
                log.warning("%s has committed its offsets again.", name)
            self._refused_since, self._told = None, False
            return
        self._refused_since = self._refused_since or now
        if not self._told and now - self._refused_since >= COMMIT_LIMIT_S:
            self._told = True
            log.warning(
                "%s could not commit its offsets for %.0f s (%s). It goes on and tries again, but each batch waits for "
                "it, and what is not committed when the query ends is read again. See the broker's log.",
                name,
                now - self._refused_since,
                refused,
            )

    def _check(self, answer: CommitAnswer) -> None:
        """Raise errors that a person has to fix."""
        if answer.first_error in DENIED:
            raise HoldfastError(
                answer.first_error.name,
                f"the group {self._config.group} may not be committed to.",
                "Grant the query's user Read on the group and on its topics.",
            )
        if self._manual and answer.first_error is ErrorCode.UNKNOWN_MEMBER_ID:
            raise HoldfastError(
                "GROUP_HAS_MEMBERS",
                f"the query has partitions by `assign`, and the group {self._config.group} has members.",
                "Use a group of its own, or subscribe instead and share.",
            )
