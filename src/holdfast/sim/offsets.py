"""A simulated member's dealings with committed offsets: asking for them, and committing.

Offsets live outside the member's machine, as in production; whether a commit may be sent is `group.offsets`' to say.
A question that fails is asked again; an answer for a partition that was given up meanwhile is dropped. The commit of a
revoke is one, and bounded by the request's timeout. Where the positions also go with the join it is not waited for, and
made again if the join overtook it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.group.member import CommitAnswered
from holdfast.group.messages import (
    Answer,
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    OffsetEntry,
)
from holdfast.group.offsets import OVERTAKEN, commit_request, committed_late, round_is_over
from holdfast.model import ErrorCode, HoldfastError, Membership, TopicPartition
from holdfast.sim.config import GROUP
from holdfast.sim.network import Connection

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember

RETRY_MS = 100.0

LATE_LOOK_MS = 2.0
"""How often a commit that came too late for its round looks whether the next generation has begun."""


class Offsets:
    """Asks and commits for one process."""

    def __init__(self, member: SimMember, connection: Connection) -> None:
        self._member = member
        self._connection = connection
        self._fetching: dict[TopicPartition, int] = {}
        """Partitions whose committed offset is asked for -> by which question."""
        self._questions = 0
        self._riding = 0
        """Commits of revoked partitions under way that nobody waits for."""
        self._leaving: list[Callable[[], None]] = []
        self.request: Callable[[Mapping[TopicPartition, OffsetEntry]], CommitRequest | None] = self._request

    def is_fetching(self, partition: TopicPartition) -> bool:
        return partition in self._fetching

    def stop_fetching(self, partition: TopicPartition) -> None:
        self._fetching.pop(partition, None)

    def fetch(self, partitions: list[TopicPartition]) -> None:
        """Find out where to start with these, and start."""
        member = self._member
        self._questions += 1
        question = self._questions
        self._fetching.update(dict.fromkeys(partitions, question))
        request = FetchOffsetsRequest(
            group=GROUP, membership=member.state.membership, partitions=tuple(sorted(partitions))
        )

        def failed(_reason: str) -> None:
            member.later(RETRY_MS, again)

        def again() -> None:
            owned = member.state.owned - member.listener.giving_up
            still = [p for p in partitions if self._fetching.get(p) == question and p in owned]
            if still:
                self.fetch(still)

        def answered(answer: Answer) -> None:
            assert isinstance(answer, FetchOffsetsAnswer)
            if answer.error is not ErrorCode.NONE:
                failed(answer.error.name)
                return
            for partition in partitions:
                if self._fetching.get(partition) == question:
                    del self._fetching[partition]
                    entry = answer.offsets.get(partition)
                    member.app.open(partition, 0 if entry is None else entry.offset, "fetched")

        self._connection.ask(request, member.world.config.request_timeout_ms, answered, failed)

    def commit(self, offsets: Mapping[TopicPartition, OffsetEntry], then: Callable[[], None] | None) -> None:
        """Commit. `then` comes when it is answered, or can't be: a revoke waits for it, within bounds."""
        member = self._member
        request = self.request(offsets) if offsets else None
        if request is None:
            if then is not None:
                then()
            return
        membership = request.membership

        def answered(answer: Answer) -> None:
            assert isinstance(answer, CommitAnswer)
            error = answer.first_error
            if error is ErrorCode.NONE:
                member.app.note_committed(offsets)
            member.feed(CommitAnswered(membership, error))
            if then is not None:
                then()

        def failed(_reason: str) -> None:
            if then is not None:
                then()

        self._connection.ask(request, member.world.config.request_timeout_ms, answered, failed)

    def commit_riding(self, offsets: Mapping[TopicPartition, OffsetEntry]) -> None:
        """Commit positions that the next join carries too, and wait for nothing."""
        request = self.request(offsets) if offsets else None
        if request is not None:
            self._riding += 1
            self._send_riding(request)

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call this once no commit of `commit_riding` is under way: whoever leaves can't commit afterwards."""
        if self._riding:
            self._leaving.append(then)
        else:
            then()

    def _send_riding(self, request: CommitRequest) -> None:
        member = self._member

        def answered(answer: Answer) -> None:
            assert isinstance(answer, CommitAnswer)
            member.feed(CommitAnswered(request.membership, answer.first_error))
            if answer.first_error in OVERTAKEN:
                self._commit_late(request.offsets, request.membership)
            else:
                self._rode()

        self._connection.ask(request, member.world.config.request_timeout_ms, answered, self._rode)

    def _commit_late(self, offsets: Mapping[TopicPartition, OffsetEntry], sent_as: Membership) -> None:
        """The join was faster: see `committed_late`."""
        member = self._member
        if member.state.lost:
            self._rode()
            return
        if not round_is_over(member.state, sent_as):
            member.later(LATE_LOOK_MS, self._commit_late, offsets, sent_as)
            return

        def answered(answer: Answer) -> None:
            assert isinstance(answer, FetchOffsetsAnswer)
            missing = committed_late(member.state, offsets, answer.offsets)
            request = self._request(missing, frozenset()) if missing and answer.error is ErrorCode.NONE else None
            if request is None:
                self._rode()
            else:
                self._send_riding(request)

        asked = FetchOffsetsRequest(group=GROUP, partitions=tuple(sorted(offsets)))
        self._connection.ask(asked, member.world.config.request_timeout_ms, answered, self._rode)

    def _rode(self, _failed: str = "") -> None:
        self._riding -= 1
        while self._leaving and not self._riding:
            self._leaving.pop()()

    def _request(
        self, offsets: Mapping[TopicPartition, OffsetEntry], given_up: frozenset[TopicPartition] | None = None
    ) -> CommitRequest | None:
        try:
            return commit_request(self._member.state, offsets, given_up=given_up)
        except HoldfastError:
            return None
