"""How much work a call is, counted in lines of Python that run: the same on a busy machine as on a quiet one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object]) -> int:
    count = 0

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
