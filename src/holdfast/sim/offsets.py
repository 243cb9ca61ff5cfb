"""How a simulated member fetches and commits offsets.

Offsets live outside the member's machine, as in production; `group.offsets` decides whether a commit may be sent. A
fetch that fails is repeated; an answer for a partition that was given up meanwhile is dropped. What a revoke waits for
is up to `group.session.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
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
from holdfast.group.offsets import commit_request
from holdfast.group.session.progress import not_committed_yet
from holdfast.group.session.steps import Await
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.channel import Channel
    from holdfast.sim.member import SimMember

RETRY_MS = 100.0


class Offsets:
    """Asks and commits for one process."""

    def __init__(self, member: SimMember, channel: Channel) -> None:
        self._member = member
        self._channel = channel
        self._connection = channel.data
        self._fetching: dict[TopicPartition, int] = {}
        """Partitions whose committed offset is asked for -> by which question."""
        self._questions = 0
        self._commits = 0
        self._newest: dict[TopicPartition, int] = {}
        """For each partition the number of the last commit that was asked for."""
        self.under_way: list[frozenset[TopicPartition]] = []
        """The partitions of each commit under way on the connection that no join takes."""
        self._waiting: list[tuple[Await, Callable[[], None]]] = []
        """Waits for some of them to end."""
        # Hooks for mutations.
        self.not_committed_yet = not_committed_yet
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

    def commit(self, offsets: Mapping[TopicPartition, OffsetEntry], *, ahead_of_join: bool = False) -> None:
        """Commit, and don't wait. The next join can't overtake what goes ahead of it, unless the plan says so."""
        request = self.request(offsets) if offsets else None
        if request is not None:
            self._number(offsets)
            self._send(replace(request, ahead_of_join=ahead_of_join and self._member.plan.commits_ahead), offsets)

    def wait(self, step: Await, then: Callable[[], None]) -> None:
        """Wait for commits under way, as this step says. A simulated application stores no metadata."""
        if not step.limit_ms or not self._waits(step):
            then()
            return
        left = [then]

        def go_on() -> None:
            if left:
                left.pop()()

        self._waiting.append((step, go_on))
        self._member.later(step.limit_ms, go_on)

    def _waits(self, step: Await) -> bool:
        return any(not step.only_theirs or not each.isdisjoint(step.partitions) for each in self.under_way)

    def _number(self, offsets: Mapping[TopicPartition, OffsetEntry]) -> int:
        self._commits += 1
        self._newest.update(dict.fromkeys(offsets, self._commits))
        return self._commits

    def still_wanted(
        self, offsets: Mapping[TopicPartition, OffsetEntry], number: int
    ) -> dict[TopicPartition, OffsetEntry]:
        """Those for which no later commit was asked."""
        return {p: entry for p, entry in offsets.items() if self._newest.get(p) == number}

    def _send(self, request: CommitRequest, offsets: Mapping[TopicPartition, OffsetEntry]) -> None:
        member = self._member
        named = frozenset(offsets)

        def answered(answer: Answer) -> None:
            assert isinstance(answer, CommitAnswer)
            error = answer.first_error
            if error is ErrorCode.NONE:
                member.app.note_committed(offsets)
            member.feed(CommitAnswered(request.membership, error))
            failed("")

        def failed(_reason: str) -> None:
            if not request.ahead_of_join:
                self._ended(named)

        if request.ahead_of_join:
            self._channel.ask_ahead_of_join(request, answered, failed)
        else:
            self.under_way.append(named)
            self._connection.ask(request, member.world.config.request_timeout_ms, answered, failed)

    def _ended(self, named: frozenset[TopicPartition]) -> None:
        self.under_way.remove(named)
        over = [each for each in self._waiting if not self._waits(each[0])]
        self._waiting = [each for each in self._waiting if each not in over]
        for _, go_on in over:
            go_on()

    def commit_handed(self, handed: Mapping[TopicPartition, OffsetEntry]) -> None:
        """Commit what was handed over to us and the group has not committed, whatever the application is doing."""
        member = self._member
        number = self._number(handed)

        def answered(answer: Answer) -> None:
            assert isinstance(answer, FetchOffsetsAnswer)
            still = self.still_wanted(handed, number)
            wanted = self.not_committed_yet(still, answer.offsets) if answer.error is ErrorCode.NONE else {}
            request = self._request(wanted, frozenset()) if wanted else None
            if request is not None:
                self._send(request, wanted)

        asked = FetchOffsetsRequest(group=GROUP, partitions=tuple(sorted(handed)))
        self._connection.ask(asked, member.world.config.request_timeout_ms, answered, lambda _failed: None)

    def _request(
        self, offsets: Mapping[TopicPartition, OffsetEntry], given_up: frozenset[TopicPartition] | None = None
    ) -> CommitRequest | None:
        try:
            return commit_request(self._member.state, offsets, given_up=given_up)
        except HoldfastError:
            return None
