"""Frameworks written for confluent-kafka, over our consumer: two processes, a rebalance when the second comes and one
when the first leaves. Every record is handled, whoever has its partition.

`make nightly` installs the frameworks into an environment of their own (tools/frameworks.sh): they are nobody's
dependency here.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from holdfast.testing import Broker
from patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
PYTHON = HERE / ".venv" / "bin" / "python"
PARTITIONS = 6


class Scene:
    """A topic that grows, and processes that handle what is in it."""

    def __init__(self, broker: Broker, framework: str, folder: Path) -> None:
        self.folder = folder
        self.made = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._command = [str(PYTHON), str(HERE / f"with_{framework}.py"), broker.bootstrap, "orders", "billing"]
        self._producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        broker.topics.create("orders", partitions=PARTITIONS)

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce("orders", f"order-{self.made}".encode(), partition=self.made % PARTITIONS)
            self.made += 1
        assert self._producer.flush(PATIENCE_S) == 0

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.err").open("wb") as errors:
            command = [*self._command, str(self.folder / name)]
            self.processes[name] = subprocess.Popen(command, cwd=self.folder, stdout=errors, stderr=errors)

    def handled(self, name: str) -> list[str]:
        log = self.folder / name
        return [line.split(" ", 2)[2] for line in log.read_text().splitlines()] if log.exists() else []

    def wait(self, holds: Callable[[], bool], what: str, *, producing: bool = False, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            said = {path.name: path.read_text()[-2_000:] for path in self.folder.glob("*.err")}
            assert time.monotonic() < deadline, f"{what} did not come to pass in {limit_s} s: {said}"
            if producing:
                self.produce(PARTITIONS)
            time.sleep(0.05)

    def stop(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGTERM)


@pytest.fixture(params=["quix", "faststream"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    assert PYTHON.exists(), "the frameworks are not installed: run tools/frameworks.sh, as make nightly does"
    with Broker() as broker:
        scene = Scene(broker, request.param, tmp_path)
        yield scene
        for process in scene.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def test_two_processes_of_a_framework_share_a_topic_and_lose_nothing(scene: Scene) -> None:
    scene.produce(120)
    scene.start("a")
    scene.wait(lambda: len(scene.handled("a")) == 120, "everything by the first")
    scene.start("b")
    scene.wait(lambda: len(scene.handled("b")) >= PARTITIONS, "something by the second", producing=True)
    scene.stop("a")
    scene.wait(lambda: scene.processes["a"].poll() is not None, "the first one's end", producing=True)
    scene.produce(60)
    scene.wait(lambda: len({*scene.handled("a"), *scene.handled("b")}) == scene.made, "everything by both")
    scene.stop("b")
    scene.wait(lambda: scene.processes["b"].poll() is not None, "the second one's end")
    assert [process.returncode for process in scene.processes.values()] == [0, 0]
    everything = scene.handled("a") + scene.handled("b")
    assert len(everything) == len(set(everything)), "nothing was handled twice: nobody was killed"
