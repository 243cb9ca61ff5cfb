"""Small programs of their own: what was found at fault once, each with its story."""

from __future__ import annotations

import dropin_grave
import dropin_odd_callbacks
import dropin_smaller
from dropin_stories import PROGRAMS

__all__ = ["PROGRAMS", "dropin_grave", "dropin_odd_callbacks", "dropin_smaller"]
