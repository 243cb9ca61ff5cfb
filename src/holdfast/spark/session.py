"""Settings that make small micro-batches fast, each with its reason and its cost.

Spark's defaults are for large batches on remote file systems: an empty batch takes 294 ms, nearly all of it for the
checkpoint and for starting things. With these settings it takes about 80 ms.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, why it is set, and what it costs."""

    key: str
    value: str
    why: str
    costs: str
    since: tuple[int, int] = (4, 0)
    """The first PySpark that has it under this name."""


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="spark.sql.streaming.checkpointFileManagerClass",
        value=f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        why="The default goes through Hadoop's FileContext, which on a local disk forks about 44 processes a batch.",
        since=(4, 1),
        costs="On a file system whose rename replaces what is there, two queries that by mistake share a checkpoint "
        "notice it later. Object stores have managers of their own: skip it there.",
    ),
    Setting(
        key="spark.sql.streaming.checkpoint.fileChecksum.enabled",
        value="false",
        why="A second file with a checksum for every file of the checkpoint: twice the files, twice the time.",
        since=(4, 1),
        costs="A checkpoint file that the disk has damaged is noticed when it is read and not when it is verified.",
    ),
    Setting(
        key="spark.python.unix.domain.socket.enabled",
        value="true",
        why="Spark talks to its Python processes over TCP on loopback; a Unix socket has less on the way.",
        costs="Nothing on Linux; the sockets are files in a temporary folder.",
    ),
    Setting(
        key="spark.sql.codegen.wholeStage",
        value="false",
        why="Every plan is compiled to Java code again; a small batch is faster without that.",
        costs="Heavy expressions over large batches run slower: skip it for those.",
    ),
    Setting(
        key="spark.sql.python.filterPushdown.enabled",
        value="true",
        since=(4, 1),
        why="Reading a holdfast-files sink then leaves out the folders of partitionBy that a filter rules out.",
        costs="One more short question to Python when such a read is planned.",
    ),
)


def configure(builder: SparkSession.Builder, *, skip: Collection[str] = ()) -> SparkSession.Builder:
    """Apply `SETTINGS` to a session that is being built, all but those named in `skip`; returns the builder.

    What you set on the builder afterwards wins. Also: workers run this Python unless PYSPARK_PYTHON names one (call
    `.master(…)` first, so that a cluster is known), a streaming writer's `partitionBy` reaches `holdfast-files`, and
    Spark's errors begin with our message if they contain one.
    """
    from holdfast.spark.internals import VERSION, ours_first, pass_on_partition_by
    from holdfast.spark.worker_python import same_python

    unknown = sorted(set(skip) - {setting.key for setting in SETTINGS})
    if unknown:
        known = ", ".join(setting.key for setting in SETTINGS)
        raise HoldfastError("UNKNOWN_SETTING", f"{unknown[0]} is not among the settings.", f"They are {known}.")
    for setting in SETTINGS:
        if setting.key not in skip and setting.since <= VERSION:
            builder = builder.config(setting.key, setting.value)
    same_python(getattr(builder, "_options", {}))
    pass_on_partition_by()
    ours_first()
    return builder
