"""A store's `holdfast.store.…` options. They may hold secrets and are never shown.

They travel to the executors with a query's plan, so they are pickled; but nothing prints them, and they are in no file
of a sink.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PREFIX = "holdfast.store."

SHOWN = frozenset({"endpoint_url", "endpoint", "region", "profile", "account_name", "allow_http"})
"""Options that are not secret."""

_QUERY = re.compile(r"\?[\w%.-]+=[^\s\"')]*")
"""The query part of an address. On Azure it may contain a signature."""


class StoreOptions(Mapping[str, str]):
    """Options without their prefix, in lower case."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = {name.lower(): str(value) for name, value in (values or {}).items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = {name: value if name in SHOWN else "***" for name, value in self._values.items()}
        return f"StoreOptions({shown})"

    def without_secrets(self, text: str) -> str:
        """A library's or server's text, made safe for a log: without our secrets and signed addresses, and cut."""
        text = _QUERY.sub("?…", " ".join(text.split("\n\nDebug source")[0].split()))
        for name, value in self._values.items():
            if name not in SHOWN and len(value) > 3:
                text = text.replace(value, "***")
        return text if len(text) <= 500 else f"{text[:500]}…"


def parse_store_options(options: Mapping[str, str] | None) -> StoreOptions:
    """The store's options among all options of a source, a sink or a state."""
    if isinstance(options, StoreOptions):
        return options
    found = {name.lower(): value for name, value in (options or {}).items()}
    return StoreOptions({name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)})
