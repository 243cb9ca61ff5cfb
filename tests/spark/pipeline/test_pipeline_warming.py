"""The job's trial on one record, before its query joins."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from holdfast.model import TopicPartition
from holdfast.spark.batch import ranges
from holdfast.spark.options import parse
from holdfast.spark.pipeline import warming
from holdfast.testing.broker import Broker
from patience import PATIENCE_S


class Chain:
    """Spark's readers and writers as far as the trial uses them: every method returns the same object."""

    def __init__(self) -> None:
        self.options_given: dict[str, str] = {}
        self.saved: list[str] = []

    @property
    def write(self) -> Chain:
        return self

    def options(self, **given: str) -> Chain:
        self.options_given |= given
        return self

    def format(self, _name: str) -> Chain:
        return self

    def mode(self, _name: str) -> Chain:
        return self

    def load(self) -> Chain:
        return self

    def save(self, path: str) -> None:
        self.saved.append(path)


@pytest.mark.parametrize(
    "more",
    [
        {"startingTimestamp": "1000"},
        {"startingOffsetsByTimestamp": '{"orders": {"0": 1000}}'},
        {"startingOffsets": "latest", "maxOffsetsPerTrigger": "10"},
        {"kafka.holdfast.standby": "1"},
    ],
)
def test_the_trial_reads_one_record_whatever_the_stream_is_told(
    holdfast_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    """Symptom: a pipeline with startingTimestamp tried its job on everything since then; one with a standby was never
    tried. Cause: a time goes before the offsets that the trial gives, and a standby needs a group."""
    monkeypatch.setattr(warming, "load_engine", lambda *_: None)
    holdfast_broker.topics.create("orders", partitions=1)
    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap})
    for _ in range(7):
        producer.produce("orders", b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    source = {
        "kafka.bootstrap.servers": holdfast_broker.bootstrap,
        "kafka.group.id": "g",
        "subscribe": "orders",
        **more,
    }
    spark: Any = SimpleNamespace(read=Chain())
    sink = {"path": "/data/orders", "offsetColumn": "position"}
    written: Any = Chain()
    tried = warming.warm_up(
        spark, lambda rows: written, source=source, sink_format="holdfast-files", sink=sink, folder=tmp_path
    )
    assert tried
    assert ranges(parse(spark.read.options_given, streaming=False)) == {TopicPartition("orders", 0): (6, 7)}
    assert json.loads(spark.read.options_given["endingOffsets"]) == {"orders": {"0": 7}}
    assert written.options_given == {"offsetColumn": "position"}, "as the query will write"
    assert written.saved == [str(tmp_path / "sink")]
