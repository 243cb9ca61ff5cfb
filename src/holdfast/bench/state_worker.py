"""One Spark application of `holdfast bench state`, in a process of its own. Its task is one JSON argument.

`throughput`: a windowed count by key over a whole topic, with our source and state or with Spark's own, repeated; the
result is one JSON line. `follow`: a member that counts by key until its standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.bench.spark_worker import session, stream, timed
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 1_800
NOTE_S = 1.0
SIZE, DELAY = "10 seconds", "5 seconds"


def ours(rows: DataFrame, folder: Path) -> StreamingQuery:
    from holdfast.spark import stateful

    kept = rows.selectExpr("topic", "partition", "offset", "timestamp", "cast(key as string) k")
    counts = stateful(kept, state=str(folder / "state")).window(
        "timestamp", size=SIZE, watermark=DELAY, by=["k"], agg={"n": "count"}
    )
    return counts.start(str(folder / "out"), checkpoint=str(folder / "cp"), trigger={"availableNow": True})


def theirs(rows: DataFrame, folder: Path) -> StreamingQuery:
    from pyspark.sql import functions as f

    kept = rows.selectExpr("timestamp", "cast(key as string) k").withWatermark("timestamp", DELAY)
    counts = kept.groupBy(f.window("timestamp", SIZE), "k").agg(f.count("*").alias("n"))
    writer = counts.writeStream.outputMode("append").format("parquet").option("checkpointLocation", str(folder / "cp"))
    return writer.trigger(availableNow=True).start(str(folder / "out"))


def throughput(spark: SparkSession, asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    work = ours if asked["format"] == "holdfast" else theirs

    def begin() -> StreamingQuery:
        return work(stream(spark, asked, "earliest"), folder / uuid.uuid4().hex)

    return timed(asked, lambda: begin, limit_s=LIMIT_S)


def follow(spark: SparkSession, asked: dict[str, Any]) -> None:
    from holdfast.spark import drain, stateful

    standby = asked["standby"]
    options = {"kafka.bootstrap.servers": asked["bootstrap"], "kafka.group.id": f"bench-{asked['topic']}"}
    options |= {"subscribe": asked["topic"], "startingOffsets": "earliest", "kafka.holdfast.standby": str(standby)}
    rows = spark.readStream.format("holdfast").options(**options).load()
    kept = rows.selectExpr("topic", "partition", "offset", "cast(key as string) k")
    on = stateful(kept, state=asked["state"], writer=asked["name"], standby=standby)
    query = on.aggregate(by=["k"], agg={"n": "count"}).start(asked["sink"], checkpoint=asked["checkpoint"])
    threading.Thread(target=note_follows, args=(query, Path(asked["follows"])), daemon=True).start()
    sys.stdin.read()
    drain(query)


def note_follows(query: StreamingQuery, note: Path) -> None:
    """Write down repeatedly how much of the followed state this application has."""
    from holdfast.spark import report

    while query.isActive:
        time.sleep(NOTE_S)
        with contextlib.suppress(HoldfastError):  # its reader has not started, or has ended
            shares = [share for told in report(query) for share in _follows(told).values()]
            note.write_text(str(min(shares, default=0.0)))


def _follows(told: dict[str, Any]) -> dict[str, float]:
    standby = told.get("standby", {})
    return standby.get("follows", {}) if isinstance(standby, dict) else {}


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(asked)
    if asked["work"] == "follow":
        follow(spark, asked)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            print(json.dumps(throughput(spark, asked, Path(folder))))
    spark.stop()


if __name__ == "__main__":
    main()
