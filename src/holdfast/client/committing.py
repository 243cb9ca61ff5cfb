"""Commits on their way: each is sent until it is settled, or its time is up.

The one place where a commit is tried again: those that are waited for and those that are not, by hand and by itself,
before a revoke, at the end, and from outside the group. Which answers are worth it is `group.offsets`'s to say.

Rule. A commit that is tried again never undoes a later one: what has been asked for again meanwhile is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.group.messages import CommitAnswer, CommitRequest
from holdfast.group.offsets import coordinator_moved, worth_another_try
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.errors import NetError

RETRY_FOR_S = 10.0
"""For how long a commit is tried again: a coordinator that moves or starts is back within seconds, and whoever waits
for the commit should hear of one that is not."""

MOST_BACKOFF_S = 1.0


class Committing:
    """The commits of one consumer, in the order in which they were asked for."""

    def __init__(
        self,
        send: Callable[[CommitRequest], Awaitable[CommitAnswer]],
        forget: Callable[[], None],
        *,
        backoff_ms: float,
    ) -> None:
        """`send` asks the coordinator once; `forget` makes the next one look for it first."""
        self._send = send
        self._forget = forget
        self._backoff_s = backoff_ms / 1_000.0
        self._count = 0
        self._newest: dict[TopicPartition, int] = {}
        """The last commit that was asked for, of each partition."""

    def number(self, request: CommitRequest) -> int:
        """A place in the order. Taken when the commit is asked for, from any thread that asks one at a time."""
        self._count += 1
        self._newest.update(dict.fromkeys(request.offsets, self._count))
        return self._count

    def still_wanted(self, request: CommitRequest, number: int) -> CommitRequest:
        """The same without what was asked for again since."""
        kept = {p: entry for p, entry in request.offsets.items() if self._newest.get(p) == number}
        return request if len(kept) == len(request.offsets) else replace(request, offsets=kept)

    async def settle(self, request: CommitRequest, number: int) -> CommitAnswer:
        """The verdict on every partition. Raises NetError when there was no answer at all."""
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
            request = self.still_wanted(replace(request, offsets=left), number)
            if not request.offsets:
                break
        if failed is not None and not verdicts:
            raise failed
        return CommitAnswer(errors=verdicts)
