"""How many bytes a consumer has fetched, by where the brokers that sent them stand.

Counted when they arrive, by the rack that the broker has then, and never moved from one count to another: counters
must not go back.
"""

from __future__ import annotations

import threading

from holdfast.model.placement import PLACEMENTS, placement


class FetchedBytes:
    """One consumer's counts. All its readers add to them, from any thread."""

    def __init__(self, rack: str | None) -> None:
        self.rack = rack
        """The consumer's. None: nothing is counted, because every placement would be unknown."""
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(PLACEMENTS, 0)

    def add(self, size: int, broker_rack: str | None) -> None:
        if self.rack is None:
            return
        where = placement(self.rack, () if broker_rack is None else (broker_rack,))
        with self._lock:
            self._counts[where] += size

    def by_placement(self) -> dict[str, int]:
        """Empty for a consumer without a rack."""
        with self._lock:
            return dict(self._counts) if self.rack is not None else {}
