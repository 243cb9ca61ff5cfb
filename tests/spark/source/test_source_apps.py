"""Applications of their own, drivers and all, as members of one group: one is killed, one drains, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from source_engine import committed

from holdfast.spark.pipeline.python import quick_python
from holdfast.testing import Broker
from holdfast.testing.producer import SteadyProducer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

PARTITIONS = 4
LIMIT_S = 400.0
"""Two Sparks start, one of them with executors of its own: half a minute, or minutes on a machine that is busy."""
APP = Path(__file__).with_name("spark_app.py")


class App:
    """One application in processes of its own."""

    def __init__(self, name: str, broker: Broker, folder: Path, *, master: str) -> None:
        self.name = name
        self.output = folder / f"{name}-{time.monotonic_ns()}.out"
        options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": "g", "subscribe": "orders"}
        options |= {"startingOffsets": "earliest", "kafka.heartbeat.interval.ms": "300", "kafka.client.id": name}
        arguments = [name, str(folder / "rows.db"), str(folder / f"checkpoint-{name}"), master, json.dumps(options)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(APP), *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                process_group=0,
                env=os.environ | {"PYSPARK_PYTHON": quick_python(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Driver, JVM, reader and workers at once. The watchdog has a session of its own and lives a moment longer."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def said(self, word: str) -> bool:
        return word in self.output.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("create table rows (partition int, offset int, app text, primary key (partition, offset))")
        connection.execute("create table twice (partition int, offset int, app text)")
    with Broker() as running:
        running.topics.create("orders", partitions=PARTITIONS)
        yield running


def wait(holds: Callable[[], bool], apps: list[App]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        told = [f"{app.name}: {app.output.read_text()[-3000:]}" for app in apps]
        assert time.monotonic() < deadline, told
        assert all(app.process.poll() is None for app in apps), told
        time.sleep(0.1)


def test_one_application_is_killed_and_comes_back_another_drains(broker: Broker, tmp_path: Path) -> None:
    """The second one runs on a local cluster: its executors are JVMs of their own, with Python workers of their own."""
    apps: list[App] = []

    def members() -> dict[str, int]:
        view = broker.group("g")
        return {m.client_id: len(m.assignment) for m in view.members} if view.state == "Stable" else {}

    def select(what: str) -> list[tuple[int, int]]:
        with sqlite3.connect(tmp_path / "rows.db", timeout=60) as connection:
            return connection.execute(what).fetchall()

    def rows_of(name: str) -> int:
        return select(f"select count(*) from rows where app = '{name}'")[0][0]

    try:
        with SteadyProducer(broker.bootstrap, "orders", partitions=PARTITIONS, rate=200) as producer:
            a = App("a", broker, tmp_path, master="local[1]")
            b = App("b", broker, tmp_path, master="local-cluster[2,1,1024]")
            apps = [a, b]
            wait(lambda: members().keys() == {"a", "b"} and rows_of("a") > 0 and rows_of("b") > 0, apps)
            assert select("select * from twice") == [], "joining doubles nothing"
            a.kill()
            known = committed(broker)
            apps = [b]
            wait(lambda: members().keys() == {"b"}, apps)
            before = rows_of("a")
            a = App("a", broker, tmp_path, master="local[1]")
            apps = [a, b]
            wait(lambda: members().keys() == {"a", "b"} and rows_of("a") > before, apps)
            again = select("select partition, offset from twice")
            assert all(offset >= known[partition] for partition, offset in again), "only what was not committed"
            b.say("drain")
            wait(lambda: b.said("drain done"), apps)
            assert members().keys() <= {"a"}
            producer.stop()
            sent = producer.acknowledged()
        ends = {partition: len(offsets) for partition, offsets in sent.items()}
        wait(lambda: committed(broker) == ends, [a])
        assert select("select partition, offset from twice") == again, "a drain doubles nothing"
        found = sorted(select("select partition, offset from rows"))
        assert found == [(partition, offset) for partition in range(PARTITIONS) for offset in sent[partition]]
        a.say("stop")
        wait(lambda: not broker.group("g").members, [])
    finally:
        for app in apps:
            app.kill()
