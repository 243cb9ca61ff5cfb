"""One record per step of a group. Machines emit them; logs, page, doctor and simulator read nothing else.

The schema is versioned. A field is never renamed or given a second meaning; new ones are added and readers ignore
what they don't know. `holdfast.trace` writes, reads and renders these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRACE_VERSION = 1

Scalar = str | int | float | bool | None
Value = Scalar | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """What one step of one member or coordinator did."""

    at: float
    """Milliseconds on the emitter's clock."""
    source: str
    """Who speaks: "member", "coordinator", "consumer", "broker", "spark", "sim", "demo"."""
    step: str
    """What happened, a word of the vocabulary: "join-sent", "revoked", "generation" …"""
    group: str = ""
    member: str = ""
    """The member id, or the name a member goes by before it has one."""
    generation: int | None = None
    cause: str | None = None
    """Why it happened, in words for an operator."""
    culprit: str | None = None
    """Which member caused it, where that is known."""
    data: Mapping[str, Value] = field(default_factory=dict)
    """What is particular to this step; partitions in the form topic -> numbers."""
    wall: float | None = None
    """Milliseconds since 1970, added when the record is written: the machines only know the time that they are given.
    It lets the traces of several hosts be merged."""
