"""The one class of warning that the consumer gives. In a module of its own, so that everything here may use it."""

from __future__ import annotations


class PitfallWarning(UserWarning):
    """Something in the configuration or the way the consumer is used that will hurt later."""
