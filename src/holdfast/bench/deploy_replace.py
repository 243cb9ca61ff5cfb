"""`holdfast bench deploy --modes replace`: one application, redeployed by `holdfast pipeline run --replace`.

The new version starts Spark and tries the job while the old one works; then it joins, and the old one drains. What
each partition waited for is read from the ledger of the sink that both write.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from holdfast.bench.deploy_run import (
    FRESH_MS,
    GROUP,
    LIMIT_S,
    PARTITIONS,
    STEADY_S,
    TRIGGER_MS,
    Application,
    Batch,
    Deployed,
    Restart,
    Say,
    measured,
    told,
)
from holdfast.spark.pipeline.processes import STOP_S, Command
from holdfast.spark.pipeline.verdict import balance, read_commits, read_offsets
from holdfast.testing.producer import SteadyProducer

JOB = "def transform(rows):\n    return rows.select('topic', 'partition', 'offset')\n"
EVERY_S = 0.5
"""How often a version tells its progress."""


class Versions:
    """The versions of one application: each takes over from the one before it."""

    def __init__(self, place: Application.Place) -> None:
        place.folder.mkdir(parents=True, exist_ok=True)
        self.sink = str(place.folder / "sink")
        self._place = place
        self._numbers = count(1)
        self._started: list[Command] = []

    def start(self) -> Command:
        number = next(self._numbers)
        name = f"version-{number}"
        job = self._place.folder / "job.py"
        job.write_text(JOB)
        args = ["pipeline", "run", str(job), "--replace", "--name", "deployed", "--group", f"{GROUP}-replace"]
        args += ["--bootstrap-server", self._place.bootstrap, "--subscribe", self._place.topic]
        args += ["--source-option", "startingOffsets=earliest", "--sink", self.sink, "--sink-option", f"writer={name}"]
        args += ["--checkpoint", str(self._place.folder / "checkpoint"), "--trigger", f"{TRIGGER_MS:.0f}ms"]
        args += ["--master", "local[1]", "--conf", "spark.driver.memory=600m", "--every", str(EVERY_S)]
        new = Command(name, args, log=self._place.folder / f"{name}.err")
        self._started.append(new)
        return new

    def batches(self) -> list[Batch]:
        commits = [(each.partition, one) for each, found in read_commits(self.sink).items() for one in found]
        return [Batch(one.writer, one.at_s * 1_000, {partition: ()}) for partition, one in commits if one.rows]

    def settle(self, version: Command) -> None:
        """Wait until this version, and no other, writes all partitions."""

        def holds() -> bool:
            since = time.time() * 1_000 - FRESH_MS
            mine = {p for batch in self.batches() if batch.at > since and batch.app == version.name for p in batch.out}
            return len(mine) == PARTITIONS

        version.wait("its share of the output", holds, LIMIT_S)

    def take_over(self, version: Command) -> None:
        version.wait("the older version's end", lambda: version.last("replaced") is not None, LIMIT_S)

    def kill(self) -> None:
        for version in self._started:
            version.kill()


def replacing(place: Application.Place, repetitions: int, producer: SteadyProducer, say: Say) -> Deployed:
    """One application, replaced by the next version again and again."""
    versions = Versions(place)
    seen = Deployed()
    try:
        running = versions.start()
        versions.settle(running)
        for number in range(repetitions):
            steady_from = time.time() * 1_000
            time.sleep(STEADY_S)
            begin = time.time() * 1_000
            following = versions.start()
            versions.take_over(following)
            running.wait_for_end(STOP_S)
            versions.settle(following)
            end = time.time() * 1_000
            seen.restarts.append(_measured(versions.batches(), steady_from, begin, end))
            say(f"replace {number + 1}: {told(seen.restarts[-1])}")
            running = following
        _finish(seen, versions, running, producer)
    finally:
        versions.kill()
    return seen


def _measured(batches: Sequence[Batch], steady_from: float, begin: float, end: float) -> Restart:
    """Nothing is ever down: every silence is of a partition that moved, or of one that did not."""
    return measured(batches, "", steady_from, begin, end, down=end)


def _finish(seen: Deployed, versions: Versions, last: Command, producer: SteadyProducer) -> None:
    """Stop the traffic, wait for the remaining output, and count."""
    producer.stop()
    stored = producer.acknowledged()
    deadline = time.monotonic() + LIMIT_S
    while (found := balance(stored, read_offsets(versions.sink, producer.topic))).lost:
        if time.monotonic() > deadline:
            break
        time.sleep(EVERY_S)
    seen.lost, seen.doubled = found.lost, found.doubled
    last.stop()
