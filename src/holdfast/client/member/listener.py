"""The user's callbacks: three functions as confluent-kafka takes them, or an object with three methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Callback = Callable[..., Any]


def _nothing(_consumer: Any, _partitions: Any) -> None:
    """The default: the application does not want to know."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What the application wants to be told. Without `on_lost`, lost partitions go to `on_revoke` (KIP-429)."""

    on_assign: Callback = _nothing
    on_revoke: Callback = _nothing
    on_lost: Callback = _nothing


def callbacks(*, on_assign: Callback | None, on_revoke: Callback | None, on_lost: Callback | None) -> Listener:
    for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    revoke = on_revoke or _nothing
    return Listener(on_assign=on_assign or _nothing, on_revoke=revoke, on_lost=on_lost or revoke)
