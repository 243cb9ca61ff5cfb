"""Which record a framework may have lost by itself, and which are nobody's but the consumer's."""

from __future__ import annotations

import pytest
from recorded import lost_by_the_framework

HANDLED = ["order-0", "order-1"]


@pytest.mark.parametrize(
    ("log", "lost"),
    [
        ([], None),
        (["polled 0 0 order-0", "polled 1 0 order-1", "committed 0 1", "committed 1 1"], None),
        (
            ["polled 0 0 order-0", "polled 1 0 order-1", "polled 0 1 order-6", "committed 0 2", "committed 1 1"],
            "order-6",
        ),
        # Not committed: the next owner reads it.
        (["polled 0 0 order-0", "polled 0 1 order-6", "committed 0 1"], None),
        (["polled 0 0 order-0", "polled 0 1 order-6", "committed 1 9"], None),
        # Never closed, as after a crash.
        (["polled 0 0 order-0", "polled 0 1 order-6"], None),
        # Not the last that it polled: another came after it, so the framework was not stopped with it.
        (["polled 0 1 order-6", "polled 1 0 order-1", "committed 0 2", "committed 1 1"], None),
        # Never polled: the consumer skipped order-6.
        (["polled 0 0 order-0", "polled 0 2 order-12", "committed 0 3"], "order-12"),
    ],
)
def test_only_the_last_record_of_a_stopped_process_is_the_frameworks(log: list[str], lost: str | None) -> None:
    """Symptom that this keeps out: a tolerance of "one record" would also pass when our consumer skips one."""
    assert lost_by_the_framework(log, HANDLED) == lost
