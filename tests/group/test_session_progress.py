"""What is due to be committed, as a table."""

from __future__ import annotations

import pytest

from holdfast.group.messages import OffsetEntry
from holdfast.group.session.progress import further, not_committed_yet
from holdfast.model import TopicPartition

ONE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("reached", "known", "due"),
    [
        (OffsetEntry(7), None, OffsetEntry(7)),
        (OffsetEntry(7), OffsetEntry(5), OffsetEntry(7)),
        (OffsetEntry(5), OffsetEntry(7), OffsetEntry(5)),  # the log was truncated, or somebody has set us back
        (OffsetEntry(7), OffsetEntry(7, metadata="ours"), None),
        (OffsetEntry(7, 3), OffsetEntry(7, 3, metadata="ours"), None),
        (OffsetEntry(7, 3), OffsetEntry(7, metadata="ours"), OffsetEntry(7, 3, metadata="ours")),
        (OffsetEntry(7), OffsetEntry(7, 3), None),
    ],
)
def test_what_is_due(reached: OffsetEntry, known: OffsetEntry | None, due: OffsetEntry | None) -> None:
    found = not_committed_yet({ONE: reached}, {} if known is None else {ONE: known})
    assert found == ({} if due is None else {ONE: due})


@pytest.mark.parametrize(
    ("entry", "than", "is_further"),
    [
        (OffsetEntry(5), OffsetEntry(4), True),
        (OffsetEntry(4), OffsetEntry(4), False),
        (OffsetEntry(3, 2), OffsetEntry(9, 1), True),
        (OffsetEntry(9, 1), OffsetEntry(3, 2), False),
        (OffsetEntry(9, 1), OffsetEntry(3), True),
        (OffsetEntry(3, 2), OffsetEntry(9), False),
    ],
)
def test_what_is_further(entry: OffsetEntry, than: OffsetEntry, is_further: bool) -> None:
    assert further(entry, than) is is_further
