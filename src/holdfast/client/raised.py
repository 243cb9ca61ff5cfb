"""The first error that an application's callbacks raised, kept until a call of the application can raise it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

GUARDED = ("error_cb", "stats_cb", "throttle_cb")
"""The callbacks that librdkafka makes while it returns records. oauth_cb is not among them: if it raises, only
librdkafka is told."""


class Raised:
    """Keeps the first error. A Ctrl-C replaces an ordinary error."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def remember(self, error: BaseException) -> None:
        if self.first is None or (isinstance(self.first, Exception) and not isinstance(error, Exception)):
            self.first = error

    def raise_first(self) -> None:
        """Raise it, if there is one, and forget it."""
        if self.first is not None:
            first, self.first = self.first, None
            raise first

    def guarded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings for librdkafka, with callbacks that don't raise.

        confluent-kafka throws away the records of a call in which a callback raised. So the error is kept here, and
        raised after that call.
        """
        return {
            key: self._guard(value) if key in GUARDED and callable(value) else value for key, value in config.items()
        }

    def _guard(self, function: Callable[..., Any]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001  # Ctrl-C too: it is raised as soon as the records are safe
                self.remember(error)

        return call
