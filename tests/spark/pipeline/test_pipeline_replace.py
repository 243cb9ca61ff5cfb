"""`pipeline run --replace`: the new version joins before the old one goes, and nothing is lost or doubled."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from holdfast.model import HoldfastError
from holdfast.spark import door
from holdfast.spark.pipeline import replacing
from holdfast.spark.pipeline.processes import Command
from holdfast.spark.pipeline.replacing import KIND, NEXT, Announced, Succession, key_of, predecessors
from holdfast.spark.pipeline.settings import Pipeline
from holdfast.spark.pipeline.verdict import read_commits, read_offsets
from holdfast.testing import Broker
from patience import PATIENCE_S

NAME = f"orders-{os.getpid()}"
"""Of this run: pipelines are found on the whole machine, and other runs of these tests have theirs."""
PIPELINE = Pipeline(name=NAME, checkpoint="/cp/orders", source={"kafka.group.id": "billing"})

OLD = """
import sys, time
from holdfast.spark.pipeline.replacing import Announced
from holdfast.spark.pipeline.settings import Pipeline
with Announced(Pipeline(name=sys.argv[1], checkpoint=sys.argv[2], source={"kafka.group.id": "billing"})) as announced:
    print("up", flush=True)
    while not announced.asked():
        time.sleep(0.01)
    print("asked", flush=True)
    sys.stdin.read()
"""


class Old:
    """An older version, without its Spark."""

    def __init__(self, checkpoint: str = "/cp/orders", name: str = NAME) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OLD, name, checkpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.says() == "up"

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate("", timeout=PATIENCE_S)


@pytest.fixture
def old() -> Iterator[Old]:
    one = Old()
    yield one
    one.process.kill()
    one.process.communicate()


def until_done(succession: Succession) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not succession.done:
        assert time.monotonic() < deadline
        succession.go_on(joined=True)


def test_the_older_version_is_asked_when_the_new_one_has_joined_and_not_before(old: Old) -> None:
    told: list[tuple[str, str]] = []
    succession = Succession(PIPELINE, lambda event, message: told.append((event, message)))
    assert succession.checkpoint == "/cp/orders" + NEXT, "two queries can't share one"
    for _ in range(20):
        succession.go_on(joined=False)
    assert told == []
    succession.go_on(joined=True)
    assert old.says() == "asked"
    assert [event for event, _ in told] == ["replacing"] and not succession.done, "it has not ended yet"
    old.end()
    until_done(succession)
    assert told[-1] == ("replaced", f"process {old.process.pid} has ended")


def test_versions_take_turns_with_two_checkpoints() -> None:
    second = Old(checkpoint="/cp/orders" + NEXT)
    assert Succession(PIPELINE, lambda *a, **k: None).checkpoint == "/cp/orders"
    first = Old()
    with pytest.raises(HoldfastError, match="REPLACE_UNDER_WAY"):
        Succession(PIPELINE, lambda *a, **k: None)
    for one in (first, second):
        one.process.kill()
        one.process.communicate()


def test_a_killed_version_has_ended_too(old: Old) -> None:
    succession = Succession(PIPELINE, lambda *a, **k: None)
    succession.go_on(joined=True)
    old.process.kill()
    until_done(succession)


def test_one_that_does_not_end_is_told_and_not_waited_for_for_ever(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "END_S", 0.0)
    told: list[str] = []
    succession = Succession(PIPELINE, lambda event, message: told.append(message))
    until_done(succession)
    assert told[-1] == f"process {old.process.pid} was asked to drain and still runs: end it by hand"


def test_other_applications_and_strangers_are_left_alone() -> None:
    other = Old(name="payments")
    squatter = socket.socket(socket.AF_UNIX)
    squatter.bind(f"\0{KIND}-{door.namespace()}-{key_of(PIPELINE)}-{other.process.pid}-{'0' * 16}")
    squatter.listen()  # under a pipeline's name, and not its process
    told: list[str] = []
    try:
        assert predecessors(PIPELINE) == []
        succession = Succession(PIPELINE, lambda event, message: told.append(message))
        assert succession.done and succession.checkpoint == "/cp/orders"
        assert told == ["no older version runs here: nothing to replace"]
    finally:
        squatter.close()
        other.process.kill()
        other.process.communicate()


def test_another_application_of_the_group_is_no_older_version() -> None:
    """Symptom: two applications shared a group, and `--replace` of one made both drain and end. Cause: versions were
    found by group and name alone, and a name need not be given. Rule: they are on one checkpoint, or the one beside
    it."""
    other = Old(checkpoint="/cp/second")
    told: list[str] = []
    try:
        succession = Succession(PIPELINE, lambda event, message: told.append(message))
        assert succession.done and succession.checkpoint == "/cp/orders"
        assert f"nothing to replace; process {other.process.pid} of this group is on /cp/second" in told[0]
    finally:
        other.process.kill()
        other.process.communicate()


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("/cp/orders/", "/cp/orders-next"),
        ("/cp/./orders", "/cp/./orders-next"),
        ("file:///cp/orders", "file:///cp/orders-next"),
    ],
)
def test_a_checkpoint_is_the_same_however_it_is_written(old: Old, written: str, wanted: str) -> None:
    """Symptom: with a slash at its end, the second checkpoint was a folder inside the first; and with another spelling
    two versions ran on one checkpoint. Cause: checkpoints were compared as texts."""
    succession = Succession(replace(PIPELINE, checkpoint=written), lambda *a, **k: None)
    assert not succession.done, "the older version is found"
    assert succession.checkpoint == wanted


def test_a_pipeline_that_has_ended_is_not_found() -> None:
    with Announced(PIPELINE):
        mine = [line for line in door.SOCKETS.read_text().splitlines() if key_of(PIPELINE) in line]
        assert len(mine) == 1 and str(os.getpid()) in mine[0]
    deadline = time.monotonic() + PATIENCE_S  # a process that is just being started has a copy until it runs
    while key_of(PIPELINE) in door.SOCKETS.read_text():
        assert time.monotonic() < deadline


# -- with Spark

JOB = "def transform(rows):\n    return rows.select('topic', 'partition', 'offset')\n"
PARTITIONS = 4


class Orders:
    """A steady producer: ten records a second for each partition."""

    def __init__(self, broker: Broker) -> None:
        self._producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        self._ends = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ends.wait(0.1):
            for partition in range(PARTITIONS):
                self._producer.produce("orders", b"x", partition=partition)
                self.sent += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_single_application_is_redeployed_without_a_stop(holdfast_broker: Broker, tmp_path: Path) -> None:
    holdfast_broker.topics.create("orders", partitions=PARTITIONS)
    (tmp_path / "job.py").write_text(JOB)
    sink = str(tmp_path / "sink")
    args = ["pipeline", "run", str(tmp_path / "job.py"), "--subscribe", "orders", "--group", "billing"]
    args += ["--bootstrap-server", holdfast_broker.bootstrap, "--sink", sink, "--name", "orders", "--replace"]
    args += ["--checkpoint", str(tmp_path / "cp"), "--trigger", "200ms", "--every", "0.5", "--master", "local[1]"]
    args += ["--source-option", "startingOffsets=earliest"]
    orders = Orders(holdfast_broker)
    versions: list[Command] = []

    def works(version: Command) -> bool:
        line: dict[str, Any] = version.last("progress") or {}
        return bool(line.get("rows")) and sum(map(len, (line.get("owned") or {}).values())) == PARTITIONS

    try:
        versions.append(Command("first", args, log=tmp_path / "first.log"))
        versions[0].wait("its first rows", lambda: works(versions[0]), 240)
        versions.append(Command("second", args, log=tmp_path / "second.log"))
        versions[1].wait("the first to end", lambda: versions[1].last("replaced") is not None, 240)
        assert versions[0].wait_for_end(60) == 0, "it drained"
        versions[1].wait("rows of everything", lambda: works(versions[1]), 60)
        orders.end()
        done = lambda: sum(map(len, read_offsets(sink, "orders").values())) == orders.sent  # noqa: E731
        versions[1].wait("the last record", done, 60)
        assert versions[1].stop() == 0
    finally:
        for version in versions:
            version.kill()
    assert {count for counts in read_offsets(sink, "orders").values() for count in counts.values()} == {1}
    commits = read_commits(sink).values()
    pauses = [later.at_s - one.at_s for each in commits for one, later in pairwise(each)]
    print(f"the longest pause was {max(pauses):.2f} s")
