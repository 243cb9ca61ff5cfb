"""A cache of simulated histories: the page asks for the same one again with every question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from holdfast.sim.played import Played, play
from holdfast.sim.setup import Setup
from holdfast.ui.story import story

MOST = 24
"""Histories kept. A large one takes about 20 MB."""


class Library:
    """Simulates one history at a time, so that only one core is busy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Setup, str], tuple[Played, dict[str, Any]]] = OrderedDict()

    def get(self, setup: Setup, kind: str) -> tuple[Played, dict[str, Any]]:
        """The history and its story."""
        with self._lock:
            found = self._kept.get((setup, kind))
            if found is None:
                played = play(setup, kind)
                found = played, story(played.records, played.result.ended_at_ms, kind)
                self._kept[setup, kind] = found
                if len(self._kept) > MOST:
                    self._kept.popitem(last=False)
            self._kept.move_to_end((setup, kind))
            return found
