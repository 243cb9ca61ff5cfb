"""A browser of Debian's, driven by Playwright, and the page in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LAPTOP, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise AssertionError("no Chromium: tools/chromium.sh installs one")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def server() -> Iterator[str]:
    """The printed link."""
    started = subprocess.Popen(
        [Path(sys.executable).parent / "holdfast", "ui", "--port", "0", "-o", "json"], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        yield json.loads(started.stdout.readline())["url"]
    finally:
        started.terminate()
        started.wait(60)
        started.stdout.close()


def keep(page: Page, name: str) -> None:
    """A picture for whoever looks at the run: HOLDFAST_SHOTS names the folder."""
    folder = os.environ.get("HOLDFAST_SHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
