"""What the disk refused or lost, told in the log as well as to the client: an operator sees no client's errors.

A client that is refused comes back at once, and so would the line; each is told again only after a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode

log = logging.getLogger("holdfast.broker")

AGAIN_AFTER_MS = 10_000.0
"""Before the same line is written again."""
MOST_LINES = 100
"""Different lines within that time. A disk that is gone refuses every partition; the first hundred say enough."""

OURS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Refusals that are not the client's own doing; and for whoever reads, CORRUPT_MESSAGE is none of his either."""


class Troubles:
    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._told: dict[str, float] = {}

    def tell(self, error: StorageError, *, reading: bool = False) -> None:
        """Write a line about a refusal, unless it is the client's own doing, or was written just now."""
        if error.error not in OURS and not (reading and error.error is ErrorCode.CORRUPT_MESSAGE):
            return
        now = self._now_ms()
        self._told = {what: at for what, at in self._told.items() if now - at < AGAIN_AFTER_MS}
        if error.what not in self._told and len(self._told) < MOST_LINES:
            self._told[error.what] = now
            log.error("%s %s", error.what, error.do)
