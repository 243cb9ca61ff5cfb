"""Three Spark members and the exactly-once sink, hurt in every way: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos_group import MAX_POLL_MS, ChaosGroup

from holdfast.model import TopicPartition
from holdfast.spark.files import positions
from holdfast.spark.pipeline.verdict import balance, read_commits, read_offsets
from holdfast.testing.broker import Broker
from holdfast.testing.kafka import RealKafka
from holdfast.testing.producer import SteadyProducer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PARTITIONS = 4


@contextmanager
def embedded(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with Broker(data=tmp_path / "broker") as broker:
        broker.topics.create("orders", partitions=PARTITIONS)
        yield broker.bootstrap, broker.restart


@contextmanager
def real_kafka(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with RealKafka() as kafka:
        kafka.create_topic("orders", partitions=PARTITIONS)

        def restart() -> None:
            kafka.stop()
            kafka.start()

        yield kafka.bootstrap, restart


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param(embedded, id="embedded"),
        pytest.param(real_kafka, id="kafka", marks=[pytest.mark.kafka, pytest.mark.nightly]),
    ],
)
def test_chaos_leaves_every_record_in_the_sink_once(brokers: Callable[..., object], tmp_path: Path) -> None:
    with brokers(tmp_path) as (bootstrap, restart_broker):  # type: ignore[attr-defined]
        group = ChaosGroup(bootstrap, tmp_path, PARTITIONS)
        try:
            with SteadyProducer(bootstrap, "orders", partitions=PARTITIONS, rate=100) as producer:
                play(group, restart_broker)
                producer.stop()
                acknowledged = producer.acknowledged()
            ends = {TopicPartition("orders", number): found[-1] + 1 for number, found in acknowledged.items()}
            group.wait("everything to be in the sink", lambda: positions(group.sink) == ends)
            for name in sorted(group.members):
                if group.members[name].process.poll() is None:
                    group.drain(name)
        finally:
            group.end()
        found = balance(acknowledged, read_offsets(group.sink, "orders"))
        assert (found.lost, found.doubled) == (0, 0)
        assert found.records_in == found.records_out > 0
        writers = {commit.writer for commits in read_commits(group.sink).values() for commit in commits}
        assert writers == {"a", "b", "c"}


def play(group: ChaosGroup, restart_broker: Callable[[], None]) -> None:
    group.start("a")
    group.start("b", "local-cluster[1,1,512]")
    group.await_working("a", "b")
    group.await_progress()

    group.start("c")  # a join
    group.await_working("a", "b", "c")
    group.await_progress()

    restart_broker()
    group.await_progress()

    group.kill_executor("b")  # Spark starts another, and does the task again
    group.await_progress()

    group.kill_python_worker("a")  # in local mode the query fails; it is restarted from its checkpoint
    group.await_progress()
    group.await_working("a", "b", "c")

    # A batch longer than max.poll.interval: c loses its partitions, others do them, and then c's batch arrives.
    group.flag("c").write_text(str(2 * MAX_POLL_MS / 1000))
    group.wait("c to fall asleep", lambda: not group.flag("c").exists())
    group.await_progress()
    group.await_working("c")

    group.kill_driver("b")
    group.restart("b")  # from its checkpoint
    group.await_progress()
    group.await_working("a", "b", "c")

    group.drain("a")
    group.await_progress()
