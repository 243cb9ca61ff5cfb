"""docs/reading.md: its example runs as it stands, and it names every key that our own fetcher reads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.client.aio.consumer import AsyncConsumer
from holdfast.client.config import settings as cfg
from holdfast.client.consumer import Consumer
from holdfast.client.reading.fetch_settings import fetch_settings, wants_crcs

PAGE = (Path(__file__).parents[2] / "docs" / "reading.md").read_text("utf-8")
(EXAMPLE,) = re.findall(r"<!-- tested -->\n```python\n(.*?)```", PAGE, re.DOTALL)
SOURCES = (Path(cfg.__file__).parents[1] / "reading" / "fetch_settings.py").read_text("utf-8")

CHANGED = {
    "fetch.wait.max.ms": 7,
    "fetch.min.bytes": 8,
    "fetch.max.bytes": 9_000_000,
    "max.partition.fetch.bytes": 10_000,
    "queued.max.messages.kbytes": 11_000,
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "earliest",
    "client.rack": "a",
    "fetch.error.backoff.ms": 12,
}


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", EXAMPLE]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "b'hello'" in done.stdout


def test_every_key_that_the_fetcher_reads_is_on_the_page() -> None:
    read = set(re.findall(r'"([a-z]+(?:\.[a-z]+)+)"', SOURCES))
    assert {key for key in read if f"`{key}`" not in PAGE} == set()
    assert {key for key in CHANGED if f"`{key}`" not in PAGE} == set()


@pytest.mark.parametrize("key", sorted(CHANGED))
def test_every_key_on_the_page_changes_the_fetcher(key: str) -> None:
    base = {"group.id": "g", "bootstrap.servers": "127.0.0.1:1"}
    before, after = (fetch_settings(cfg.parse(given, {})) for given in (base, {**base, key: CHANGED[key]}))
    assert before != after


def test_checksums_are_verified_unless_told_otherwise() -> None:
    base = {"group.id": "g", "bootstrap.servers": "127.0.0.1:1"}
    assert wants_crcs(cfg.parse(base, {}))
    assert not wants_crcs(cfg.parse({**base, "check.crcs": "false"}, {}))


def test_the_asyncio_surface_has_every_call_of_the_other_and_the_page_tells_which_are_awaited() -> None:
    ours = {name for name in vars(Consumer) if not name.startswith("_")}
    theirs = {name for name in vars(AsyncConsumer) if not name.startswith("_")}
    assert ours - theirs == set()
    coroutines = {name for name in theirs if getattr(AsyncConsumer, name).__code__.co_flags & 0x80}
    assert {name for name in coroutines if f"`{name}`" not in PAGE} == set()
