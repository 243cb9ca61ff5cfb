"""The query's membership. It joins when Spark first asks for offsets, and everything runs on one event loop.

Spark calls from its own thread; each call becomes a coroutine on the control plane's loop, which also answers the
group's calls. So nothing here needs a lock. Joining, heartbeats and releases do not wait for Spark, with one exception:
a partition in the running batch is released only when that batch is done and its offsets are committed.

`work` knows what is done, `supply` what there is to read; this module connects them with Spark and the group. Spark's
calls and the group's calls change the same few fields, and stand side by side so that one sees that they can't
interfere. Beside it are `background` (tasks, errors), `joining`, `draining` and `reporting`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.client.clock import now_ms
from holdfast.client.config import settings as cfg
from holdfast.client.member.control import ControlPlane
from holdfast.client.member.pending_calls import PendingCall
from holdfast.client.telemetry import metrics_port
from holdfast.client.telemetry.tracing import open_trace
from holdfast.client.watchdog.guard import watched
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.steps import (
    Await,
    Commit,
    Committer,
    HoldBack,
    LetGo,
    Start,
    Step,
    Tell,
    steps_around,
)
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark.alone import Alone
from holdfast.spark.background import Background
from holdfast.spark.commits import COMMIT_LIMIT_S, Commits
from holdfast.spark.door import open_door
from holdfast.spark.draining import Draining
from holdfast.spark.joining import Joining
from holdfast.spark.offsets import BatchOffset, Ranges
from holdfast.spark.options import SourceOptions
from holdfast.spark.ownership import Ownership
from holdfast.spark.planning import ranges_up_to
from holdfast.spark.reporting import Reporter
from holdfast.spark.standby import QUESTION, Standby
from holdfast.spark.starting import Starting
from holdfast.spark.supply import Supply
from holdfast.spark.work import Work

T = TypeVar("T")

LEAVE_LIMIT_S = 2.0
"""Spark does not wait for a reader that it stops. The watchdog or the session timeout does the rest."""
METRICS_LIMIT_S = 5.0
"""Shorter than a scraper's patience, which is 10 s by default."""


class QueryMember:
    """One streaming query in its group. All public methods block and are for Spark's thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._manual = bool(options.assigned)
        # A running batch can't be given up in every round, so a query joins cooperatively, or as its options say.
        parsed = cfg.parse({**options.kafka, "enable.auto.commit": False})
        self._standby = Standby(options.group, options.sharing.standby, now_ms)
        assignors = (*self._standby.assignors(), *parsed.assignors)
        self._config = replace(parsed, assignors=assignors, eager_assignors=(), internal_topics=False)
        self._metrics_port = metrics_port.opened(self, self._config.metrics_host, self._config.metrics_port)
        self._asked_at = now_ms()
        self._ownership = Ownership(self._config)
        self._work = Work()
        self._first = True
        self._stopping = False
        # Made here but used on the loop only: an Event binds to a loop when it is first awaited.
        self._woken, self._done = asyncio.Event(), asyncio.Event()
        self._door: asyncio.Server | None = None
        self._left = threading.Lock()
        self._ended = False
        self._watchdog = watched(self._config) if self._config.inventions.watchdog and not self._manual else None
        self._trace = open_trace(self._config)
        self._plane = ControlPlane(
            self._config,
            trace=self._trace.write,
            last_poll=self._last_poll,
            watchdog=self._watchdog,
            wake=self._wake,
            takes_handed=False,  # `commits` commits them, with the notes of their topics
        )
        self._background = Background(self._plane)
        self._draining = Draining(self._plane, self._work, manual=self._manual)
        self._joining = Joining(self._config, self._plane, self._work, sure=self._sure, check=self._background.check)
        self._plane.start()
        self._call(self._begin())
        if self._metrics_port is not None:
            self._metrics_port.show()

    # -- what Spark asks

    def join(self) -> None:
        """Join, and return with the first assignment."""
        self._call(self._join())

    def next_batch(
        self, done: BatchOffset, limit: int | None, *, at_least: int | None = None, last: bool = False
    ) -> BatchOffset | None:
        """`done` is finished: commit it, release what waits for it, and plan the next batch. None: nothing new.

        `last`: Spark will not ask again (Trigger.Once), so None must not mean "not now".
        """
        return self._call(self._next_batch(done, limit, at_least, ends=last or self._supply.bounded))

    def keep_place(self, done: BatchOffset) -> BatchOffset | None:
        """Plan an empty batch, so that the checkpoint holds the query's positions from the start: the group's offsets
        may expire before there is anything to read. None if the query has no positions yet."""

        async def plan() -> BatchOffset | None:
            return self._plan({}, done) if self._work.open() and self._work.running is None and self._sure() else None

        return self._call(plan())

    def replay(self, previous: BatchOffset, planned: BatchOffset) -> BatchOffset:
        """After a restart: the part of a planned, perhaps unfinished batch whose partitions are still ours."""
        return self._call(self._replay(previous, planned))

    def stop_at_what_is_there(self) -> None:
        """For AvailableNow: read nothing that is produced from now on."""
        self._call(self._supply.bound())

    def drain(self, reason: str = "the query drains") -> None:
        """Hand over everything while the query goes on working, then leave. `report` says when that is done."""
        self._call(self._draining.begin(reason))

    def open_door(self) -> None:
        """Answer the driver's questions: `report`, and `drain`, which is answered when the drain is done."""
        self._door = self._call(open_door(self._answer))

    async def _answer(self, question: str) -> dict[str, Any]:
        if question == "drain":
            await self._draining.begin("the driver asked for it")
            await self._draining.wait()
        if question.startswith(QUESTION):
            return self._standby.answer(question)
        return await self._reporter.report()

    def answer(self, question: str) -> dict[str, Any]:
        """What the driver would be answered at the door."""
        return self._call(self._answer(question))

    @property
    def failure(self) -> HoldfastError | None:
        """What the next call will raise."""
        return self._background.failure

    def report(self) -> dict[str, Any]:
        """The member's state for operators; it becomes `latestOffset` in the query's progress."""
        return self._call(self._reporter.report())

    def metrics_text(self) -> str:
        """The query's metrics in Prometheus's form. Raises RuntimeError when the query has stopped."""
        if self._ended:
            raise RuntimeError("the query has stopped")
        try:
            return self._call(self._reporter.metrics(), METRICS_LIMIT_S)
        except (TimeoutError, CancelledError) as error:
            raise RuntimeError("the query is stopping") from error

    def leave(self) -> None:
        """Leave the group quickly, because Spark does not wait. A second call waits for the first."""
        with self._left:
            if self._ended:
                return
            self._ended = True
            if self._metrics_port is not None:
                self._metrics_port.close()
            with contextlib.suppress(Exception):  # if this fails, the session timeout or the watchdog takes over
                self._call(self._leave(), LEAVE_LIMIT_S + COMMIT_LIMIT_S)
            self._plane.stop()
            if self._watchdog is not None:
                self._watchdog.dismiss(clean=self._plane.out())
            self._trace.close()

    def _call(self, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        return self._plane.call(work, limit_s)

    def _last_poll(self) -> float:
        """max.poll.interval.ms limits a batch. Without a running batch there is no limit, however rare the trigger."""
        return self._asked_at if self._work.running is not None else now_ms()

    # -- on the loop

    def _wake(self) -> None:
        self._woken.set()

    async def _begin(self) -> None:
        self._cluster = Cluster(client_config(self._config.raw))
        self._starting = Starting(self._options, self._config, self._cluster)
        self._supply = Supply(self._options, self._cluster, self._starting)
        self._reporter = Reporter(
            self._config, self._plane, self._supply, self._work, self._trace, self._standby, self._draining
        )
        self._commits = Commits(self._config, self._plane, self._work, self._starting.note, manual=self._manual)
        self._alone = Alone(self._options, self._cluster, self._config.session_timeout_ms)
        await self._alone.wait_for_room()
        if self._manual:
            entries = await Admin(self._cluster).committed(self._options.group, self._options.assigned)
            self._work.assign({p: entries[p].offset if p in entries else None for p in self._options.assigned})
        else:
            self._background.start(self._serve())
            self._plane.subscribe(list(self._options.topics))

    def _fail(self, error: HoldfastError | None) -> None:
        """Raise this in Spark's next call, unless there was an error before or the query is stopping."""
        if not self._stopping:
            self._background.fail(error)

    async def _serve(self) -> None:
        """Answer the group's calls in order. What one call of a round hands over is kept for the round's answer: the
        next call may have to wait for start offsets."""
        plane = self._plane
        final: dict[TopicPartition, OffsetEntry] = {}
        while True:
            await self._woken.wait()
            self._woken.clear()
            while plane.calls and plane.calls[0].ready:
                pending = plane.calls.popleft()
                for step in steps_around(plane.state, pending.call, Committer.CERTAIN):
                    final |= await self._perform(pending, step)
                if pending.last:
                    if not pending.answered:
                        plane.driver.feed(mb.Notified(pending.serial, final))
                    final = {}
                    if self._work.owed():  # also positions that were handed over to us
                        self._background.start(self._commits.commit())

    async def _perform(self, pending: PendingCall, step: Step) -> dict[TopicPartition, OffsetEntry]:
        """One step of a round. Returns the final positions of what is released and handed over.

        A query has no listener.
        """
        match step:
            case HoldBack(partitions):
                if not self._draining.begun:
                    self._fail(self._alone.taken(partitions, "is wanted by another member"))
                await self._finish_batch_of(partitions)
            case Await(limit_ms, partitions):
                await self._commits.commit(partitions, limit_ms / 1_000.0)
            case Tell(mb.Lost(partitions)):
                self._fail(self._alone.taken(partitions, "was lost with the membership"))
            case LetGo(partitions, hands_over):
                final = self._work.release(partitions)
                return {p: OffsetEntry(offset) for p, offset in final.items()} if hands_over else {}
            case Start():
                self._fail(self._alone.note_given(pending.offsets))
                self._supply.look_again()
                self._work.assign(pending.offsets, pending.handed)
            case Tell(mb.OnAssignment() as call) if self._standby.wanted:
                if (news := self._standby.round(call)) is not None:
                    self._trace.write(news)
            case Tell() | Commit():  # `Commits.commit` sends what is owed and waits for it
                pass
        return {}

    async def _finish_batch_of(self, partitions: frozenset[TopicPartition]) -> None:
        """Plan no more of these partitions, and wait for the batch that reads them."""
        self._work.revoke(partitions)
        while self._work.busy(partitions) and not self._stopping:
            self._done.clear()
            await self._done.wait()

    async def _join(self, *, quiet: bool = False) -> None:
        if self._first:
            await self._cluster.refresh()  # so that a wrong address or login is reported as such, and soon
        if not self._manual:
            await self._joining.wait(quiet=quiet)

    async def _replay(self, previous: BatchOffset, planned: BatchOffset) -> BatchOffset:
        self._asked_at = now_ms()
        await self._go_on_after(previous, former=planned.with_starts())
        kept = self._work.replay(self._starting.without_recreated(planned))
        self._alone.check_replay(planned, kept)
        return kept

    async def _go_on_after(self, done: BatchOffset, *, former: BatchOffset, quiet: bool = False) -> None:
        """Begin after a restart: join, and count what the last run has done. `former`: where it stood."""
        await self._join(quiet=quiet)
        await self._recall(former)
        self._work.finish(self._starting.what_counts(done))
        self._background.start(self._commits.commit())

    async def _recall(self, former: BatchOffset) -> None:
        """Read what the group remembers. What only the checkpoint still knows is committed, for all members."""
        self._work.forget(await self._starting.prepare(former))
        if self._alone:
            await self._alone.joined(self._work.held, await self._starting.partitions())
        self._first = False
        forgotten = self._starting.forgotten_by_group()
        if not self._manual:
            await self._commits.commit_for_others({p: at for p, at in forgotten.items() if p not in self._work.held})
        self._work.start_at(forgotten)
        await self._commits.commit(forgotten)

    async def _next_batch(
        self, done: BatchOffset, limit: int | None, at_least: int | None, *, ends: bool
    ) -> BatchOffset | None:
        self._asked_at = now_ms()
        running = self._work.running
        if self.failure is not None and running is not None and running.number == done.number:
            self._work.finish(done)  # it is done even though the query fails now: leaving commits it
            self._done.set()
        self._background.check()
        if self._plane.state.phase is mb.Phase.EVICTED:
            self._plane.driver.feed(mb.Polled())
        if running is not None and running.number != done.number:
            return running  # Spark has not started this plan yet, and asks again
        if self._first:
            await self._go_on_after(done, former=done.with_ends(), quiet=ends)
            done = self._starting.without_recreated(done)
        elif running is not None:
            await self._commits.commit()
            self._work.finish(done)
            self._done.set()
            self._background.start(self._commits.commit())
        while await self._confirm_ownership(waits=ends):
            ranges = await self._available(limit)
            self._alone.check_start(done, self._work.open())
            if not ranges or not self._supply.enough(ranges, at_least):
                return None
            if self._sure():  # asking the brokers may have taken long
                return self._plan(ranges, done)
        return None

    async def _confirm_ownership(self, *, waits: bool) -> bool:
        """False if the partitions may not be ours any more. With `waits`, join again instead: a trigger that ends by
        itself takes "nothing new" for "everything is read"."""
        while not self._sure():
            if not waits or self._draining.begun or self._plane.state.phase is mb.Phase.CLOSED:
                return False
            await self._join(quiet=True)
        return not (self._manual and self._draining.begun)

    def _sure(self) -> bool:
        return self._manual or self._ownership.check(self._plane.state, now_ms())

    def _plan(self, ranges: Ranges, done: BatchOffset) -> BatchOffset:
        self._supply.note_planned()
        generation = self._plane.state.membership.generation
        return self._work.plan(ranges, after=done, generation=generation, topics=self._starting.topics)

    async def _available(self, limit: int | None) -> Ranges:
        work, supply = self._work, self._supply
        unknown = work.unknown()
        if unknown:
            # Commit the start before reading, so that the next owner starts there too, even if nothing was read.
            found = await supply.starts(unknown)
            work.start_at(found)
            await self._commits.commit(found)
        work.move(await supply.look(work.open()))
        positions = work.open()
        return ranges_up_to({p: positions[p] for p in supply.there(positions)}, supply.reachable(), limit)

    # -- the end

    async def _leave(self) -> None:
        self._stopping = True
        self._done.set()
        driver = self._plane.driver
        try:
            with contextlib.suppress(HoldfastError):  # leave even if a commit is refused for good
                await self._commits.commit(limit_s=LEAVE_LIMIT_S / 2)
            if not self._manual and not driver.closed.is_set():
                driver.feed(mb.Close("the query was stopped"))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(driver.closed.wait(), LEAVE_LIMIT_S)
        finally:
            await self._end()

    async def _end(self) -> None:
        commit = self._commits.running
        await self._background.cancel([] if commit is None else [commit])
        if self._door is not None:
            self._door.close()
        await self._cluster.close()
