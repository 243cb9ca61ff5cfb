"""Warming Spark up before its query joins a group.

A query's first batch is slow: the JVM loads and compiles, Python workers start and import. On two busy cores it took
26 s, during which the partitions just assigned to the new member stood still. So before it joins, the same job runs
once in the same Spark on one record of the topic, as a batch, without a membership, into a temporary folder. Another
query, on one of Spark's own sources, loads the streaming engine. After that the new member can work at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 120
"""A warm-up that takes longer is stopped: better to join cold than not at all."""
ASK_S = 10.0

NOT_FOR_WARMING = frozenset(
    {
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.holdfast.standby",
        "kafka.holdfast.trace.file",
        "kafka.holdfast.trace.topic",
    }
)
"""Options of the source that say where a stream begins and how large its batches are, or that are a member's."""


def warm_up(
    spark: SparkSession,
    transform: Callable[[DataFrame], DataFrame],
    *,
    source: Mapping[str, str],
    sink_format: str,
    sink: Mapping[str, str],
    folder: Path,
) -> bool:
    """Run the job on one record; False if there is none. `sink` are the sink's options; its path is not used."""
    options = {key: value for key, value in source.items() if key.lower() not in NOT_FOR_WARMING}
    topic = options.pop("subscribe", "").split(",")[0].strip()
    kafka = {key[len("kafka.") :]: value for key, value in options.items() if key.startswith("kafka.")}
    found = asyncio.run(asyncio.wait_for(_last_record(kafka, topic), ASK_S)) if topic else None
    if found is None:
        return False
    partition, offset = found
    options |= {
        "assign": json.dumps({partition.topic: [partition.partition]}),
        "startingOffsets": json.dumps({partition.topic: {str(partition.partition): offset}}),
        "endingOffsets": json.dumps({partition.topic: {str(partition.partition): offset + 1}}),
    }
    rows = transform(spark.read.format("holdfast").options(**options).load())
    if sink_format == "holdfast-files":
        others = {key: value for key, value in sink.items() if key.lower() != "path"}
        rows.write.format(sink_format).mode("append").options(**others).save(str(folder / "sink"))
    else:
        rows.write.format("noop").mode("overwrite").save()
    load_engine(spark, folder)
    return True


def load_engine(spark: SparkSession, folder: Path) -> None:
    """Run one batch of a query that needs no Kafka."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    deadline = time.monotonic() + LIMIT_S
    while query.lastProgress is None and query.isActive and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()


async def _last_record(kafka: Mapping[str, Any], topic: str) -> tuple[TopicPartition, int] | None:
    """The position of the last record of any partition that has one."""
    from holdfast.net.admin import EARLIEST, LATEST, Admin
    from holdfast.net.cluster import Cluster
    from holdfast.net.config import client_config

    async with Cluster(client_config(kafka)) as cluster:
        admin = Admin(cluster)
        info = (await admin.describe_topics([topic])).get(topic)
        if info is None:
            return None
        partitions = [TopicPartition(topic, number) for number in sorted(info.partitions)]
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return next(((p, ends[p].offset - 1) for p in partitions if ends[p].offset > starts[p].offset), None)
