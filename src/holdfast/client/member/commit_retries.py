"""Sending commits: each is retried until every partition has its final answer, or the time is up.

All commits are retried here and nowhere else: synchronous and asynchronous ones, auto-commits, those before a revoke
and at close, and those of manual assignments. `group.offsets` decides which answers are worth a retry.

Rule. A retry never undoes a later commit: a partition that was committed again meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.group.messages import CommitAnswer, CommitRequest
from holdfast.group.offsets import coordinator_moved, worth_another_try
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.errors import NetError

RETRY_FOR_S = 10.0
"""How long a commit is retried. A coordinator that moves or restarts is back within seconds; if it is not, the
application should be told."""

MOST_BACKOFF_S = 1.0
"""Longest pause between two tries."""


class Committing:
    """The commits of one consumer, in the order in which they were asked for."""

    def __init__(
        self,
        send: Callable[[CommitRequest], Awaitable[CommitAnswer]],
        forget: Callable[[], None],
        *,
        backoff_ms: float,
    ) -> None:
        """`send` sends a commit once; `forget` makes the next send look the coordinator up first."""
        self._send = send
        self._forget = forget
        self._backoff_s = backoff_ms / 1_000.0
        self._numbers = itertools.count(1)
        self._numbering = threading.Lock()
        self._newest: dict[TopicPartition, int] = {}
        """For each partition the number of the last commit that was asked for."""

    def number(self, request: CommitRequest) -> int:
        """Number a commit, when it is asked for. On any thread."""
        with self._numbering:
            number = next(self._numbers)
            self._newest.update(dict.fromkeys(request.offsets, number))
        return number

    def still_wanted(self, request: CommitRequest, number: int) -> CommitRequest:
        """The same request without partitions for which a later commit was asked."""
        kept = {p: entry for p, entry in request.offsets.items() if self._newest.get(p) == number}
        return request if len(kept) == len(request.offsets) else replace(request, offsets=kept)

    async def settle(self, request: CommitRequest, number: int) -> CommitAnswer:
        """Send until every partition has its final answer. Raises NetError when there was no answer at all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RETRY_FOR_S
        wait_s, tries = self._backoff_s, 1
        verdicts: dict[TopicPartition, ErrorCode] = {}
        while True:
            failed: NetError | None = None
            again = frozenset(request.offsets)
            try:
                answer = await self._send(request)
            except NetError as error:
                if not error.retriable:
                    raise
                failed = error
                self._forget()
            else:
                verdicts.update(answer.errors)
                again = worth_another_try(answer, tries=tries)
                if coordinator_moved(answer):
                    self._forget()
            if not again or loop.time() + wait_s > until:
                break
            await asyncio.sleep(wait_s)
            wait_s, tries = min(2 * wait_s, MOST_BACKOFF_S), tries + 1
            left = {p: entry for p, entry in request.offsets.items() if p in again}
            # The join has been sent by now and may be parked: nothing more is sent on its connection.
            request = self.still_wanted(replace(request, offsets=left, ahead_of_join=False), number)
            if not request.offsets:
                break
        if failed is not None and not verdicts:
            raise failed
        return CommitAnswer(errors=verdicts)
