"""The listener's calls of a round, queued by the control plane for the polling thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.assign import STRATEGIES
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition


@dataclass(slots=True)
class PendingCall:
    """One listener's call, to be made by the polling thread. `ready` when start offsets of added partitions are known.

    `handed` are positions from the partitions' previous owners; `offsets` are the offsets to start at.
    """

    serial: int
    call: mb.Call
    last: bool
    offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    handed: Mapping[TopicPartition, OffsetEntry] = field(default_factory=dict)
    ready: bool = True
    answered: bool = False
    """Whether the machine was told already that this call has returned: the group does not wait for it."""


def quiet_calls(calls: Iterable[PendingCall]) -> int:
    """How many calls at the front belong to a round that changed nothing for this member. 0 if it changed something, or
    if the assignor is the user's own, whose on_assignment may be slow."""
    for number, pending in enumerate(calls, start=1):
        match pending.call:
            case mb.OnAssignment(protocol) if protocol in STRATEGIES:
                pass
            case mb.Assigned(partitions) if not partitions:
                pass
            case _:
                return 0
        if pending.last:
            return number
    return 0
