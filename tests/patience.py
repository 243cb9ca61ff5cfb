"""How long any test waits for what must come to pass. One number, because it must never decide a test.

It is spent only when a test fails: who waits for a condition goes on as soon as it holds. So it is far more than
anything takes on a busy machine (ten times as slow as a quiet one has been seen), more than the 45 s after which a
broker throws out a member that vanished, and less than the 300 s after which pytest ends a test without saying what it
waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 120.0

LOOK_S = 0.005

T = TypeVar("T")


def wait_for(holds: Callable[[], T], what: str = "it") -> T:
    """Look until it holds, and return what it returned then."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come to pass within {PATIENCE_S:.0f} s"
        time.sleep(LOOK_S)
    return found
