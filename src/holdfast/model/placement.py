"""Where something stands, seen from a member's rack. What crosses zones is slower and has to be paid for."""

from __future__ import annotations

from collections.abc import Collection

LOCAL, CROSS_ZONE, UNKNOWN = "local", "cross-zone", "unknown"

PLACEMENTS = (LOCAL, CROSS_ZONE, UNKNOWN)


def placement(mine: str | None, theirs: Collection[str]) -> str:
    """`mine` is the member's rack; `theirs` are the racks of what it reads, empty where they are not known."""
    if mine is None or not theirs:
        return UNKNOWN
    return LOCAL if mine in theirs else CROSS_ZONE
