"""Which batches a reader of committed records must not see.

A Fetch answer lists the aborted transactions that touch it as (producer id, first offset). A transaction's batches are
dropped from its first offset up to its abort marker, which is a control batch of the same producer. One filter serves
one answer, and notes its batches in their order. Nothing here reads a byte: the caller parses headers and markers.
"""

from __future__ import annotations

from collections.abc import Iterable


class AbortedTransactions:
    """The aborted transactions of one Fetch answer, while its batches go by."""

    __slots__ = ("_coming", "_open")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def note_batch(self, *, producer_id: int, last_offset: int) -> bool:
        """Note a transactional batch that ends at `last_offset`. True if its transaction was aborted."""
        self._reach(last_offset)
        return producer_id in self._open

    def note_abort_marker(self, *, producer_id: int, offset: int) -> None:
        """The producer's transaction ends here; what it writes next is another one."""
        self._reach(offset)
        self._open.discard(producer_id)

    def _reach(self, offset: int) -> None:
        """Open the transactions that begin at this offset or before."""
        while self._coming and self._coming[-1][0] <= offset:
            self._open.add(self._coming.pop()[1])
