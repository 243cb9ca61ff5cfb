"""From Spark's own Kafka source to holdfast and back: the files, and the round trip with the real connector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_engine import Engine, committed, every, produce

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.errors import BrokerError
from holdfast.spark import checkpoint_files as files
from holdfast.spark.checkpoints import export_checkpoint, import_checkpoint
from holdfast.spark.pipeline.python import quick_python
from holdfast.testing import Broker

JARS = Path(__file__).parents[1] / "jars"


def put(folder: Path, name: str, *lines: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A Spark query that has finished batch 1 and begun batch 2."""
    put(tmp_path, "metadata", '{"id":"x"}')
    for number in range(3):
        ends = {"orders": {"0": 10 * number, "1": 5 * number}}
        put(tmp_path, f"offsets/{number}", "v1", "{}", json.dumps(ends))
        put(tmp_path, f"offsets/.{number}.crc", "x")
    for number in range(2):
        put(tmp_path, f"commits/{number}", "v1", "{}")
    put(tmp_path, "sources/0/0", "\0v1", '{"orders":{"0":0,"1":0}}')
    return tmp_path


def test_the_last_finished_batch_counts_and_not_the_one_that_was_begun(checkpoint: Path) -> None:
    found = files.read(str(checkpoint))
    assert (found.batch, found.unfinished) == (1, True)
    assert found.offsets == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 5}
    assert files.read(checkpoint.as_uri()) == found


def test_a_query_that_has_finished_nothing_begins_where_its_source_began(checkpoint: Path) -> None:
    for number in range(2):
        (checkpoint / f"commits/{number}").unlink()
    found = files.read(str(checkpoint))
    assert (found.batch, found.unfinished) == (None, True)
    assert found.offsets == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"v": 1, "batch": 3, "generation": 1, "ranges": {}}', "of a query on holdfast already"),
        ('{"logOffset": 7}', "one of its sources is not Kafka"),
        ("7", "one of its sources is not Kafka"),
    ],
)
def test_what_is_no_kafka_checkpoint_is_refused_with_the_reason(checkpoint: Path, line: str, said: str) -> None:
    put(checkpoint, "offsets/1", "v1", "{}", line)
    with pytest.raises(HoldfastError, match=f"NO_KAFKA_CHECKPOINT.*{said}"):
        files.read(str(checkpoint))


def test_two_sources_that_disagree_can_not_become_one_group(checkpoint: Path) -> None:
    both = ['{"orders":{"0":10}}', '{"orders":{"0":11}}']
    put(checkpoint, "offsets/1", "v1", "{}", *both)
    with pytest.raises(HoldfastError, match="two of its sources read orders-0"):
        files.read(str(checkpoint))
    put(checkpoint, "offsets/1", "v1", "{}", both[0], "-")
    assert files.read(str(checkpoint)).offsets == {TopicPartition("orders", 0): 10}


def test_an_empty_folder_is_no_checkpoint_and_a_full_one_is_not_written_over(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(HoldfastError, match="NO_KAFKA_CHECKPOINT"):
        files.read(str(tmp_path / "nothing"))
    with pytest.raises(HoldfastError, match="CHECKPOINT_NOT_EMPTY"):
        files.write(str(checkpoint), {})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


def test_offsets_go_to_the_group_and_come_back(broker: Broker, tmp_path: Path, checkpoint: Path) -> None:
    produce(broker, 20)
    ends = {"orders": {str(n): n for n in range(4)}}
    put(checkpoint, "offsets/1", "v1", "{}", json.dumps(ends))
    moved = import_checkpoint(str(checkpoint), bootstrap=broker.bootstrap, group="g")
    assert (moved.batch, moved.unfinished) == (1, True)
    assert committed(broker) == {0: 0, 1: 1, 2: 2, 3: 3}
    exported = export_checkpoint(str(tmp_path / "new"), bootstrap=broker.bootstrap, group="g", topics=["orders"])
    assert files.read(str(tmp_path / "new")).offsets == exported == moved.offsets


def test_a_partition_that_the_old_job_has_not_seen_is_read_from_its_beginning(broker: Broker, checkpoint: Path) -> None:
    """Symptom: with `latest`, the records of a partition that was added after the old job had stopped were skipped.
    Cause: the import noted how many partitions there were then, not how many the job knew."""
    produce(broker, 20)
    put(checkpoint, "offsets/1", "v1", "{}", json.dumps({"orders": {str(n): 20 for n in range(3)}}))
    import_checkpoint(str(checkpoint), bootstrap=broker.bootstrap, group="g")
    query = Engine(broker.bootstrap, startingOffsets="latest")
    query.run_until(lambda: len(query.seen) == 20)
    assert query.seen == [(3, offset) for offset in range(20)]
    query.stop()


def test_a_group_that_may_not_be_described_is_left_alone(
    broker: Broker, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: offsets were written under a group at work. Cause: any refusal to describe it, a missing right for one,
    was taken for "there is no such group"."""

    async def refused(_admin: GroupAdmin, _group: str) -> None:
        raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "The group g can't be described.")

    monkeypatch.setattr(GroupAdmin, "describe_group", refused)
    with pytest.raises(HoldfastError, match="GROUP_AUTHORIZATION_FAILED"):
        import_checkpoint(str(checkpoint), bootstrap=broker.bootstrap, group="g")
    with pytest.raises(HoldfastError, match="GROUP_AUTHORIZATION_FAILED"):
        export_checkpoint(str(tmp_path / "new"), bootstrap=broker.bootstrap, group="g", topics=["orders"])
    assert not (tmp_path / "new").exists()


def test_a_group_at_work_is_left_alone(broker: Broker, tmp_path: Path, checkpoint: Path) -> None:
    query = Engine(broker.bootstrap)
    query.plan()
    for move in (import_checkpoint, export_checkpoint):
        with pytest.raises(HoldfastError, match=r"GROUP_HAS_MEMBERS.*Stop them first"):
            move(str(checkpoint), bootstrap=broker.bootstrap, group="g")
    query.stop()
    with pytest.raises(HoldfastError, match="NO_COMMITTED_OFFSET"):
        export_checkpoint(str(tmp_path / "new"), bootstrap=broker.bootstrap, group="nobody", topics=["orders"])


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_a_job_moves_from_sparks_own_source_and_back_without_a_lost_or_doubled_record(
    broker: Broker, tmp_path: Path
) -> None:
    """In a process of its own: a JVM takes jars along only when it starts."""
    job = Path(__file__).with_name("connector_job.py")
    produce(broker, 10)
    with ConnectorJob(job, broker.bootstrap, tmp_path / "job.out") as run:
        seen = run("kafka", tmp_path / "before")
        import_checkpoint(str(tmp_path / "before"), bootstrap=broker.bootstrap, group="g")
        produce(broker, 10)
        seen += run("holdfast", tmp_path / "holdfast")
        assert sorted(seen) == every(20)
        export_checkpoint(str(tmp_path / "after"), bootstrap=broker.bootstrap, group="g")
        produce(broker, 10)
        seen += run("kafka", tmp_path / "after")
        produce(broker, 1)
        seen += run("kafka", tmp_path / "after")
    assert sorted(seen) == every(31)


class ConnectorJob:
    """A Spark with its own Kafka source, that runs one job after another."""

    def __init__(self, program: Path, bootstrap: str, errors: Path) -> None:
        jars = sorted(JARS.glob("*.jar"))
        assert jars, "Spark's Kafka source is missing: make spark-jars"
        self._errors = errors.open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(program), bootstrap, ",".join(map(str, jars))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYSPARK_PYTHON": quick_python(errors.parent), "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def __enter__(self) -> ConnectorJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)  # its input ends, and so does it
        self._errors.close()

    def __call__(self, kind: str, checkpoint: Path) -> list[tuple[int, int]]:
        """Everything that is there, through this source, as one job; then it stops."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {checkpoint}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        self._errors.seek(0)
        assert line, self._errors.read()[-3000:]
        return [(partition, offset) for partition, offset in json.loads(line)]
