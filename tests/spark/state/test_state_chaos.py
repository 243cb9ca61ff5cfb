"""Three applications with state, in processes of their own: joins, drains and kill -9 of driver and JVM, by a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import state_chaos_job
from chaos_group import ChaosGroup
from state_apps import TOPIC, all_done, check, stands
from state_events import Events, produce

from holdfast.model import TopicPartition
from holdfast.testing.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PARTITIONS = 12
SEEDS = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 51)]


@contextmanager
def producing(bootstrap: str, events: Events) -> Iterator[None]:
    """A few hundred events a second, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.2):
            produce(bootstrap, TOPIC, events.make(60))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_and_drains_leave_what_a_batch_would_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw, events = random.Random(seed), Events(PARTITIONS, seed)
    monkeypatch.setenv(state_chaos_job.FOLDER, str(tmp_path))

    def reached() -> dict[TopicPartition, int]:
        return {TopicPartition(TOPIC, number): end for number, end in stands(tmp_path, "totals", PARTITIONS).items()}

    with Broker(data=tmp_path / "broker") as broker:
        broker.topics.create(TOPIC, partitions=PARTITIONS)
        more = ["--sink-format", "foreachBatch"]
        job = state_chaos_job.__file__
        group = ChaosGroup(
            broker.bootstrap, tmp_path, PARTITIONS, job=job, more=more, stands=reached, max_poll_ms=60_000
        )
        try:
            with producing(broker.bootstrap, events):
                for name in ("a", "b"):
                    group.start(name)
                group.await_working("a", "b")
                group.start("c")
                group.await_progress()
                for _ in range(4):
                    play(group, draw)
            group.wait("everything to be in the sinks", lambda: all_done(tmp_path, events))
        finally:
            group.end()
    check(tmp_path, events)


def play(group: ChaosGroup, draw: random.Random) -> None:
    """One blow; whoever falls is started again from its checkpoint."""
    name = draw.choice(sorted(group.members))
    if draw.random() < 0.3:
        group.await_working(name)  # one that is just starting can't be asked
        group.drain(name)
        group.start(name)
    else:
        group.kill_driver(name)
    group.await_progress()
