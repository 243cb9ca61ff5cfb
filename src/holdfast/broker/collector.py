"""Keeps Python's garbage collector from looking through a large request while it is in work.

A full collection looks at all objects there are, in one piece and with everybody stopped: 80 ms for the half million
objects of one large request and its answer. Collections come the more often the more objects are made, so one request
brings several, and they find nothing: what a request leaves behind is freed as soon as it is done. So full collections
wait until the request is done. Those of young objects, which take less than a millisecond, go on.
"""

from __future__ import annotations

import gc

NEVER = 2**31 - 1
"""The greatest threshold: full collections don't come while it is set."""


class Collector:
    """One per broker. The setting is the whole process's: it is set while a large request is in work, and taken back
    unless somebody else has changed it meanwhile."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def hold_off(self) -> None:
        before = gc.get_threshold()
        if before[2] != NEVER:  # else another broker of this process holds it off
            self._before = before
            gc.set_threshold(before[0], before[1], NEVER)

    def let_go(self) -> None:
        before, self._before = self._before, None
        if before is not None and gc.get_threshold() == (before[0], before[1], NEVER):
            gc.set_threshold(*before)
