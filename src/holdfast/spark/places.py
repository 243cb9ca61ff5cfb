"""Where reading begins or ends: earliest, latest, committed, an offset or a time, for all partitions or for each.

`resolve` asks the brokers. Used by streams and batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.model import HoldfastError, TopicPartition
from holdfast.net import admin as net

_EARLIEST, _LATEST, _COMMITTED, _OFFSET, _TIME = "earliest", "latest", "committed", "offset", "time"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a partition."""

    kind: str
    value: int = 0
    late_is_latest: bool = False
    """Whether a time after the last record means the end; otherwise it is an error."""

    @staticmethod
    def from_offset(offset: int) -> Place:
        """As in Spark's JSON: -2 is the beginning, -1 the end."""
        return {net.EARLIEST: Place(_EARLIEST), net.LATEST: Place(_LATEST)}.get(offset) or Place(_OFFSET, offset)

    @staticmethod
    def at_time(time_ms: int, *, late_is_latest: bool) -> Place:
        return Place(_TIME, time_ms, late_is_latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """One place for all partitions, or one for each named partition; a partition without either is an error."""

    default: Place | None = None
    named: Mapping[TopicPartition, Place] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> Place:
        place = self.named.get(partition, self.default)
        if place is None:
            raise HoldfastError(
                "OFFSET_NOT_GIVEN",
                f"{partition} is read, and the options name no offset for it.",
                "Name every partition in startingOffsets (endingOffsets), or say earliest or latest for all.",
            )
        return place


EARLIEST = Places(default=Place(_EARLIEST))
LATEST = Places(default=Place(_LATEST))
COMMITTED = Places(default=Place(_COMMITTED))


async def resolve(
    admin: net.Admin, places: Places, partitions: Iterable[TopicPartition], *, read_committed: bool, group: str
) -> dict[TopicPartition, int]:
    """The offset of each partition's place, sorted."""
    wanted = {partition: places.of(partition) for partition in sorted(set(partitions))}
    found = {p: place.value for p, place in wanted.items() if place.kind == _OFFSET}
    committed = [p for p, place in wanted.items() if place.kind == _COMMITTED]
    if committed:
        entries = await admin.committed(group, committed)
        for partition in committed:
            if partition not in entries:
                raise no_committed_offset(partition, group)
            found[partition] = entries[partition].offset
    words = {_EARLIEST: net.EARLIEST, _LATEST: net.LATEST}
    asked = {p: words.get(place.kind, place.value) for p, place in wanted.items() if p not in found}
    answers = await admin.list_offsets(asked, read_committed=read_committed) if asked else {}
    late = sorted(p for p, at in answers.items() if at.offset < 0)
    for partition in late:
        if not wanted[partition].late_is_latest:
            raise HoldfastError(
                "NO_RECORD_THAT_LATE",
                f"{partition} has no record at or after {wanted[partition].value} ms.",
                "Choose an earlier time, or startingOffsetsByTimestampStrategy=latest.",
            )
    ends = await admin.list_offsets(dict.fromkeys(late, net.LATEST), read_committed=read_committed) if late else {}
    found |= {p: at.offset for p, at in {**answers, **ends}.items()}
    return dict(sorted(found.items()))


def no_committed_offset(partition: TopicPartition, group: str) -> HoldfastError:
    return HoldfastError(
        "NO_COMMITTED_OFFSET",
        f"startingOffsets is committed, and the group {group} has committed nothing for {partition}.",
        "Say where to begin instead (earliest or latest), set kafka.auto.offset.reset, or bring a former job's offsets "
        "over with `holdfast pipeline import-checkpoint`.",
    )
