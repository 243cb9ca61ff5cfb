"""What every test of the source needs put away: the readers that executors keep for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.net import reading


@pytest.fixture(autouse=True)
def readers_end_with_the_test() -> Iterator[None]:
    yield
    while reading._READERS:
        reading._READERS.popitem()[1].close()
