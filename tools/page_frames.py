"""How many frames a second the page draws while a scene plays, in a real Chromium.

    python tools/page_frames.py [--seconds 5]

Frames are counted as the browser asks for them (requestAnimationFrame). Chromium draws in software here, on the
machine's processors: the machine has to be quiet, and a graphics card would only help.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "ui"))

from ui_browser import LAPTOP, PHONE, browser, server

SCENES = {
    "12 lanes, 4 members": "&members=4&partitions=12&event=join@10s&duration=60s",
    "1,000 partitions, 100 members": "&members=100&partitions=1000&duration=60s",
}

COUNT = """seconds => new Promise(done => {
    const at = [];
    document.getElementById('play').click();
    const frame = now => {
        at.push(now);
        if (now - at[0] < seconds * 1000) return requestAnimationFrame(frame);
        document.getElementById('play').click();
        const gaps = at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
        done({ rate: gaps.length * 1000 / (at[at.length - 1] - at[0]), p99: gaps[Math.floor(gaps.length * 0.99)],
               worst: gaps[gaps.length - 1] });
    };
    requestAnimationFrame(frame);
})"""
"""Plays the scene, and tells frames a second and how far apart they were."""


def main() -> int:
    parser = argparse.ArgumentParser(description="frames a second of the page while a scene plays")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each scene is counted (5)")
    given = parser.parse_args()
    with server() as link, browser() as chrome:
        base, _, token = link.partition("#")
        for what, query in SCENES.items():
            for device, viewport in (("laptop", LAPTOP), ("phone", PHONE)):
                page = chrome.new_context(viewport=viewport).new_page()
                page.goto(f"{base.partition('?')[0]}?scene={query}&at=0#{token}")
                page.wait_for_selector("[data-wait=holdfast]")
                page.evaluate(COUNT, 1.0)  # the browser compiles the page's code while it runs
                seen = page.evaluate(COUNT, given.seconds)
                print(
                    f"{what}, {device}: {seen['rate']:.1f} frames a second, 99 of 100 within {seen['p99']:.1f} ms, "
                    f"worst {seen['worst']:.1f} ms",
                    flush=True,
                )
                page.context.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
