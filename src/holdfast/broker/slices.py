"""Long work in small pieces, so that nobody waits for somebody else's large request.

A handler whose work grows with its request is a generator. It yields PAUSE between items: a place where it can be put
aside. It yields an `InThread` for what is better done beside the loop, and an `Until` for what somebody else will tell;
it gets the result back. What it returns is the request's answer.

Rules. A request gets a first slice at once, which is all that nearly every request needs. Whoever needs more waits in
line, and the loop runs one slice of one of them in each of its turns, round and round. Who says WRITING is next until
it is done: of answers that are half written, with all their bytes, there is one at a time. Work in threads is done one
after the other in each lane: a lane's memory is that of one piece of work. Work whose client is gone is dropped.

It must not know any API.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

FIRST_SLICE_SECONDS = 0.002
"""Some dozens of items. Every connection has one request in work, so this is what a crowd costs a turn for each."""
CROWDED_SLICE_SECONDS = 0.0005
"""The same when others wait in line already: a crowd that comes in one turn must not fill it with first slices."""
SLICE_SECONDS = 0.010
"""The share of those who wait in line, of each turn of the loop."""


@dataclass(frozen=True, slots=True)
class InThread:
    """Work to be done in a lane's thread: it must touch nothing that the loop owns."""

    work: Callable[[], Any]
    lane: str


@dataclass(frozen=True, slots=True)
class Until:
    """Something that will be told, once, on the loop: `start` gets a function that takes the outcome, which is a
    function that returns or raises. It may be told before `start` returns."""

    start: Callable[[Callable[[Callable[[], Any]], None]], None]


CHECK, SEARCH, READ, DELETE = "check", "search", "read", "delete"
"""The lanes: looking into what producers send and into what is stored, reading large requests, and forcing to disk
where a log starts."""


class Phase(Enum):
    PAUSE = "pause"
    """Others may go first here."""
    WRITING = "writing"
    """From here on an answer is written, and takes memory until it is sent."""


PAUSE, WRITING = Phase.PAUSE, Phase.WRITING

Steps = Generator[InThread | Until | Phase | None, Any, Any]


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
        self, steps: Steps, finished: Callable[[Callable[[], Any]], None], abandoned: Callable[[], bool] = bool
    ) -> None:
        """Run `steps` to their end. `finished` is called once with a function that returns their result or raises."""
        seconds = CROWDED_SLICE_SECONDS if self._line else FIRST_SLICE_SECONDS
        self._advance(_Job(steps, finished, abandoned), seconds, time.thread_time)

    def run_later(self, steps: Steps, finished: Callable[[Callable[[], Any]], None]) -> None:
        """The same, but begun when its turn comes: for what is known to be much before it is begun."""
        self._enqueue(_Job(steps, finished, bool))

    def stop(self) -> None:
        """Drop everything that waits."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for job in self._line:
            job.steps.close()
        self._line.clear()
        for lane in self._lanes.values():
            lane.shutdown(wait=True, cancel_futures=True)

    def _advance(self, job: _Job, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Run a job until its time is up, it wants a thread, or it is done. A first slice is counted in processor time:
        on a busy machine a small request must not land behind the large ones because somebody else ran meanwhile."""
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
            except Exception as error:  # noqa: BLE001  # handed on to whoever waits for the work
                job.finished(partial(_raise, error))
                return
            if isinstance(wanted, Until):
                wanted.start(partial(self._told, job))
                return
            if wanted is WRITING:
                if self._line and clock is time.thread_time:
                    self._enqueue(job)  # it may be megabytes, which is nothing for a first slice
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

    def _told(self, job: _Job, outcome: Callable[[], Any]) -> None:
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
        """One slice of whoever has waited longest. Those behind get theirs in the loop's next turns."""
        self._turn = None
        job = self._line.popleft()
        self._advance(job, SLICE_SECONDS)
        if self._line and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next)


class Floor:
    """For one at a time, in the order of asking."""

    def __init__(self) -> None:
        self._held = False
        self._line: deque[Callable[[], None]] = deque()

    def ask(self, begin: Callable[[], None]) -> None:
        """Call `begin` when nobody else has the floor: now or later. Whoever has begun calls `leave` once."""
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
    """Run steps to their end here and now: for tests and for callers without a loop. They must not wait for anybody."""
    value = None
    while True:
        try:
            wanted = steps.send(value)
        except StopIteration as end:
            return end.value
        assert not isinstance(wanted, Until)
        value = wanted.work() if isinstance(wanted, InThread) else None
