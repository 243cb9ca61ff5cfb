"""Runs long work in small slices, so that nobody waits for somebody else's large request.

A handler whose work grows with its request is a generator. It yields PAUSE between items, where it may be interrupted.
It yields an `InThread` for work that should run in a thread, and an `Until` for a result that somebody else will
deliver; the result is sent back into it. What it returns is the request's answer.

Rules. A request gets a first slice at once, which is enough for nearly every request. If it needs more it is queued,
and in each turn the loop runs one slice of the job at the front. A job that has yielded WRITING stays at the front
until it is done, so that only one answer at a time is half encoded, with all its bytes in memory. Each lane runs its
work in one thread, one piece after the other, so it needs memory for one piece. Work whose client is gone is dropped.

It must not know any API.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

FIRST_SLICE_SECONDS = 0.002
"""Length of a request's first slice: enough for some dozens of items. Each connection can take one in a turn of the
loop."""
CROWDED_SLICE_SECONDS = 0.0005
"""The same while jobs are queued: many requests that arrive in one turn must not fill it with first slices."""
SLICE_SECONDS = 0.010
"""Length of the slice that queued jobs get in each turn of the loop."""

ITEMS_AT_A_TIME = 100
"""Between two pauses: tens of microseconds. A request may name half a million things."""

MANY_ITEMS = 1_000
"""Too many for one piece of work on the loop: milliseconds."""


@dataclass(frozen=True, slots=True)
class InThread:
    """Work for a lane's thread: it must not touch anything that the loop owns."""

    work: Callable[[], Any]
    lane: str


@dataclass(frozen=True, slots=True)
class Until:
    """Wait for a result that comes later. `start` is called with a callback, to be called once, on the loop, with the
    outcome: a function that returns the result or raises. The callback may be called before `start` returns."""

    start: Callable[[Callable[[Callable[[], Any]], None]], None]


CHECK, SEARCH, READ, DELETE, LOGIN = "check", "search", "read", "delete", "login"
"""The lanes: checking produced batches, searching stored batches, decoding large requests, preparing deletions (syncing
the start of a log after DeleteRecords, and what retention asks of the disk), and comparing passwords."""


class Phase(Enum):
    PAUSE = "pause"
    """The job may be interrupted here."""
    WRITING = "writing"
    """From here on an answer is encoded, and takes memory until it is sent."""


PAUSE, WRITING = Phase.PAUSE, Phase.WRITING

Steps = Generator[InThread | Until | Phase | None, Any, Any]


def in_lane(work: Generator[Callable[[], Any] | None, Any, Any], lane: str) -> Steps:
    """Storage's long work as steps: on the loop, but its slow pieces in a thread."""
    step = partial(next, work)
    while True:
        try:
            piece = step()
        except StopIteration as end:
            return end.value
        try:
            step = partial(work.send, (yield PAUSE if piece is None else InThread(piece, lane)))
        except Exception as error:  # noqa: BLE001  # raised where the piece was asked for
            step = partial(work.throw, error)


def beside(items: int, work: Callable[[], Any]) -> Steps:
    """Work in one piece that takes microseconds for each of its items, and touches nothing that the loop owns: in a
    thread if they are many."""
    if items > MANY_ITEMS:
        return (yield InThread(work, READ))
    return work()


def take_apart(body: Mapping[str, Any]) -> Steps:
    """Empty the lists of an answer that is encoded. To free half a million objects takes 80 ms, in one piece if they go
    with the answer."""
    for content in body.values():
        while content and isinstance(content, list):
            for item in content[-ITEMS_AT_A_TIME:]:
                if isinstance(item, Mapping) and any(
                    isinstance(inner, list) and len(inner) > MANY_ITEMS for inner in item.values()
                ):
                    yield from take_apart(item)
            del content[-ITEMS_AT_A_TIME:]
            yield PAUSE


def _never() -> bool:
    return False


class _Job:
    __slots__ = ("abandoned", "failure", "finished", "steps", "value", "writing")

    def __init__(
        self, steps: Steps, finished: Callable[[Callable[[], Any]], None], abandoned: Callable[[], bool]
    ) -> None:
        self.steps = steps
        self.finished = finished
        self.abandoned = abandoned
        self.value: Any = None
        self.failure: BaseException | None = None
        self.writing = False


class Slices:
    """All long work of one broker."""

    def __init__(self) -> None:
        self._line: deque[_Job] = deque()
        self._turn: asyncio.Handle | None = None
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def __len__(self) -> int:
        return len(self._line)

    def run(
        self, steps: Steps, finished: Callable[[Callable[[], Any]], None], abandoned: Callable[[], bool] = _never
    ) -> None:
        """Run `steps` to their end. `finished` is called once with a function that returns their result or raises."""
        seconds = CROWDED_SLICE_SECONDS if self._line else FIRST_SLICE_SECONDS
        self._advance(_Job(steps, finished, abandoned), seconds, time.thread_time)

    def run_later(self, steps: Steps, finished: Callable[[Callable[[], Any]], None]) -> None:
        """The same, but queued without a first slice: for work that is known to be long."""
        self._enqueue(_Job(steps, finished, _never))

    def stop(self) -> None:
        """Drop all queued jobs."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for job in self._line:
            job.steps.close()
        self._line.clear()
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)

    def _advance(self, job: _Job, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Run a job until its time is up, it has to wait, or it is done. A first slice is measured in processor time:
        on a busy machine a small request must not be queued behind large ones because other processes ran meanwhile."""
        if job.abandoned():
            job.steps.close()
            return
        until = clock() + seconds
        while True:
            try:
                wanted = self._step(job)
            except StopIteration as end:
                job.finished(partial(_give, end.value))
                return
            except Exception as error:  # noqa: BLE001  # raised again for the caller that waits for the work
                job.finished(partial(_raise, error))
                return
            if isinstance(wanted, Until):
                wanted.start(partial(self._delivered, job))
                return
            if wanted is WRITING:
                if self._line and clock is time.thread_time:
                    self._enqueue(job)  # the answer may be megabytes: too much for a first slice
                    job.writing = True
                    return
                job.writing = True
            elif isinstance(wanted, InThread):
                self._in_thread(job, wanted)
                return
            if clock() >= until:
                self._enqueue(job)
                return

    def _step(self, job: _Job) -> InThread | Until | Phase | None:
        if job.failure is not None:
            failure, job.failure = job.failure, None
            return job.steps.throw(failure)
        value, job.value = job.value, None
        return job.steps.send(value)

    def _in_thread(self, job: _Job, wanted: InThread) -> None:
        lane = self._lanes.get(wanted.lane)
        if lane is None:
            lane = self._lanes[wanted.lane] = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{wanted.lane}")

        def work() -> Any:
            return None if job.abandoned() else wanted.work()

        future = asyncio.get_running_loop().run_in_executor(lane, work)
        future.add_done_callback(lambda done: self._came_back(job, done))

    def _came_back(self, job: _Job, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            job.steps.close()
            return
        job.failure = done.exception()
        if job.failure is None:
            job.value = done.result()
        self._enqueue(job)

    def _delivered(self, job: _Job, outcome: Callable[[], Any]) -> None:
        try:
            job.value = outcome()
        except Exception as error:  # noqa: BLE001  # thrown into the work that waits for it
            job.failure = error
        self._enqueue(job)

    def _enqueue(self, job: _Job) -> None:
        if job.writing:
            self._line.appendleft(job)
        else:
            self._line.append(job)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Run one slice of the job at the front. The others get theirs in the next turns of the loop."""
        self._turn = None
        job = self._line.popleft()
        self._advance(job, SLICE_SECONDS)
        if self._line and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next)


class Floor:
    """A lock for callbacks on the loop: one holder at a time, in the order of asking."""

    def __init__(self) -> None:
        self._held = False
        self._line: deque[Callable[[], None]] = deque()

    def ask(self, begin: Callable[[], None]) -> None:
        """Call `begin` when nobody else holds the floor: now or later. It must call `leave` once, when it is done."""
        if self._held:
            self._line.append(begin)
        else:
            self._held = True
            begin()

    def leave(self) -> None:
        if self._line:
            asyncio.get_running_loop().call_soon(self._line.popleft())
        else:
            self._held = False


def _give(value: Any) -> Any:
    return value


def _raise(failure: BaseException) -> Any:
    raise failure


def at_once(steps: Steps) -> Any:
    """Run steps to their end at once, for tests and callers without a loop. They must not yield an `Until`."""
    value = None
    while True:
        try:
            wanted = steps.send(value)
        except StopIteration as end:
            return end.value
        assert not isinstance(wanted, Until)
        value = wanted.work() if isinstance(wanted, InThread) else None
