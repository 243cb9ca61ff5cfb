"""What a message is made of, in one version. Built by `schema`, used by `reading` and `writing`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.wire import primitives as p


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of one version of a message."""

    name: str
    kind: str
    """A primitive type of kio's, or "struct"."""
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: Struct | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Struct:
    """A message, or a part of one that repeats, in one version."""

    name: str
    fields: tuple[Field, ...]
    type: Callable[..., Any]
    """The named tuple for its values."""
    least_bytes: int
    """The fewest bytes that a value takes, to bound the counts that arrays claim."""
    read: p.Reader
    write: p.Writer
