"""What a store is told beside its address: `holdfast.store.…` options. They may hold secrets, and are never shown.

They travel with the plan of a query to its executors, so they must be pickled; but nothing prints them, and no file of
a sink has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PREFIX = "holdfast.store."

SHOWN = frozenset({"endpoint_url", "endpoint", "region", "profile", "account_name", "allow_http"})
"""What is no secret."""

_QUERY = re.compile(r"\?[\w%.-]+=[^\s\"')]*")
"""Of an address. On Azure it may carry a signature."""


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
        """A text of a library or a server, fit for a log: no secret of ours, no signed address, and not too long."""
        text = _QUERY.sub("?…", " ".join(text.split("\n\nDebug source")[0].split()))
        for name, value in self._values.items():
            if name not in SHOWN and len(value) > 3:
                text = text.replace(value, "***")
        return text if len(text) <= 500 else f"{text[:500]}…"


def parse_store_options(options: Mapping[str, str] | None) -> StoreOptions:
    """Of all options of a source, a sink or a state those for its store."""
    if isinstance(options, StoreOptions):
        return options
    found = {name.lower(): value for name, value in (options or {}).items()}
    return StoreOptions({name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)})
