"""The scene of `make run`, played to its end, and what its page shows meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest


class Watcher:
    """Somebody who opened the printed link: the stories that the page got."""

    def __init__(self, link: str) -> None:
        self.works: set[str] = set()
        """Members that were seen at work."""
        self._link = link
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        where = urlsplit(self._link)
        headers = {"x-holdfast-token": where.fragment.partition("=")[2]}
        asked = urllib.request.Request(
            f"http://{where.netloc}/api/live/events", json.dumps({"group": "billing"}).encode(), headers
        )
        with urllib.request.urlopen(asked) as events:
            for line in events:
                if line.startswith(b'data: {"group"'):
                    self._take(json.loads(line[6:])["story"])

    def _take(self, story: dict[str, Any]) -> None:
        for lane in story["partitions"]:
            _, state, owner, _ = lane["spans"][-1]
            if state == "working":
                self.works.add(story["members"][owner]["name"])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_join_a_drain_and_a_kill_lose_and_double_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "demo", "--watch", "2"]
    playing = subprocess.Popen(
        [*command, "--keep", str(tmp_path), "-o", "json", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert playing.stderr is not None
    said = ""
    while "watch it while it plays" not in said:
        line = playing.stderr.readline()
        assert line, said
        said += line
    watcher = Watcher(said.rpartition(" ")[2].strip())
    out, rest = playing.communicate(timeout=1150)
    assert playing.returncode == 0, (said + rest)[-2000:]
    assert watcher.works == {"a", "b", "c"}
    told = json.loads(out)
    assert (told["lost"], told["doubled"]) == (0, 0)
    assert told["records_in"] == told["records_out"] > 0
    assert [event["event"] for event in told["events"]] == [
        "c joins",
        "a drains and leaves",
        "b is killed (kill -9)",
    ]
    joined, drained, killed = (event["moved"] for event in told["events"])
    assert {after for _, after in joined.values()} == {"c"}
    assert {before for before, _ in drained.values()} == {"a"}
    assert {before for before, _ in killed.values()} == {"b"}
