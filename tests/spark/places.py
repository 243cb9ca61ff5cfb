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
from store_servers import StoreServer

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
        (Path(self.path) / folder / f".new-{uuid.uuid4().hex}").write_bytes(b"half")


class BucketPlace(Place):
    """Nobody can set an object's time: what looks at it is told another."""

    def __init__(self, path: str, options: dict[str, str]) -> None:
        super().__init__(path, options)
        self.ages: dict[str, float] = {}

    @property
    def store(self) -> Store:
        store: Any = open_store(self.path, self.options)
        store.client = _Aged(store.client, self.ages)
        return store  # type: ignore[no-any-return]

    def names(self) -> list[str]:
        """Everything in it, marks and probes too."""
        store: Any = self.store
        return sorted(one["path"] for some in store.client.list("") for one in some)

    @property
    def data_files(self) -> set[str]:
        return {name for name in self.names() if name.startswith("data/") and "/." not in name}

    def age(self, name: str, seconds: float) -> None:
        self.ages[name] = self.ages.get(name, 0.0) + seconds

    def damage(self, name: str, data: bytes) -> None:
        store: Any = self.store
        store.client.put(name, data)

    def leave_unfinished(self, folder: str) -> None:
        with self.store.writing(f"{folder}/.going/x.parquet/{uuid.uuid4().hex}"):
            pass


class _Aged:
    """A bucket's client that tells some objects older than they are."""

    def __init__(self, client: Any, ages: dict[str, float]) -> None:
        self._client, self._ages = client, ages

    def head(self, name: str) -> Any:
        head = self._client.head(name)
        head["last_modified"] -= timedelta(seconds=self._ages.get(name, 0.0))
        return head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


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
        self.damage(f"{folder}/.new-{uuid.uuid4().hex}", b"half")


def local_place(folder: Path) -> Place:
    return Place(str(folder))


def s3_place(s3: S3) -> BucketPlace:
    return BucketPlace(f"s3://{s3.new_bucket()}/sinks/orders", s3.options)


def served_place(server: StoreServer) -> BucketPlace:
    return BucketPlace(server.new_place(), server.options)


def hdfs_place(address: str) -> Place:
    return HdfsPlace(f"{address}/{uuid.uuid4().hex}/orders")
