"""`holdfast groups describe --watch`: a live table on a terminal, otherwise lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.common import Interrupt, Output, ask
from holdfast.cli.groups_served import Watched
from holdfast.cli.groups_shown import unknown_group
from holdfast.cli.groups_watched import looks
from holdfast.model import HoldfastError
from holdfast.observe.history import History
from holdfast.observe.rows import as_json
from holdfast.observe.watching import change_line, watch_row, watched_lines

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster


def watch(
    groups: Sequence[str], settings: dict[str, Any], *, every_s: float, for_s: float | None, output: Output
) -> None:
    """Show a live table until Ctrl-C; without a terminal, one line for each event."""
    shown = Live() if output is Output.TABLE and sys.stdout.isatty() else Lines(as_json=output is Output.JSON)
    watched = Watched(report=shown.unread)
    seen: set[str] = set()
    with Interrupt() as interrupt, shown:

        async def work(cluster: Cluster) -> None:
            async for look in looks(cluster, groups, every_s=every_s, for_s=for_s, stopped=interrupt.asked):
                for name in {*groups} - seen:
                    if isinstance(error := look.get(name), HoldfastError) and not error.retriable:
                        raise unknown_group(name, error)
                for name, ended in watched.take(look, time.monotonic() * 1000).items():
                    seen.add(name)
                    shown.seen(name, watched.histories[name], None if ended is None else change_line(name, ended))
                shown.looked(watched.histories)

        ask(settings, work)


def _clock() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


class Lines:
    """One line for each event; as JSON, one line for each group and look."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._states: dict[str, tuple[Any, ...]] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def seen(self, name: str, history: History, ended: str | None) -> None:
        row = watch_row(history)
        if self._as_json:
            print(json.dumps({**as_json(row), "event": ended}), flush=True)
            return
        state = (row["STATE"], row["#MEMBERS"], row["REBALANCES"])
        if self._states.get(name) != state:
            self._states[name] = state
            cells = "  ".join(
                f"{key.lower()} {value}" for key, value in row.items() if key != "GROUP" and value is not None
            )
            print(f"{_clock()} {name}: {cells}", flush=True)
        if ended is not None:
            print(f"{_clock()} {ended}", flush=True)

    def unread(self, name: str, error: HoldfastError, before: int) -> None:
        print(f"{_clock()} {name}: {error.code}: {error.what}", file=sys.stderr, flush=True)

    def looked(self, histories: dict[str, History]) -> None:
        """Nothing more to print after a look."""


class Live:
    """A table that is redrawn after each look, with the latest events below it."""

    KEPT = 12

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(auto_refresh=False)
        self._said: list[str] = []

    def __enter__(self) -> Live:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def seen(self, name: str, history: History, ended: str | None) -> None:
        if ended is not None:
            self._say(ended)

    def unread(self, name: str, error: HoldfastError, before: int) -> None:
        self._say(f"{name}: {error.code}: {error.what}")

    def _say(self, text: str) -> None:
        self._said = [*self._said, f"{_clock()} {text}"][-self.KEPT :]

    def looked(self, histories: dict[str, History]) -> None:
        from rich.text import Text

        lines = watched_lines(histories, self._said, self._live.console.height)
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)
