"""The consumer's only class of warning, and the function that gives it. Every module of this package may use it."""

from __future__ import annotations

import logging
import sys
import warnings


class PitfallWarning(UserWarning):
    """Something in the configuration or use of the consumer that will cause trouble later."""


def warn(text: str) -> None:
    """Warn, attributed to the line of the application that called us, since that is the line to change.

    A warning never stops a working program: where a filter turns it into an exception (`-W error`), it is logged.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn(text, PitfallWarning, stacklevel=level)
    except PitfallWarning:
        logging.getLogger("holdfast").warning("%s", text)
