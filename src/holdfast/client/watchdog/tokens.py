"""Passes the newest OAuth token on to the watchdog, whichever plane asked for it.

Tokens come from the application's `oauth_cb`. With OIDC, librdkafka gets its own tokens, and our plane has a source of
its own. Tokens are kept in memory, and leave the process only through the watchdog's pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Heard = Callable[[str, Mapping[str, str]], None]
"""Called with a token and its extensions."""


class Tokens:
    """Replaces `oauth_cb` in the configuration of both planes."""

    __slots__ = ("_callback", "_heard", "_newest", "built_in")

    def __init__(self, callback: Callable[[str], Any], *, built_in: bool = False) -> None:
        self._callback = callback
        self.built_in = built_in
        """Whether the tokens come from a source that librdkafka has built in too, so that it needs no callback."""
        self._newest: tuple[str, Mapping[str, str]] | None = None
        self._heard: Heard | None = None

    def __call__(self, argument: str) -> Any:
        given = self._callback(argument)
        self._newest = (str(given[0]), dict((given[3] if len(given) > 3 else None) or {}))
        if self._heard is not None:
            self._heard(*self._newest)
        return given

    def tell(self, heard: Heard) -> None:
        """Pass on the newest token, and every one from now on."""
        self._heard = heard
        if self._newest is not None:
            heard(*self._newest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and other._callback == self._callback  # equal configurations share connections

    def __hash__(self) -> int:
        return hash(self._callback)

    def __repr__(self) -> str:
        return "Tokens(…)"


def tokens_of(config: Mapping[str, Any]) -> Tokens | None:
    """The source of tokens in a consumer's configuration, if its logins take any. Raises HoldfastError."""
    callback = config.get("oauth_cb")
    if isinstance(callback, Tokens):
        return callback
    if callable(callback):
        return Tokens(callback)
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms"))
    if callback is not None or str(mechanism).upper() != "OAUTHBEARER":
        return None
    from holdfast.net.token_sources import built_in  # imported late: most consumers don't need it

    source = built_in(config)
    return None if source is None else Tokens(lambda _argument: source(), built_in=True)
