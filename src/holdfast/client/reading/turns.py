"""Whose turn it is to call librdkafka: a thread that changes or asks something goes before the thread that polls.

confluent-kafka's handle takes one call at a time and is not fair: a thread that polls in a loop is back before another
thread has woken up, which can last for minutes. And records that librdkafka has returned are not in `ahead` at once. If
another thread paused, sought or unassigned their partition in between, hundreds of them would still be handed out.

So the polling thread holds the turn until the records are in `ahead`, and takes it again only when no other thread
waits. A callback runs on the polling thread and has the turn too. It may wait for another thread, which waits for the
turn; so other threads wait for a limited time only, and then go on without it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

PATIENCE_S = 1.0
"""How long other threads wait for a poll to end. It takes up to 60 ms, unless a callback in it takes its time."""

GIVE_WAY_S = 0.0005
"""How often the polling thread checks whether the others have had their turn."""


class Turns:
    """One consumer's turns."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._waiting: deque[None] = deque()

    @property
    def wanted(self) -> bool:
        """Whether another thread waits for the polling thread."""
        return bool(self._waiting)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """For a thread that changes or asks something: it goes before the thread that polls."""
        held = self._turn.acquire(blocking=False)
        if not held:
            self._waiting.append(None)
            try:
                held = self._turn.acquire(timeout=PATIENCE_S)
            finally:
                self._waiting.pop()
        try:
            yield
        finally:
            if held:
                self._turn.release()

    def begin_poll(self) -> None:
        """For the polling thread; `end_poll` must follow. No context manager: every poll calls it."""
        while self._waiting:
            time.sleep(GIVE_WAY_S)
        self._turn.acquire()

    def end_poll(self) -> None:
        self._turn.release()
