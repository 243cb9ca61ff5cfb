"""An object with some of its methods replaced. Mutations use it to break objects that offer no hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patched:
    """Uses the given methods, and the object's own for everything else."""

    def __init__(self, original: object, **methods: Callable[..., Any]) -> None:
        self.__dict__["_original"] = original
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_original"], name, value)
