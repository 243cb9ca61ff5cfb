"""Limits the log lines that clients cause to a number per second.

A client that can make the broker write a line could make it write a thousand a second and fill the disk. A line names
the address that caused it. Repeats of a line within ten seconds are counted and reported in one line: a client with a
wrong password comes back six times a second. Of different lines the first of each second are written, and one line says
how many more there were.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES_A_SECOND = 20
"""Enough to see what is going on."""
REPEAT_SECONDS = 10.0
"""How long repeats of a line are only counted: what lasts is logged six times a minute."""


class _Line:
    """When a line was written, and how often it was repeated since."""

    __slots__ = ("at", "repeats")

    def __init__(self, at: float) -> None:
        self.at = at
        self.repeats = 0


class LimitedLog:
    def __init__(self, log: logging.Logger, now: Callable[[], float], lines: int = LINES_A_SECOND) -> None:
        self._log = log
        self._now = now
        self._lines = lines
        self._second = now()
        self._written = 0
        self._left_out = 0
        self._recent: dict[str, _Line] = {}
        """Lines that were written in the last ten seconds. Suppressed ones are not kept, so their number is limited."""

    def warning(self, text: str, *values: object) -> None:
        line = text % values
        written = self._recent.get(line)
        if written is not None:
            written.repeats += 1
            self.tell_rest()
        elif self._take_line():
            self._recent[line] = _Line(self._now())
            self._log.warning("%s", line)

    def exception(self, text: str, *values: object) -> None:
        """With the traceback of the exception being handled."""
        if self._take_line():
            self._log.exception(text, *values)

    def tell_rest(self) -> None:
        """Call now and then: logs how many lines were left out, and how often lines were repeated."""
        now = self._now()
        if now - self._second < 1.0:
            return
        self._second, self._written = now, 0
        if self._left_out:
            self._written += 1
            self._log.warning("%d more lines like these were left out", self._left_out)
            self._left_out = 0
        due = [line for line, written in self._recent.items() if now - written.at >= REPEAT_SECONDS]
        for line in due:
            written = self._recent[line]
            if not written.repeats:
                del self._recent[line]
            elif self._written < self._lines:
                self._written += 1
                self._log.warning("%s (%d more in %.0f s)", line, written.repeats, now - written.at)
                written.at, written.repeats = now, 0

    def _take_line(self) -> bool:
        """Use up one of this second's lines; False if there is none left."""
        self.tell_rest()
        self._written += 1
        if self._written > self._lines:
            self._left_out += 1
            return False
        return True
