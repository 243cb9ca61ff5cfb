"""One consumer's requests about its group's offsets: commits, and the question what is committed.

Everything runs on the control plane's loop, except `commit_soon` and the numbering of commits, which other threads call
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Set
from dataclasses import replace
from typing import Any

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.commit_retries import MOST_BACKOFF_S, RETRY_FOR_S, Committing
from holdfast.group.member.trouble import TELL_AGAIN_MS
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsAnswer, FetchOffsetsRequest, OffsetEntry
from holdfast.group.offsets import commit_request, held_partitions, is_transient
from holdfast.group.session.progress import not_committed_yet
from holdfast.group.user_data import Positions
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.channel import GroupChannel
from holdfast.net.driver import MemberDriver
from holdfast.net.errors import NetError

REQUEST_MS = 30_000.0
"""Time limit of a request from outside the group. A member's are limited by its session (`MemberDriver`)."""


class GroupOffsets:
    """The offsets of one group, as one consumer writes and reads them."""

    def __init__(
        self, config: ConsumerConfig, driver: MemberDriver, channel: GroupChannel, *, backoff_max_s: float
    ) -> None:
        self._config = config
        self._driver = driver
        self._channel = channel
        self._backoff_s = config.retry_backoff_ms / 1_000.0
        self._backoff_max_s = backoff_max_s
        self._committing = Committing(self._send, channel.forget, backoff_ms=config.retry_backoff_ms)

    @property
    def known_committed(self) -> Mapping[TopicPartition, int]:
        """The group's committed offsets as last seen in the coordinator's answers."""
        return self._channel.committed

    # -- committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetEntry], *, member: bool = True) -> CommitAnswer:
        """Commit as a member; or, with a manual assignment, from outside the group."""
        request = self._request(offsets, member=member, given_up=None)
        return await self._committing.settle(request, self._committing.number(request))

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, OffsetEntry],
        *,
        member: bool = True,
        given_up: frozenset[TopicPartition] = frozenset(),
        ahead_of_join: bool = False,
    ) -> Coroutine[Any, Any, CommitAnswer]:
        """The same, under the membership of this moment: by the time the loop runs it, a revoke under way may have
        taken the partitions. Of partitions that we don't own, only those in `given_up` are refused.
        """
        try:
            request = self._request(offsets, member=member, given_up=given_up)
        except HoldfastError as error:
            return _refused(error)
        request = replace(request, ahead_of_join=ahead_of_join and member)
        return self._committing.settle(request, self._committing.number(request))

    def commit_handed(self, handed: Positions, *, left: dict[TopicPartition, OffsetEntry]) -> Coroutine[Any, Any, None]:
        """Commit positions that were handed over to us, unless they are committed already. `left` holds those that the
        group may not have yet; a partition that is given up is removed from it.

        The commit is numbered when this returns, before any commit of the application. So the application's own commits
        replace it.
        """
        left.update(handed)
        number = self._committing.number(self._outside(handed))
        return self._settle_handed(handed, left, number, self._driver.state.membership.member_id)

    async def _settle_handed(
        self, handed: Positions, left: dict[TopicPartition, OffsetEntry], number: int, member_id: str
    ) -> None:
        """Try until the group has these positions, as long as they are ours to commit: that is, until we commit their
        partitions again, give them up or lose them. Their next owner may be further."""
        while True:
            remaining = {p: entry for p, entry in handed.items() if left.get(p) is entry}
            held = held_partitions(self._driver.state, member_id)
            ours = {p: entry for p, entry in remaining.items() if p in held}
            wanted = self._committing.still_wanted(self._outside(ours), number).offsets
            done = remaining.keys() - wanted.keys()
            if wanted:
                with contextlib.suppress(HoldfastError):  # it is tried again
                    done |= await self._commit_unknown(wanted, number)
            for partition in done:
                if left.get(partition) is handed[partition]:
                    del left[partition]
            if wanted.keys() <= done:
                return
            await asyncio.sleep(MOST_BACKOFF_S)

    async def _commit_unknown(self, handed: Positions, number: int) -> Set[TopicPartition]:
        """Commit those that the group does not have. Returns those that it has afterwards."""
        request = self._request(handed, member=True, given_up=frozenset())
        known = (await self.committed(tuple(sorted(handed)))).offsets
        new = replace(request, offsets=not_committed_yet(handed, known))
        wanted = self._committing.still_wanted(new, number)
        answer = await self._committing.settle(wanted, number) if wanted.offsets else CommitAnswer()
        refused = {p for p in wanted.offsets if answer.errors.get(p) is not ErrorCode.NONE}
        return handed.keys() - refused

    def _request(
        self,
        offsets: Mapping[TopicPartition, OffsetEntry],
        *,
        member: bool,
        given_up: frozenset[TopicPartition] | None,
    ) -> CommitRequest:
        if member:
            return commit_request(self._driver.state, offsets, given_up=given_up)
        return self._outside(offsets)

    def _outside(self, offsets: Positions) -> CommitRequest:
        """A commit from outside the group."""
        return CommitRequest(group=self._config.group, offsets=dict(offsets))

    async def _send(self, request: CommitRequest) -> CommitAnswer:
        if request.membership.joined:
            return await self._driver.send_commit(request)
        answer = await self._channel.send(request, REQUEST_MS)
        assert isinstance(answer, CommitAnswer)
        return answer

    # -- reading

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> FetchOffsetsAnswer:
        """The group's committed offsets of these partitions; retried while the answer is a transient error."""
        request = FetchOffsetsRequest(group=self._config.group, partitions=partitions)
        loop = asyncio.get_running_loop()
        until = loop.time() + RETRY_FOR_S
        wait_s = self._backoff_s
        while True:
            try:
                answer = await self._channel.send(request, REQUEST_MS)
                assert isinstance(answer, FetchOffsetsAnswer)
                if not is_transient(Ask.FETCH_OFFSETS, answer.error) or loop.time() + wait_s > until:
                    return answer
            except NetError as error:
                if not error.retriable or loop.time() + wait_s > until:
                    raise
            self._channel.forget()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_BACKOFF_S)

    async def starts(
        self,
        partitions: tuple[TopicPartition, ...],
        *,
        wanted: Callable[[], bool],
        tell: Callable[[HoldfastError], None],
    ) -> dict[TopicPartition, int | None]:
        """Where partitions that a round added start; None where the group has committed nothing. Retried until it is
        known, or no longer `wanted`: then it is empty. Lasting refusals are told, now and again."""
        wait_s = self._backoff_s
        told_at = 0.0
        while wanted():
            try:
                answer = await self._driver.committed(partitions)
            except HoldfastError:
                answer = FetchOffsetsAnswer(error=ErrorCode.NETWORK_EXCEPTION)
            if answer.error is ErrorCode.NONE:
                found = answer.offsets
                return {p: found[p].offset if p in found else None for p in partitions}
            if verdict(Ask.FETCH_OFFSETS, answer.error) is Verdict.TELL:
                if time.monotonic() - told_at >= TELL_AGAIN_MS / 1_000.0:
                    told_at = time.monotonic()
                    tell(refusal(Ask.FETCH_OFFSETS, answer.error))
            else:
                self._channel.forget()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, self._backoff_max_s)
        return {}


async def _refused(error: HoldfastError) -> CommitAnswer:
    """A commit that was refused before it was sent, as a coroutine that raises the reason."""
    raise error
