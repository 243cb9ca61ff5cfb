"""The clock that a member's machine is driven by."""

from __future__ import annotations

import time


def now_ms() -> float:
    return time.monotonic() * 1_000.0
