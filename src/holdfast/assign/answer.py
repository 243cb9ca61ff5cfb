"""Assignment bytes for all members at once: the inverse of `scan`.

    int16 version · int32 topics · {int16-length topic, int32 partitions, int32 …} …

The caller appends the user data. `holdfast.model.consumer_protocol.encode_assignment` is the reference.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.kernels import Kernel
from holdfast.model.consumer_protocol import ASSIGNMENT_VERSION

Ints = NDArray[np.int64]


def encode_all(
    assigned: NDArray[np.int32], members: int, topics: Sequence[str], first: Ints, topic_of: NDArray[np.int32]
) -> list[memoryview]:
    """Per member the bytes up to its user data. `assigned` is -1 where a partition goes to nobody this round."""
    encoded = [topic.encode(errors="surrogatepass") for topic in topics]
    names = b"".join(struct.pack(">H", len(name)) + name for name in encoded)
    name_starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([2 + len(name) for name in encoded], out=name_starts[1:])
    sizes, entries, last, counted, spots = (np.zeros(members, np.int64) for _ in range(5))
    measure(assigned, topic_of, name_starts, sizes, entries, last, work=4 * len(assigned) + members)
    ends = np.cumsum(sizes)
    buffer = np.empty(int(sizes.sum()), np.uint8)  # numpy asks for huge pages, which saves page faults
    write(
        assigned, topic_of, first, names, name_starts, ends - sizes, entries, last, counted, spots, buffer,
        ASSIGNMENT_VERSION, work=len(buffer) + 8 * len(assigned),
    )  # fmt: skip
    view = buffer.data
    return [view[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _measure(assigned: Any, topic_of: Any, name_starts: Any, sizes: Any, entries: Any, last: Any) -> None:
    """How many topics and bytes each member gets."""
    for m in range(len(sizes)):
        sizes[m] = 6
        last[m] = -1
    for pid in range(len(assigned)):
        m = assigned[pid]
        if m >= 0:
            sizes[m] += 4
            topic = topic_of[pid]
            if last[m] != topic:
                last[m] = topic
                entries[m] += 1
                sizes[m] += 4 + name_starts[topic + 1] - name_starts[topic]


def _write(
    assigned: Any,
    topic_of: Any,
    first: Any,
    names: Any,
    name_starts: Any,
    at: Any,
    entries: Any,
    last: Any,
    counted: Any,
    spots: Any,
    out: Any,
    version: Any,
) -> None:
    """Append each partition to its member's bytes; `at` is where a member's next byte goes. Partitions come sorted, so
    a member gets each topic once; `spots` is where the count of its current topic is stored, `counted` that count."""
    for m in range(len(at)):
        head = at[m]
        count = entries[m]
        out[head] = version >> 8
        out[head + 1] = version & 255
        out[head + 2] = count >> 24
        out[head + 3] = (count >> 16) & 255
        out[head + 4] = (count >> 8) & 255
        out[head + 5] = count & 255
        at[m] = head + 6
        last[m] = -1
    for pid in range(len(assigned)):
        m = assigned[pid]
        if m < 0:
            continue
        spot = at[m]
        topic = topic_of[pid]
        if last[m] != topic:
            last[m] = topic
            source = name_starts[topic]
            length = name_starts[topic + 1] - source
            for k in range(length):  # byte by byte: for a few bytes numba's slices cost more than the bytes
                out[spot + k] = names[source + k]
            spot += length
            spots[m] = spot
            counted[m] = 0
            spot += 4
        count = counted[m] + 1
        counted[m] = count
        place = spots[m]
        out[place] = count >> 24
        out[place + 1] = (count >> 16) & 255
        out[place + 2] = (count >> 8) & 255
        out[place + 3] = count & 255
        partition = pid - first[topic]
        out[spot] = partition >> 24
        out[spot + 1] = (partition >> 16) & 255
        out[spot + 2] = (partition >> 8) & 255
        out[spot + 3] = partition & 255
        at[m] = spot + 4


measure = Kernel(_measure)
write = Kernel(_write)
