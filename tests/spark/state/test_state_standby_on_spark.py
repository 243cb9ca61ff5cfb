"""A warm standby on a real Spark: two applications follow each other's partitions, one goes, the other goes on."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from state_apps import TOPIC, App, rows_in, stands, wait
from state_events import Events, as_totals, produce

import holdfast.spark
from holdfast.model import HoldfastError
from holdfast.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 4


class Standing(App):
    """One result, with a follower for each partition."""

    options: ClassVar[dict[str, str]] = {"kafka.holdfast.standby": "1"}

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        state = str(self._folder / "state" / "totals")
        agg: dict[str, Any] = {"n": "count", "s": ("sum", "n")}
        on = holdfast.spark.stateful(rows, state=state, writer=self.name, standby=1)
        on.aggregate(by=["k"], agg=agg).write_batch(str(self._folder / "totals"), batch_id)

    def follows(self) -> dict[str, float]:
        """Partition -> how much of its state is at hand."""
        try:
            (told,) = holdfast.spark.report(self.query)
        except HoldfastError:
            return {}  # it has no reader yet
        found: dict[str, float] = told.get("standby", {}).get("follows", {})
        return found


def test_a_standby_has_the_state_at_hand_and_takes_the_partition_over(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Each follows what the other owns, and says so; a drained member's partitions go to it, and totals are those of a
    batch. The follower's thread ends with its query."""
    holdfast_broker.topics.create(TOPIC, partitions=PARTITIONS)
    events = Events(PARTITIONS, seed=3)

    def more() -> None:
        produce(holdfast_broker.bootstrap, TOPIC, events.make(400))

    def done() -> bool:
        ends = {n: sum(event.partition == n for event in events.made) for n in range(PARTITIONS)}
        return stands(tmp_path, "totals", PARTITIONS) == ends

    def follows_both(app: Standing) -> bool:
        found = app.follows()
        return len(found) == 2 and min(found.values()) >= 0.5

    more()
    one = Standing(spark, holdfast_broker.bootstrap, tmp_path, "one", limit=2_000)
    wait(done, one)
    two = Standing(spark, holdfast_broker.bootstrap, tmp_path, "two", limit=2_000)
    wait(lambda: two.owned() == 2, one, two)
    more()
    wait(done, one, two)
    for app in (one, two):
        wait(partial(follows_both, app), one, two)
    assert set(one.follows()) | set(two.follows()) == {f"{TOPIC}-{n}" for n in range(PARTITIONS)}
    one.drain()
    more()
    wait(done, two)
    assert two.follows() == {}, "there is nobody to follow"
    two.drain()
    assert as_totals(rows_in(tmp_path / "totals")) == events.totals()
    wait(lambda: not any(thread.name == "holdfast-standby" for thread in threading.enumerate()))


def test_both_places_must_ask_for_the_same(spark: SparkSession, holdfast_broker: Broker, tmp_path: Path) -> None:
    """The assignor is chosen when the member joins, by the stream's options. stateful(standby=1) alone would follow
    nothing, in silence."""
    options = {
        "kafka.bootstrap.servers": holdfast_broker.bootstrap,
        "kafka.group.id": "g",
        "subscribe": TOPIC,
    }
    rows = spark.readStream.format("holdfast").options(**options).load()
    with pytest.raises(HoldfastError, match=r"standby=1.*kafka\.holdfast\.standby=0") as refused:
        holdfast.spark.stateful(rows, state=os.fspath(tmp_path / "s"), standby=1)
    assert refused.value.code == "STANDBY_DIFFERS"
    rows = spark.readStream.format("holdfast").options(**options).option("kafka.holdfast.standby", "1").load()
    with pytest.raises(HoldfastError, match=r"standby=0.*kafka\.holdfast\.standby=1"):
        holdfast.spark.stateful(rows, state=os.fspath(tmp_path / "s"))
    holdfast.spark.stateful(rows, state=os.fspath(tmp_path / "s"), standby=1)
