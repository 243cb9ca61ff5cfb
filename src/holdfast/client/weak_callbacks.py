"""Weak references to the application's callbacks, so that a dropped consumer can be garbage-collected.

Our threads keep `core` alive. If `core` held the application's callbacks strongly, an object that owns the consumer and
whose methods are its callbacks (as in most applications) would never be freed, and its membership would never end. So
only the public consumer object holds the callbacks; everything behind it holds weak references. When the public object
is gone, the callbacks are not called any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from holdfast.client.member.listener import Listener, callbacks


class _Held:
    """A box for a function. Any function can be held weakly through it; a weak reference to a bound method would be
    dead at once."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class WeakCallback:
    """Calls the function while its box is alive, and does nothing afterwards."""

    __slots__ = ("_held",)

    def __init__(self, held: _Held) -> None:
        self._held = weakref.ref(held)

    def __call__(self, *arguments: Any) -> Any:
        held = self._held()
        return None if held is None else held.function(*arguments)


class Holder:
    """What the public consumer object keeps: the callbacks by name.

    The listener's callbacks have a Holder of their own, `listening`. It is replaced only when a new subscription was
    accepted, because a refused one leaves the old one in place.
    """

    __slots__ = ("_held", "listening")

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.listening: Holder | None = None

    def hold(self, name: str, function: Any) -> Any:
        """Hold the function here, and return a weak stand-in for it. What is not callable is returned as it is: the
        configuration check refuses it."""
        if not callable(function):
            return function
        self._held[name] = _Held(function)
        return WeakCallback(self._held[name])


def held_weakly(
    listener: Listener | None,
    on_assign: Callable[..., Any] | None,
    on_revoke: Callable[..., Any] | None,
    on_lost: Callable[..., Any] | None,
) -> tuple[Holder, Listener]:
    """What holds an application's listener, or its three functions, and a weak stand-in for it."""
    if listener is not None:
        on_assign, on_revoke, on_lost = listener.on_assign, listener.on_revoke, listener.on_lost
    held = Holder()
    told = callbacks(
        on_assign=held.hold("on_assign", on_assign),
        on_revoke=held.hold("on_revoke", on_revoke),
        on_lost=held.hold("on_lost", on_lost),
    )
    return held, told
