"""An application's functions, held by the surface alone.

Threads of ours keep the consumer behind the surface alive. If that held an application's callbacks too, an object whose
methods are callbacks and which owns the consumer would never be freed, nor its membership ended: most applications are
written so. So the surface holds the functions, everything behind it holds them loosely, and when the surface is gone
they are not called any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class _Held:
    """Something that a weak reference can be made of, whatever the function is."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Loosely:
    """Calls the function as long as somebody holds it."""

    __slots__ = ("_held",)

    def __init__(self, held: _Held) -> None:
        self._held = weakref.ref(held)

    def __call__(self, *arguments: Any) -> Any:
        held = self._held()
        return None if held is None else held.function(*arguments)


class Holder:
    """What the surface keeps: the functions by the name they are known by.

    The listener's have a holder of their own. A subscription that is refused leaves the one before it in place, so a
    new holder is `listening` only when the subscription has been taken.
    """

    __slots__ = ("_held", "listening")

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.listening: Holder | None = None

    def loosely(self, name: str, function: Any) -> Any:
        """The same function for those behind the surface; what can't be called is left for them to refuse."""
        if not callable(function):
            return function
        self._held[name] = _Held(function)
        return Loosely(self._held[name])
