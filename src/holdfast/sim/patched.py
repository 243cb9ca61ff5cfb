"""An object with some of its methods replaced: how mutations break what has no seam for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patched:
    """Some methods are given; everything else is the object's own."""

    def __init__(self, original: object, **methods: Callable[..., Any]) -> None:
        self.__dict__["_original"] = original
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_original"], name, value)
