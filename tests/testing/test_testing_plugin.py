"""What pytest loads of ours in every environment that has holdfast."""

from __future__ import annotations

import importlib
from importlib.machinery import SourceFileLoader

import pytest


@pytest.mark.parametrize("name", ["holdfast.records.arrow", "holdfast.client.aio.consumer", "holdfast.group.session"])
def test_our_modules_are_imported_as_they_are(name: str) -> None:
    """Symptom: in a fresh environment `AsyncConsumer(…)` or `subscribe` raised SystemError, once in a thousand tests.
    Cause: pytest rewrites packages that bring a plugin, with `ast.parse`, and Python 3.11 fails if two threads are in
    it; our modules are imported on any thread. Rule: pytest leaves our packages alone."""
    assert type(importlib.import_module(name).__loader__) is SourceFileLoader
