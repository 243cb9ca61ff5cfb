"""What a consumer commits, and when: stored offsets or positions, by the application or by auto-commit.

Positions are asked of the data plane at commit time, and not tracked record by record. The outcome of a commit that
nobody waits for is kept until the next poll, which passes it to on_commit.

A commit without offsets, also an auto-commit, commits only what is beyond this consumer's last commit of a partition,
as in librdkafka. A partition that is given up is committed at its position, whatever was committed before.
"""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka as ck

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.errors import as_kafka_exception, no_offset, not_answered, refused, refused_here
from holdfast.client.member.control import ControlPlane
from holdfast.client.member.entries import Entries, accepted_of, results_of, sendable
from holdfast.client.member.known_commits import KnownCommits
from holdfast.client.partitions import NO_OFFSET, confluent_entry, name_of
from holdfast.client.raised import Raised
from holdfast.client.reading.data_plane import DataPlane
from holdfast.group.messages import CommitAnswer
from holdfast.group.offsets import BETWEEN_GENERATIONS, OVERTAKEN, RebalanceInProgress, overtaken
from holdfast.group.session.progress import not_committed_yet
from holdfast.group.session.steps import Await
from holdfast.group.user_data import Positions
from holdfast.model import ErrorCode, HoldfastError, Membership, TopicPartition

COMMIT_TIMEOUT_S = 60.0

T = TypeVar("T")


class Offsets:
    """One consumer's offsets on their way to the group."""

    def __init__(
        self,
        config: ConsumerConfig,
        data: DataPlane,
        now: float,
        *,
        handed: Callable[[], Positions],
    ) -> None:
        """`handed`: positions that were handed over to us and that the group may not have yet."""
        self.touched = False
        """Whether anything was returned or stored, or a commit failed, since the last commit."""
        self.committed_in_revoke: Entries = {}
        """What the application committed inside on_revoke. If it commits by itself, this is what it hands over."""
        self.given_up: set[TopicPartition] = set()
        """Partitions that the group took from us and has not given back: only their next owner commits them."""
        self._config = config
        self._handed = handed
        self._data = data
        self._stored: Entries = {}
        self._known = KnownCommits()
        self._new_at_revoke: frozenset[TopicPartition] = frozenset()
        """During a revoke: partitions with something uncommitted when it began. It is committed before on_revoke is
        called; a commit without offsets inside on_revoke still includes them."""
        self._ahead_of_join = False
        """During a revoke whose positions go with our join: no commit may be overtaken by it."""
        self._due_at = now + config.auto_commit_interval_ms
        self._under_way: set[Future[Any]] = set()
        self._reports: deque[tuple[Any, list[ck.TopicPartition]]] = deque()

    def committable(self, partitions: Iterable[TopicPartition]) -> Entries:
        """What could be committed of these: stored offsets, or the application's positions; before it has any, the one
        that was handed over to us."""
        wanted = set(partitions)
        found = self._stored if not self._config.auto_offset_store else self._data.standing(wanted)
        found = {**self._handed(), **self._known.unassigned(), **found}
        return {p: found[p] for p in sorted(wanted & found.keys())}

    def uncommitted(self, partitions: Iterable[TopicPartition]) -> Entries:
        """What a commit without offsets commits: only what is new. A seek back does not undo a commit."""
        return {
            p: entry
            for p, entry in self.committable(partitions).items()
            if p in self._new_at_revoke or self._known.is_new(p, entry)
        }

    def with_all_assigned(self, entries: Entries) -> Entries:
        """The same, plus the other assigned partitions without an offset, as librdkafka lists them in the result."""
        return {**dict.fromkeys(sorted(self._data.assigned), NO_OFFSET), **entries}

    def store(self, entries: Entries) -> Entries:
        """Store these for the next commit. Only of assigned partitions: another member's would rewind the group.

        Returns what was stored. An entry without an offset removes what was stored before.
        """
        if self._config.auto_offset_store:
            why = "enable.auto.offset.store must be false to store offsets"
            raise refused_here(ck.KafkaError._INVALID_ARG, why)
        ours = {p: entry for p, entry in entries.items() if p in self._data.assigned}
        strangers = sorted(entries.keys() - ours.keys())
        if strangers and not ours:
            known = {p.topic for p in self._data.assigned} >= {p.topic for p in strangers}
            code = ck.KafkaError._STATE if known else ck.KafkaError._UNKNOWN_PARTITION
            names = ", ".join(map(str, strangers))
            raise refused_here(code, f"not assigned to this consumer: {names}")
        for partition, entry in ours.items():
            if entry.offset >= 0:
                self._stored[partition] = entry
            else:
                self._stored.pop(partition, None)
        self.touched = True
        return ours

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self._known.forget(gone)
        for partition in gone:
            self._stored.pop(partition, None)

    def unanswered(self) -> dict[TopicPartition, int]:
        """The offsets of commits under way: where the group will stand once they are accepted."""
        return {p: entry.offset for p, entry in self._known.unanswered().items() if p not in self.given_up}

    # -- committing

    def due(self, now: float) -> bool:
        """Whether it is time for an auto-commit, and there may be something to commit."""
        return self._config.auto_commit and self.touched and now >= self._due_at

    def commit_due(self, plane: ControlPlane, now: float, *, member: bool) -> None:
        """Auto-commit. Called by poll, so what poll returned before counts as processed. Not between two generations:
        the coordinator would refuse it."""
        if member and plane.state.phase in BETWEEN_GENERATIONS:
            return
        self._due_at = now + self._config.auto_commit_interval_ms
        self.touched = False
        entries = self.uncommitted(self._data.assigned)
        # One commit of a partition at a time: the one under way may still be retried.
        ready = {p: entry for p, entry in entries.items() if not self._known.under_way(p)}
        if ready:
            self._commit_later(plane, self.with_all_assigned(ready), member=member, automatic=True)
        if len(ready) < len(entries):
            self.touched = True

    def commit_later(
        self, plane: ControlPlane, entries: Entries, *, member: bool, forbidden: ck.KafkaError | None = None
    ) -> None:
        """A commit that the application does not wait for: its outcome goes to on_commit. `forbidden` is the error for
        which it is not sent."""
        if forbidden is not None or not sendable(entries):
            self._reports.append((forbidden or no_offset().args[0], results_of(entries, None)))
            return
        self.committed_in_revoke.update(sendable(entries))
        self._commit_later(plane, entries, member=member)

    def _commit_later(
        self,
        plane: ControlPlane,
        entries: Entries,
        *,
        member: bool,
        handed_over: bool = False,
        automatic: bool = False,
    ) -> None:
        sent_as = plane.state.membership
        sending = self._marked(plane, entries, member=member)
        report = self._report(plane, entries, sending, sent_as, handed_over=handed_over, automatic=automatic)
        self._run(plane, report)

    def begin(self, plane: ControlPlane, entries: Entries, *, member: bool) -> Future[CommitAnswer]:
        """Send these under the current membership. A caller that stops waiting must not cancel the future (asyncio:
        shield it): the commit goes on, and its outcome is recorded."""
        return self._run(plane, self._marked(plane, entries, member=member))

    def _run(self, plane: ControlPlane, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the plane's loop. `wait` waits for everything started here."""
        future = plane.submit(work)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _marked(self, plane: ControlPlane, entries: Entries, *, member: bool) -> Coroutine[Any, Any, CommitAnswer]:
        """Mark a commit as under way and return the coroutine that sends it, to be run on the plane's loop.

        Partitions that the group took from us are left out: their next owner may be further. If nothing is left, the
        whole commit is refused.
        """
        sent = sendable(entries)
        ours = {p: entry for p, entry in sent.items() if p not in self.given_up}
        if ours and member:
            sent = ours
        self._known.begin(sent)
        sending = plane.offsets.commit_soon(
            sent, member=member, given_up=frozenset(self.given_up), ahead_of_join=self._ahead_of_join
        )
        return self._settle(entries, sending)

    async def _settle(self, entries: Entries, sent: Coroutine[Any, Any, CommitAnswer]) -> CommitAnswer:
        """Send it. However that ends, the commit is no longer under way, and what was not accepted is due again."""
        answer = None
        try:
            answer = await sent
        finally:
            self._ended(entries, answer)
        return answer

    async def _report(
        self,
        plane: ControlPlane,
        entries: Entries,
        sending: Coroutine[Any, Any, CommitAnswer],
        sent_as: Membership,
        *,
        handed_over: bool,
        automatic: bool,
    ) -> None:
        """Keep the outcome of a commit for on_commit.

        Two outcomes are not failures and are not reported. A commit that the next round overtook, if its offsets went
        with the join: the next owner commits them. And an auto-commit that fell between two generations, so that it was
        not sent or came too late for the one it was sent under: it is still due.
        """
        try:
            answer = await sending
        except HoldfastError as error:
            if automatic and isinstance(error, RebalanceInProgress):
                return
            self._reports.append((as_kafka_exception(error).args[0], results_of(entries, None)))
        else:
            first = answer.first_error
            if handed_over and first in OVERTAKEN:
                return
            if automatic and first is ErrorCode.ILLEGAL_GENERATION and overtaken(plane.state, sent_as):
                return
            told = None if first is ErrorCode.NONE else ck.KafkaError(int(first))
            self._reports.append((told, results_of(entries, answer)))
        plane.wake()

    def commit_now(self, plane: ControlPlane, entries: Entries, *, member: bool) -> list[ck.TopicPartition]:
        """Commit and wait. Raises when any partition was not accepted."""
        if not sendable(entries):
            raise no_offset()
        try:
            answer = self.begin(plane, entries, member=member).result(COMMIT_TIMEOUT_S)
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        except TimeoutError:
            raise not_answered("the coordinator") from None
        return self.settled(entries, answer)

    def settled(self, entries: Entries, answer: CommitAnswer) -> list[ck.TopicPartition]:
        """The result of a commit that was waited for. Raises when any partition was not accepted."""
        self.committed_in_revoke.update(accepted_of(entries, answer))
        if answer.first_error is not ErrorCode.NONE:
            raise refused(answer.first_error)
        return results_of(entries, answer)

    def _ended(self, entries: Entries, answer: CommitAnswer | None) -> None:
        """A commit has ended; `answer` is None if it failed. What was not accepted is due again."""
        sent, accepted = sendable(entries), accepted_of(entries, answer)
        self._known.end(sent, accepted, assigned=self._data.assigned)
        if len(accepted) < len(sent):
            self.touched = True

    # -- giving up

    def begin_revoke(self, partitions: frozenset[TopicPartition], *, ahead_of_join: bool) -> None:
        """These are being given up, until `end_revoke`. With `ahead_of_join` our join overtakes no commit. It may still
        overtake a retry, which is refused then; the next owner commits what it was handed (`not_committed_yet`)."""
        self.committed_in_revoke, self._new_at_revoke = {}, frozenset(self.uncommitted(partitions))
        self._ahead_of_join = ahead_of_join

    def wait_in_revoke(self, step: Await) -> None:
        """Wait for commits under way, as this step says."""
        text = step.with_text_ms and any(entry.metadata for entry in self.final(step.partitions).values())
        limit_ms = step.with_text_ms if text else step.limit_ms
        if limit_ms and (not step.only_theirs or any(map(self._known.under_way, step.partitions))):
            self.wait(limit_ms / 1_000.0)

    def final(self, partitions: Iterable[TopicPartition]) -> Entries:
        """Where the next owner of these goes on. An application that commits by itself hands over what it committed
        inside on_revoke, and nothing else."""
        if self._config.auto_commit:
            return self.committable(partitions)
        return {p: self.committed_in_revoke[p] for p in partitions if p in self.committed_in_revoke}

    def end_revoke(self) -> None:
        self._new_at_revoke, self._ahead_of_join = frozenset(), False

    def before_unassign(
        self, plane: ControlPlane | None, partitions: Iterable[TopicPartition], *, member: bool
    ) -> None:
        """The application unassigns these itself: commit and remember its positions. The group still counts them as
        ours until it takes them."""
        gone = set(partitions)
        if self._config.auto_commit and plane is not None:
            self.commit_positions(plane, gone, member=member)
        self._known.unassign(self.committable(gone))
        for partition in gone:
            self._stored.pop(partition, None)

    def commit_positions(
        self,
        plane: ControlPlane,
        partitions: Iterable[TopicPartition],
        *,
        member: bool,
    ) -> None:
        """With auto-commit: commit the positions of these, except where that offset is committed or on its way."""
        if not self._config.auto_commit:
            return
        entries = not_committed_yet(self.committable(partitions), self._known.latest())
        if entries:
            self._commit_later(plane, entries, member=member, handed_over=self._ahead_of_join)

    def wait(self, timeout_s: float) -> None:
        """Wait until every commit under way has ended, or the time is up."""
        concurrent.futures.wait(set(self._under_way), timeout_s)

    def report(self) -> None:
        """Pass the outcome of commits that nobody waited for to on_commit. If it raises, the rest waits for the next
        call."""
        while self._reports:
            error, partitions = self._reports.popleft()
            if self._config.on_commit is not None:
                self._config.on_commit(error, partitions)

    def report_all(self, raised: Raised) -> None:
        """The same at close, after which there is no next call: on_commit hears of every commit, whatever it raises."""
        while self._reports:
            try:
                self.report()
            except BaseException as error:  # noqa: BLE001  # an application's callback may raise anything
                raised.remember(error)

    # -- reading back

    def committed(
        self, plane: ControlPlane, partitions: list[ck.TopicPartition], timeout_s: float | None
    ) -> list[ck.TopicPartition]:
        asked = tuple(map(name_of, partitions))
        limit_s = COMMIT_TIMEOUT_S if timeout_s is None or timeout_s < 0 else timeout_s
        try:
            answer = plane.call(plane.offsets.committed(asked), limit_s)
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        except TimeoutError:
            raise not_answered("the coordinator") from None
        if answer.error is not ErrorCode.NONE:
            raise refused(answer.error)
        return [confluent_entry(p, answer.offsets.get(p, NO_OFFSET)) for p in asked]
