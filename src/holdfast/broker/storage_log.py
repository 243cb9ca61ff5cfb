"""Logs storage errors that clients are answered: an operator does not see the clients' errors.

A client that gets such an error tries again at once, so a line is repeated only after a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode

log = logging.getLogger("holdfast.broker")

AGAIN_AFTER_MS = 10_000.0
"""Time before the same line is written again."""
MOST_LINES = 100
"""Most different lines within that time. A failed disk refuses every partition; a hundred lines say enough."""

OURS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that are the broker's fault. For a reader CORRUPT_MESSAGE is one too: the stored batch is damaged."""


class StorageLog:
    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._recent: dict[str, float] = {}

    def tell(self, error: StorageError, *, reading: bool = False) -> None:
        """Log an error, unless the client caused it, or the line was written just now."""
        if error.error not in OURS and not (reading and error.error is ErrorCode.CORRUPT_MESSAGE):
            return
        now = self._now_ms()
        self._recent = {what: at for what, at in self._recent.items() if now - at < AGAIN_AFTER_MS}
        if error.what not in self._recent and len(self._recent) < MOST_LINES:
            self._recent[error.what] = now
            log.error("%s %s", error.what, error.do)
