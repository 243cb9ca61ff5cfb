"""What pytest loads when holdfast is installed: fixtures for tests that need a broker.

    def test_orders_are_counted(holdfast_broker):
        holdfast_broker.topics.create("orders", partitions=6)

Rule: importing this module stays light, because every pytest run on the machine imports it. A fixture imports what it
needs when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

OURS = {"holdfast", "holdfast_hook", "pyspark_holdfast", "pyspark_holdfast_files"}
"""The packages that we install."""

if TYPE_CHECKING:
    from holdfast.testing.broker import Broker


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Have our modules imported as they are.

    pytest rewrites the assertions of every package that brings a plugin, with `ast.parse`. Ours are imported when they
    are first needed, on any thread, and in Python 3.11 two threads in `ast.parse` make one of them fail ("SystemError:
    AST constructor recursion depth mismatch", CPython issue 106905): a consumer could not be made, or a topic not be
    subscribed to. pytest has a call that marks a package for this, and none that takes the mark back.
    """
    hook: Any = early_config.pluginmanager.rewrite_hook
    for name in OURS & getattr(hook, "_must_rewrite", set()):
        hook._must_rewrite.remove(name)
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


@pytest.fixture
def holdfast_broker() -> Iterator[Broker]:
    """An embedded broker in memory, fresh for this test, with fault controls."""
    from holdfast.testing.broker import Broker

    with Broker() as broker:
        yield broker
