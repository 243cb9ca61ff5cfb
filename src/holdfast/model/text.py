"""Strangers' words on one line."""

from __future__ import annotations


def one_line(text: str) -> str:
    """No line feeds and no control characters: a member id is a stranger's word, and it is read in terminals."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
