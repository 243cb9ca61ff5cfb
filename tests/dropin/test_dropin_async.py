"""`AsyncConsumer` beside confluent's own asyncio consumer: the same programs, with every call awaited."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from dropin_compare import VARIES, of_combination
from dropin_table import daily

pytestmark = pytest.mark.filterwarnings(f"default:{VARIES}:UserWarning")

KINDS = ("confluent-aio", "holdfast-aio")

LEFT_OUT = (
    ("*=interrupt/*", "a KeyboardInterrupt in a coroutine ends asyncio's loop, and with it the program"),
    ("*/kill", "the partner in a process of its own is the same as in the other list"),
)
"""What makes no sense on a loop, and why."""

EVERYTHING = {
    f"async:{name}": combination
    for name, combination in daily().items()
    if not any(fnmatchcase(name, pattern) for pattern, _ in LEFT_OUT)
}
SHARE = (
    "*/nothing/close",
    "*/nothing/join",
    "auto-long/on_*/close",
    "auto-long/nothing/moved",
    "auto-long/nothing/restart",
    "auto-long/nothing/resubscribe",
    "auto-long/nothing/login-*",
    "auto-long/nothing/join_group-*AUTHORIZATION*",
    "auto-long/nothing/heartbeat-UNKNOWN*",
    "*/nothing/offset_commit-COORDINATOR*",
)
DAILY = [name for name in EVERYTHING if any(fnmatchcase(name.removeprefix("async:"), share) for share in SHARE)]


@pytest.mark.slow
@pytest.mark.parametrize("name", DAILY)
def test_an_asyncio_program_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = of_combination(name, EVERYTHING[name], KINDS).wrong()
    assert not wrong, f"\n{wrong}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in EVERYTHING if name not in DAILY])
def test_an_asyncio_program_of_the_long_list_has_the_same_outcome_on_both_classes(name: str) -> None:
    wrong = of_combination(name, EVERYTHING[name], KINDS).wrong()
    assert not wrong, f"\n{wrong}"
