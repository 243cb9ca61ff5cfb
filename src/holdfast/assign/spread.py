"""Which partitions a member keeps when it can't keep all: by (partition, topic), so that every topic gives a little.

By (topic, partition) a shrinking member would lose whole topics, and each topic's load would gather on few members
(KAFKA-16277).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def keep_spread(target: NDArray[np.int32], share: Ints, topic: NDArray[np.int32], partition: Ints) -> None:
    """Free (set to -1) what each member holds beyond its share."""
    held = np.flatnonzero(target >= 0)
    target[held[beyond(target[held].astype(np.int64), share, topic[held], partition[held])]] = -1


def beyond(holder: Ints, share: Ints, topic: NDArray[np.int32], partition: Ints) -> Ints:
    """Positions of what does not fit: per holder the first `share[holder]` in order of (partition, topic) stay."""
    counts = np.bincount(holder, minlength=len(share))
    crowded = np.flatnonzero((counts > share)[holder])
    if len(crowded) == 0:
        return crowded
    who = holder[crowded]
    order = np.lexsort((topic[crowded], partition[crowded], who))
    who = who[order]
    starts = np.searchsorted(who, who, side="left")
    return crowded[order[np.arange(len(who)) - starts >= share[who]]]
