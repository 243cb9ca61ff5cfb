"""Which partitions a member keeps when it can't keep all: by (partition, topic), so that every topic gives a little.

By (topic, partition) a shrinking member would lose whole topics, and each topic's load would gather on few members
(KAFKA-16277).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def beyond(
    holder: NDArray[np.integer[Any]], counts: Ints, share: Ints, topic: NDArray[np.int32], partition: Ints
) -> Ints:
    """Positions of what does not fit: per holder the first `share[holder]` in order of (partition, topic) stay.

    `counts` is how much each holder has; a holder of -1 is nobody, and has nothing to give up.
    """
    crowded = np.flatnonzero(np.append(counts > share, False)[holder])
    if len(crowded) == 0:
        return crowded
    who = holder[crowded]
    order = np.lexsort((topic[crowded], partition[crowded], who))
    who = who[order]
    starts = np.searchsorted(who, who, side="left")
    gone: Ints = crowded[order[np.arange(len(who)) - starts >= share[who]]]
    return gone
