"""One process of several that work on one sink. Its lines say what it was told, for the test that started it.

python sink_racer.py create WHO                creates each name that it is told, with its own content, and answers
python sink_racer.py write WHO END             batches of orders until every partition is at END; prints rows it got in
python sink_racer.py compact WHO               until it is killed
python sink_racer.py clean WHO GRACE_S         until it is killed

The sink and its options come as RACER_SINK and RACER_OPTIONS (JSON).
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

import pyarrow as pa

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.store import Store, open_store
from holdfast.spark.files.upkeep import clean, compact
from holdfast.spark.files.writing import write_rows

PARTITIONS = 2
MOST_ROWS = 40


def orders(partition: int, start: int, end: int) -> Any:
    count = end - start
    columns = {
        "topic": pa.array(["orders"] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(start, end), pa.int64()),
    }
    return pa.record_batch(columns)


def create(store: Store, who: str) -> None:
    for line in sys.stdin:
        print("made" if store.create(line.strip(), who.encode()) else "taken", flush=True)


def write(store: Store, who: str, end: int) -> None:
    """Batches overlap those of others and of before, as after crashes: each begins at or before the chain's end."""
    rng = random.Random(who)
    while True:
        ends = [Ledger(store, TopicPartition("orders", number)).tip().end or 0 for number in range(PARTITIONS)]
        if min(ends) >= end:
            return
        batches = []
        for number, at in enumerate(ends):
            start = max(0, at - rng.randrange(MOST_ROWS))
            upto = min(end, at + rng.randrange(MOST_ROWS))
            batches += [orders(number, start, upto)] if start < upto else []
        print(commit(store, who, batches), flush=True)


def commit(store: Store, who: str, batches: list[Any]) -> int:
    try:
        written = write_rows(store, batches, columns=Columns(), schema_id="s")
        return commit_files(store, written, columns=Columns(), writer=who).rows
    except FileNotFoundError:  # a file of ours that was to be cut was older than the grace period
        return 0
    except HoldfastError as error:
        # An answer was lost for good, or a file was older than the grace period before it was committed: done again.
        if error.code not in ("STORE_FAILED", "DATA_FILE_MISSING"):
            raise
        return 0


def upkeep(store: Store, grace_s: float | None) -> None:
    while True:
        try:
            if grace_s is None:
                compact(store, target_bytes=64 * 1024)
            else:
                clean(store, now=time.time(), grace_s=grace_s)
        except HoldfastError as error:
            if error.code not in ("STORE_FAILED", "COMPACTION_OVERTAKEN"):
                raise
        print("round", flush=True)


def main() -> None:
    store = open_store(os.environ["RACER_SINK"], json.loads(os.environ["RACER_OPTIONS"]), patience_s=20.0)
    role, who, *told = sys.argv[1:]
    if role == "create":
        create(store, who)
    elif role == "write":
        write(store, who, int(told[0]))
    else:
        upkeep(store, float(told[0]) if told else None)


if __name__ == "__main__":
    main()
