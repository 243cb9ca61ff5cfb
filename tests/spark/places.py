"""Where a sink can be, for tests that run on every kind of store."""

from __future__ import annotations

import io
import os
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.model import TopicPartition
from holdfast.spark.files import committed_files, positions
from holdfast.spark.files.store import Store, open_store
from s3_server import S3


@dataclass
class Place:
    """A path or URL, what its store is told, and what only tests do to it."""

    path: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return open_store(self.path, self.options)

    def __truediv__(self, name: str) -> Place:
        return type(self)(f"{self.path}/{name}", self.options)

    def files(self) -> list[str]:
        """Names of the committed files, without the path."""
        return [name.removeprefix(f"{self.path}/") for name in committed_files(self.path, options=self.options)]

    def positions(self, topic: str | None = None) -> dict[TopicPartition, int]:
        return positions(self.path, topic, options=self.options)

    def parquet(self, name: str) -> pq.ParquetFile:
        with self.store.open(name) as file:
            return pq.ParquetFile(io.BytesIO(file.read()))

    def age(self, name: str, seconds: float) -> None:
        """Let a file be older than it is."""
        path = Path(self.path) / name
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))

    def damage(self, name: str, data: bytes) -> None:
        (Path(self.path) / name).write_bytes(data)

    def leave_unfinished(self, folder: str) -> None:
        """What a process that died in the middle of something leaves."""
        (Path(self.path) / folder / ".new-1234").write_bytes(b"half")


class S3Place(Place):
    """moto keeps its objects in this process."""

    def age(self, name: str, seconds: float) -> None:
        self._key(name).last_modified -= timedelta(seconds=seconds)

    def damage(self, name: str, data: bytes) -> None:
        self._key(name).value = data

    def leave_unfinished(self, folder: str) -> None:
        with self.store.writing(f"{folder}/.going/x.parquet/1234"):
            pass

    def _key(self, name: str):  # type: ignore[no-untyped-def]
        from moto.s3.models import s3_backends

        bucket, _, prefix = self.path.removeprefix("s3://").partition("/")
        (account,) = s3_backends.keys()
        return s3_backends[account]["aws"].buckets[bucket].keys[f"{prefix}/{name}"]


class HdfsPlace(Place):
    """By requests of our own."""

    def age(self, name: str, seconds: float) -> None:
        store: Any = self.store
        at = str(int((store.modified(name) - seconds) * 1000))
        store.ask("PUT", name, "SETTIMES", modificationtime=at, accesstime="-1")

    def damage(self, name: str, data: bytes) -> None:
        store: Any = self.store
        store.ask("PUT", name, "CREATE", io.BytesIO(data), overwrite="true")

    def leave_unfinished(self, folder: str) -> None:
        self.damage(f"{folder}/.new-1234", b"half")


def local_place(folder: Path) -> Place:
    return Place(str(folder))


def s3_place(s3: S3) -> Place:
    return S3Place(f"s3://{s3.new_bucket()}/sinks/orders", s3.options)


def hdfs_place(address: str) -> Place:
    return HdfsPlace(f"{address}/{uuid.uuid4().hex}/orders")
