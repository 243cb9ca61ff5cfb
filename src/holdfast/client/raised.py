"""The first error that an application's callbacks raised, kept until a call of the application can raise it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

GUARDED = ("error_cb", "stats_cb", "throttle_cb")
"""The callbacks that librdkafka makes while it returns records. oauth_cb is not among them: if it raises, only
librdkafka is told."""


class Raised:
    """Keeps the first error. A Ctrl-C replaces an ordinary error."""

    def __init__(self) -> None:
        self.first: BaseException | None = None
        self._noted_calls: list[tuple[deque[Any], Callable[..., Any]]] = []
        """For each callback that librdkafka makes, what it is still to be called with."""

    def remember(self, error: BaseException) -> None:
        if self.first is None or (isinstance(self.first, Exception) and not isinstance(error, Exception)):
            self.first = error

    def raise_first(self) -> None:
        """Raise it, if there is one, and forget it."""
        if self.first is not None:
            first, self.first = self.first, None
            raise first

    def guarded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings for librdkafka, with callbacks that only note what they were called with.

        confluent-kafka throws away the records of a call in which a callback raised, and loses a Ctrl-C that arrives
        where one begins: its call ends in a SystemError. A deque's append runs no Python code, so no signal's handler
        either. `call_back` makes the calls after that.
        """
        return {
            key: self._noted(value) if key in GUARDED and callable(value) else value for key, value in config.items()
        }

    def _noted(self, function: Callable[..., Any]) -> Callable[[Any], None]:
        noted: deque[Any] = deque()
        self._noted_calls.append((noted, function))
        return noted.append

    def noting(self, logger: Any) -> Any:
        """A logger for librdkafka that only notes its lines, for the same reason. `call_back` gives them to this one.

        A logger gets several arguments, and an append takes one. So a line is made an exception, which keeps its
        arguments, and is appended when confluent-kafka drops it. No step of that is Python code: `lru_cache` is here
        because it is a function in C that binds `self`; without a size it caches nothing.
        """
        noted: deque[Exception] = deque()
        self._noted_calls.append((noted, lambda line: logger.log(*line.args)))
        return SimpleNamespace(log=type("Line", (Exception,), {"__del__": lru_cache(maxsize=0)(noted.append)}))

    def call_back(self) -> None:
        """Make the calls that librdkafka made since the last time. What they raise is remembered."""
        for noted, function in self._noted_calls:
            while noted:
                try:
                    given = noted.popleft()
                except IndexError:  # another thread was faster
                    break
                try:
                    function(given)
                except BaseException as error:  # noqa: BLE001  # Ctrl-C too: raised as soon as the records are safe
                    self.remember(error)
