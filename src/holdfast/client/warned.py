"""The one class of warning that the consumer gives, and how it is given. Everything here may use it."""

from __future__ import annotations

import logging
import sys
import warnings


class PitfallWarning(UserWarning):
    """Something in the configuration or the way the consumer is used that will hurt later."""


def warn(text: str) -> None:
    """Say it, as from the line of the application that called us: that is the one to change.

    A warning never stops a program that works: where filters make an exception of it (`-W error`), it is logged.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn(text, PitfallWarning, stacklevel=level)
    except PitfallWarning:
        logging.getLogger("holdfast").warning("%s", text)
