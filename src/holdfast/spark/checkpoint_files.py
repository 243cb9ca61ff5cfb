"""The Kafka source's offsets in the files of a Spark checkpoint. Text in, text out.

A streaming query's folder has `offsets/N`, written before batch N runs, and `commits/N`, written after it. Each offset
log file is a version line, a line about the query, then one line for each source; a Kafka source's line is
`{"topic": {"partition": offset}}`, the end of the batch. `sources/N/0` holds where the source numbered N began.
A checkpoint may be anywhere that pyarrow can reach: a local folder, file:, hdfs:, s3:, gs:.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError, TopicPartition

if TYPE_CHECKING:
    from pyarrow import fs

VERSION = "v1"
NO_OFFSET = "-"
"""What Spark writes for a source that has not returned anything yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOffsets:
    """The offsets of a query's Kafka sources."""

    batch: int | None
    offsets: Mapping[TopicPartition, int]
    unfinished: bool


def read(checkpoint: str) -> KafkaOffsets:
    """The end offsets of the last finished batch; if no batch was finished, the offsets at which the query began."""
    folder = _Folder(checkpoint)
    planned, done = folder.numbers("offsets"), folder.numbers("commits")
    finished = [number for number in planned if number in set(done)]
    if finished:
        batch: int | None = finished[-1]
        lines = folder.text(f"offsets/{batch}").splitlines()[2:]
    else:
        batch = None
        lines = [folder.text(f"sources/{n}/0").splitlines()[-1] for n in folder.numbers("sources")]
    if not lines:
        raise _not_one(checkpoint, "it has neither offsets nor sources")
    offsets: dict[TopicPartition, int] = {}
    for line in lines:
        for partition, offset in _kafka(checkpoint, line).items():
            if offsets.get(partition, offset) != offset:
                raise _not_one(checkpoint, f"two of its sources read {partition}, and one group can't be at both")
            offsets[partition] = offset
    return KafkaOffsets(batch=batch, offsets=offsets, unfinished=bool(planned) and planned[-1] not in set(done))


def write(checkpoint: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a checkpoint of a query that has run no batch yet, whose first source begins at these offsets."""
    folder = _Folder(checkpoint)
    if not folder.empty():
        raise HoldfastError(
            "CHECKPOINT_NOT_EMPTY",
            f"{checkpoint} is not empty, and would be another query's.",
            "Name a folder that does not exist yet.",
        )
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    # Spark's own file of initial offsets begins with a zero byte, for the sake of readers before Spark 2.1.
    folder.put("sources/0/0", f"\0{VERSION}\n{json.dumps(topics, separators=(',', ':'))}")


def _kafka(checkpoint: str, line: str) -> dict[TopicPartition, int]:
    if line.strip() == NO_OFFSET:
        return {}
    try:
        data = json.loads(line)
        if "ranges" in data and "v" in data:
            raise _not_one(checkpoint, "it is of a query on holdfast already, whose offsets are in its group")
        return {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partitions in data.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise _not_one(checkpoint, f"one of its sources is not Kafka: {line[:80]}") from None


def _not_one(checkpoint: str, why: str) -> HoldfastError:
    return HoldfastError(
        "NO_KAFKA_CHECKPOINT",
        f"{checkpoint} can't be taken for the checkpoint of a query on Spark's Kafka source: {why}.",
        "Give the checkpointLocation of a stopped query that reads format('kafka').",
    )


class _Folder:
    """A folder on any file system that pyarrow knows."""

    def __init__(self, where: str) -> None:
        from pyarrow import fs

        self._name = where
        self._fs: fs.FileSystem
        if "://" in where or where.startswith("file:"):
            self._fs, self._root = fs.FileSystem.from_uri(where)
        else:
            self._fs, self._root = fs.LocalFileSystem(), where
        self._root = self._root.rstrip("/")

    def _entries(self, name: str) -> list[Any]:
        from pyarrow import fs

        return list(self._fs.get_file_info(fs.FileSelector(f"{self._root}/{name}".rstrip("/"), allow_not_found=True)))

    def numbers(self, name: str) -> list[int]:
        """The numbers that name files or folders in it, sorted; other names are temporary files or checksums."""
        names = (entry.base_name for entry in self._entries(name))
        return sorted(int(one) for one in names if one.isdigit())

    def empty(self) -> bool:
        return not self._entries("")

    def text(self, name: str) -> str:
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read()).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise _not_one(self._name, f"{name} can't be read ({error})") from None

    def put(self, name: str, text: str) -> None:
        path = f"{self._root}/{name}"
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(path) as stream:
            stream.write(text.encode())
