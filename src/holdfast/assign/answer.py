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
    out = np.frombuffer(buffer, np.uint8)
    order = np.empty(int(counts[-1]), np.int64)
    write(
        assigned, topic_of, first, names, name_starts, counts, ends - sizes, entries, order, out,
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
        out[at] = (version >> 8) & 255
        out[at + 1] = version & 255
        for k in range(4):
            out[at + 2 + k] = (entries[m] >> (24 - 8 * k)) & 255
        at += 6
        topic = -1
        count_at = 0
        count = 0
        for spot in range(begin, starts[m]):
            pid = order[spot]
            if topic_of[pid] != topic:
                if topic >= 0:
                    for k in range(4):
                        out[count_at + k] = (count >> (24 - 8 * k)) & 255
                topic = topic_of[pid]
                for k in range(name_starts[topic], name_starts[topic + 1]):
                    out[at] = names[k]
                    at += 1
                count_at = at
                count = 0
                at += 4
            partition = pid - first[topic]
            for k in range(4):
                out[at + k] = (partition >> (24 - 8 * k)) & 255
            at += 4
            count += 1
        if topic >= 0:
            for k in range(4):
                out[count_at + k] = (count >> (24 - 8 * k)) & 255
        begin = starts[m]


measure = Kernel(_measure)
write = Kernel(_write)
