"""Reads and checks values in a request's body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import HoldfastError

MAX_MOMENT_MS = 1e13
"""Three hundred years: a live group's clock runs for as long as its page is open, which may be weeks."""


def moment_in(body: Mapping[str, Any]) -> float:
    at = body.get("at", 0)
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < MAX_MOMENT_MS:
        raise HoldfastError("BAD_TIME", f"{at!r} is not a moment.", "Give milliseconds since the start.")
    return float(at)


def members_in(body: Mapping[str, Any]) -> int:
    members = body.get("members")
    if isinstance(members, bool) or not isinstance(members, int):
        raise HoldfastError("BAD_SIZE", f"{members!r} is not a number of members.", "Give a number.")
    return members
