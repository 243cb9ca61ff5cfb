"""Assignment bytes for all members at once: the inverse of `scan`.

    int16 version · int32 topics · {int16-length topic, int32 partitions, int32 …} …

User data is added by the caller, whose it is. `holdfast.model.consumer_protocol.encode_assignment` is the reference.
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
) -> list[bytes]:
    """Per member the bytes up to its user data. `assigned` is -1 where a partition goes to nobody this round."""
    encoded = [topic.encode(errors="surrogatepass") for topic in topics]
    names = b"".join(struct.pack(">H", len(name)) + name for name in encoded)
    name_starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([2 + len(name) for name in encoded], out=name_starts[1:])
    counts = np.zeros(members + 1, np.int64)
    sizes, entries, last = (np.zeros(members, np.int64) for _ in range(3))
    measure(assigned, topic_of, name_starts, counts, sizes, entries, last, work=4 * len(assigned) + members)
    ends = np.cumsum(sizes)
    buffer = bytearray(int(sizes.sum()))
    order = np.empty(int(counts[-1]), np.int64)
    write(
        assigned, topic_of, first, names, name_starts, counts, ends - sizes, entries, order, buffer,
        ASSIGNMENT_VERSION, work=len(buffer) + 8 * len(assigned),
    )  # fmt: skip
    view = memoryview(buffer)
    return [bytes(view[end - size : end]) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _measure(assigned: Any, topic_of: Any, name_starts: Any, counts: Any, sizes: Any, entries: Any, last: Any) -> None:
    """How many partitions, topics and bytes each member gets. Afterwards `counts[m]` is where m's partitions start."""
    for m in range(len(sizes)):
        sizes[m] = 6
        last[m] = -1
    for pid in range(len(assigned)):
        m = assigned[pid]
        if m >= 0:
            counts[m + 1] += 1
            sizes[m] += 4
            topic = topic_of[pid]
            if last[m] != topic:
                last[m] = topic
                entries[m] += 1
                sizes[m] += 4 + name_starts[topic + 1] - name_starts[topic]
    for m in range(len(sizes)):
        counts[m + 1] += counts[m]


def _write(
    assigned: Any,
    topic_of: Any,
    first: Any,
    names: Any,
    name_starts: Any,
    starts: Any,
    offsets: Any,
    entries: Any,
    order: Any,
    out: Any,
    version: Any,
) -> None:
    """Sort the partitions by member, keeping their order, and write each member's bytes in one sweep."""
    for pid in range(len(assigned)):
        m = assigned[pid]
        if m >= 0:
            order[starts[m]] = pid
            starts[m] += 1
    begin = 0
    for m in range(len(offsets)):
        at = offsets[m]
        count = entries[m]
        out[at] = version >> 8
        out[at + 1] = version & 255
        out[at + 2] = count >> 24
        out[at + 3] = (count >> 16) & 255
        out[at + 4] = (count >> 8) & 255
        out[at + 5] = count & 255
        at += 6
        spot = begin
        begin = starts[m]
        while spot < begin:
            topic = topic_of[order[spot]]
            length = name_starts[topic + 1] - name_starts[topic]
            out[at : at + length] = names[name_starts[topic] : name_starts[topic + 1]]
            at += length
            count_at = at
            at += 4
            zero = first[topic]
            stop = first[topic + 1]
            count = 0
            while spot < begin and order[spot] < stop:
                partition = order[spot] - zero
                out[at] = partition >> 24
                out[at + 1] = (partition >> 16) & 255
                out[at + 2] = (partition >> 8) & 255
                out[at + 3] = partition & 255
                at += 4
                count += 1
                spot += 1
            out[count_at] = count >> 24
            out[count_at + 1] = (count >> 16) & 255
            out[count_at + 2] = (count >> 8) & 255
            out[count_at + 3] = count & 255


measure = Kernel(_measure)
write = Kernel(_write)
