"""What a framework's consumer polled, and what its group had committed when the framework closed it.

    polled 3 41 order-249        the consumer gave this record to the framework
    committed 3 42               when it was closed, the group's next offset in a partition that it owned

`lost_by_the_framework` reads such a log: it names the record that the framework itself gave up, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from patience import PATIENCE_S


def recorded(base: type[Any], log: Path) -> type[Any]:
    """The class with a log. Only `poll` and `close` are watched: it does nothing else that `base` does not."""
    out = log.open("a", buffering=1)

    class Recorded(base):  # type: ignore[misc]
        def poll(self, *args: Any, **kwargs: Any) -> Any:
            message = super().poll(*args, **kwargs)
            if message is not None and message.error() is None:
                out.write(f"polled {message.partition()} {message.offset()} {message.value().decode()}\n")
            return message

        def close(self) -> None:
            for one in self.committed(self.assignment(), timeout=PATIENCE_S):
                out.write(f"committed {one.partition} {one.offset}\n")
            super().close()

    return Recorded


def lost_by_the_framework(log: Iterable[str], handled: Iterable[str]) -> str | None:
    """The one record that may be missing, by its value: the last that was polled, if committed and never handled."""
    last: list[str] = []
    committed: dict[str, int] = {}
    for line in log:
        what, *told = line.split(" ", 3)
        if what == "polled":
            last = told
        else:
            committed[told[0]] = int(told[1])
    if not last:
        return None
    partition, offset, value = last
    given_up = committed.get(partition, -1) > int(offset) and value not in set(handled)
    return value if given_up else None
