"""The kernel is compiled or loaded before the first test, so that no test is the slow one."""

from __future__ import annotations

import pytest

from holdfast.records.arrow import warm_up


@pytest.fixture(scope="session", autouse=True)
def compiled_kernel() -> None:
    warm_up()
