"""Text from outside, made safe to print on one line."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Replace line feeds and control characters by spaces: a member id comes from outside, and terminals obey both."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
