"""`oauth_cb`, overheard: whichever plane asks the application for a token, the watchdog learns the newest one.

Tokens live in memory and travel through the watchdog's pipe alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Tokens:
    """Stands in for the application's callback, in the configuration of both planes."""

    __slots__ = ("_callback", "_heard", "_newest")

    def __init__(self, callback: Callable[[str], Any]) -> None:
        self._callback = callback
        self._newest: str | None = None
        self._heard: Callable[[str], None] | None = None

    def __call__(self, argument: str) -> Any:
        given = self._callback(argument)
        self._newest = str(given[0])
        if self._heard is not None:
            self._heard(self._newest)
        return given

    def tell(self, heard: Callable[[str], None]) -> None:
        """Pass on what was heard last, and everything from now on."""
        self._heard = heard
        if self._newest is not None:
            heard(self._newest)

    def __repr__(self) -> str:
        return "Tokens(…)"
