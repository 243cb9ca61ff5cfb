"""Changes topics without blocking the event loop: changes are written and synced in a thread, one plan at a time.

Work that changes the catalog is submitted and queued. All queued work is planned together: each piece sees the changes
planned before it, and nobody else sees any of them. When the plan is on disk, all its changes take effect at once and
the submitters get their results. If the disk refuses, none of them takes effect, and the submitters get the error.

What follows from a plan may be long work, such as forgetting committed offsets of deleted topics. It is done in slices,
before the submitters get their results and before the next plan, and a plan ends with a deletion: a new topic never
meets what an older one of its name left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from holdfast.broker.slices import Slices, Steps, Until
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.topics import Plan

log = logging.getLogger("holdfast.broker")

T = TypeVar("T")

ITEMS_AT_A_TIME = 20
"""How many items of one request go into one plan: about a millisecond of the loop, and one sync for twenty topics."""
CHANGES_AT_A_TIME = 100
"""A plan with this many changes takes no more work. At about 30 us each, planning takes milliseconds of the loop."""

Outcome = Callable[[], Any]
"""Returns what the work returned. Raises what it raised, or the disk's error."""
WhenDone = Callable[[Outcome], None]


class Changes:
    """One per broker."""

    def __init__(self, store: Store, slices: Slices, follow_up: Callable[[], Steps | None] = lambda: None) -> None:
        """`follow_up` is asked after each plan for work that follows from it, None if there is none."""
        self._store = store
        self._slices = slices
        self._follow_up = follow_up
        self._queue: deque[tuple[Callable[[], Any], WhenDone]] = deque()
        self._writing: asyncio.Future[Plan] | None = None
        self._busy = False
        self._following = False
        self._closed = False

    def submit(self, work: Callable[[], Any], when_done: WhenDone) -> None:
        """Let `work` change the catalog, and call `when_done` once that is on disk or refused: now, or in a later turn
        of the loop."""
        self._queue.append((work, when_done))
        self._go_on()

    def each(self, items: Iterable[T], change: Callable[[T], Any], refused: Callable[[T, StorageError], Any]) -> Steps:
        """Call `change` for each of `items`, some at a time, and return the answers in their order. `refused` makes the
        answers for items that the disk refused.
        """
        answers: list[Any] = []
        left = deque(items)
        while left:
            some = [left.popleft() for _ in range(min(len(left), ITEMS_AT_A_TIME))]
            work = partial(_all, change, some)
            try:
                answers += yield Until(partial(self.submit, work))
            except StorageError as error:
                answers += [refused(item, error) for item in some]
        return answers

    async def make(self, work: Callable[[], Any]) -> Any:
        """Submit `work` and wait for its outcome."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(work, done.set_result)
        return (await done)()

    async def drained(self) -> None:
        """Wait for the plan being written, and begin no other."""
        self._closed = True
        while self._writing is not None:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)  # its callback runs in the loop's next turn

    def _go_on(self) -> None:
        """Plan and write until the queue is empty, or a thread is at work."""
        if self._busy:
            return
        self._busy = True
        while self._queue and not self._closed:
            plan, results = self._plan()
            if plan.entries and not self._store.in_memory:
                self._writing = asyncio.get_running_loop().run_in_executor(None, plan.run)
                self._writing.add_done_callback(partial(self._written, results))
                return
            self._finish(plan.run(), results)
            if self._following:
                return
        self._busy = False

    def _plan(self) -> tuple[Plan, list[_Result]]:
        results: list[_Result] = []
        with self._store.planning() as plan:
            while self._queue and len(plan.entries) < CHANGES_AT_A_TIME and not plan.deletes:
                work, when_done = self._queue.popleft()
                try:
                    results.append(_Result(when_done, plan.do(work), None))
                except Exception as error:  # noqa: BLE001  # raised again for the submitter
                    results.append(_Result(when_done, None, error))
        return plan, results

    def _written(self, results: list[_Result], done: asyncio.Future[Plan]) -> None:
        self._writing = None
        if not done.cancelled():
            self._finish(done.result(), results)
        if not self._following:
            self._busy = False
            self._go_on()

    def _finish(self, plan: Plan, results: list[_Result]) -> None:
        refused: StorageError | None = None
        try:
            self._store.finish_plan(plan)
        except StorageError as error:
            refused = error
            log.error("%s %s", error.what, error.do)
        steps = self._follow_up()
        if steps is None:
            _deliver(results, refused)
        else:
            self._following = True
            self._slices.run_later(steps, partial(self._followed, results, refused))

    def _followed(self, results: list[_Result], refused: StorageError | None, outcome: Callable[[], Any]) -> None:
        try:
            outcome()
        except Exception:  # the changes themselves are made
            log.exception("what follows from a change of topics failed")
        self._following = False
        _deliver(results, refused)
        self._busy = False
        self._go_on()


class _Result(NamedTuple):
    when_done: WhenDone
    value: Any
    error: Exception | None


def _deliver(results: list[_Result], refused: StorageError | None) -> None:
    for when_done, value, failure in results:
        when_done(partial(_outcome, value, failure or refused))


def _all(change: Callable[[T], Any], items: list[T]) -> list[Any]:
    return [change(item) for item in items]


def _outcome(value: Any, error: Exception | None) -> Any:
    if error is not None:
        raise error
    return value
