"""What a newcomer types and runs first works as docs/quick-start.md has it, and shows what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_S, wait_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "quick-start.md").read_text("utf-8")
ENV = {
    **{name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def block(begins: str) -> list[str]:
    """The commands of the indented block that begins with this."""
    lines = PAGE[PAGE.index(f"    {begins}") :].splitlines()
    return [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if not line.startswith("    "))]]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The broker of the page's first command, on a free port."""
    broker = block("holdfast broker")[0].removesuffix(" &").replace(":9092", ":0")
    command = [*shlex.split(broker), "-o", "json"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            yield int(json.loads(started.stdout.readline())["port"])
        finally:
            started.terminate()
            assert started.wait(PATIENCE_S) == 0


class Service:
    """The page's service.py in a terminal of its own."""

    def __init__(self, folder: Path, name: str, program: str) -> None:
        self._said = folder / f"{name}.out"
        with self._said.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=ENV, stdout=out)

    def says(self, what: str, times: int = 1) -> Callable[[], bool]:
        return lambda: self._said.read_text().count(what) == times

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.mark.slow
def test_the_commands_and_the_service_do_what_the_page_says(tmp_path: Path, port: int) -> None:
    _, *lines = block("holdfast broker")
    script = "\n".join(["set -e", *lines, "wait"]).replace(":9092", f":{port}").replace("--duration 600", "--count 300")
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=ENV, check=True, timeout=PATIENCE_S)
    found = re.search(r"`service.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    program = found.group(1).replace(":9092", f":{port}")
    services: list[Service] = []

    def start() -> Service:
        services.append(Service(tmp_path, f"service-{len(services)}", program))
        return services[-1]

    try:
        first = start()
        wait_for(first.says("added [0, 1, 2, 3, 4, 5]"), "the first has all of them")
        second = start()
        wait_for(second.says("added [3, 4, 5]"), "the second gets three")
        assert first.says("taken [3, 4, 5]")(), "and the first says which"
        (describe,) = block("holdfast groups describe billing")
        words = shlex.split(describe.replace(":9092", f":{port}"))
        shown = subprocess.run(words, env=ENV, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
        assert "cooperative-sticky" in shown and "orders" in shown
        assert second.end(signal.SIGINT) == 0
        wait_for(first.says("added [3, 4, 5]"), "what was the second one's")
        third = start()
        wait_for(third.says("added [3, 4, 5]"), "the same again")
        third.end(signal.SIGKILL)
        wait_for(first.says("added [3, 4, 5]", times=2), "its watchdog left for it")
        assert first.end(signal.SIGTERM) == 0
    finally:
        for service in services:
            service.process.kill()
            service.process.wait(PATIENCE_S)
