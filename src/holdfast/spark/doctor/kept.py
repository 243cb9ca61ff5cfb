"""What `doctor --follow` keeps on disk: the events, and the tables made from them. Executors write, under a lock that
the driver holds.

    events/b07.parquet     the events of the groups whose name's checksum is 7 modulo 32
    events/nameless.parquet   events whose line does not say their group, with the group found by their names
    groups/b07.parquet, findings/b07.parquet, …   the tables
    _follow/names/b07.parquet   which names appear in which group

A file is written under a hidden name and renamed, so a reader sees either the old or the new file, whole. Each file of
events also records how much of each source it holds (`ledger`), so that a repeated batch adds nothing: everything
before the ledger's position is in, everything from it on is not. Events expire by the time since they arrived here,
because the clocks in the logs may be wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from holdfast.doctor.changes import changes_of
from holdfast.doctor.events import FIELDS, Event
from holdfast.doctor.tables import COLUMNS, FINDINGS, GROUPS, Row, examined
from holdfast.spark.doctor.columns import arrow_schema_of
from holdfast.spark.doctor.reading import EVENTS
from holdfast.spark.files.store import sync_folder

BUCKETS = 32
"""Files of each table. A batch rewrites only the files of its groups: for one group, a thirty-second of the table."""

NAMELESS = -1
pc: Any = pyarrow.compute
"""Any, because its stubs do not allow comparing a column with a plain value."""
LEDGER = b"holdfast.ledger"

_ARRIVED: list[pa.Field[Any]] = [pa.field("arrived_ms", pa.float64())]
STORED = pa.schema([*(EVENTS.field(name) for name in FIELDS), *_ARRIVED])
_NAMES: list[pa.Field[Any]] = [pa.field("name", pa.string()), pa.field("group", pa.string())]
NAMES = pa.schema(_NAMES)

TOUCHED_DDL = "`bucket` INT, `group` STRING"
_TOUCHED: list[pa.Field[Any]] = [pa.field("bucket", pa.int32()), pa.field("group", pa.string())]
TOUCHED = pa.schema(_TOUCHED)
CHANGED_DDL = "`group` STRING, `change` STRING"
_CHANGED: list[pa.Field[Any]] = [pa.field("group", pa.string()), pa.field("change", pa.string())]
CHANGED = pa.schema(_CHANGED)


def bucket_of(group: str) -> int:
    return zlib.crc32(group.encode()) % BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The folder. An immutable value, because executors get a copy."""

    folder: str
    keep_ms: float
    now_ms: float
    lines_before: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By origin and piece: how many lines of a file are before the piece."""
    only: str | None = None
    """Examine this group alone. The events of all groups are kept, to find the group of nameless ones."""

    # -- events

    def store(self, rows: pa.Table) -> pa.Table:
        """Add a batch's events of one bucket; returns the groups that changed. For `applyInArrow`."""
        bucket = int(rows["bucket"][0].as_py())
        old, ledger = self._events(bucket)
        kept, out = self._split(old)
        new = [row for row in rows.to_pylist() if row["position"] >= ledger.get(row["origin"], 0)]
        for row in new:
            ledger[row["origin"]] = max(row["position"] + 1, ledger.get(row["origin"], 0))
            row["line"] += self.lines_before.get((row["content"], row["piece"]), 0)
            row["arrived_ms"] = self.now_ms
        # Spark hands rows over in any order; a reader of the table should see lines in the order of the file.
        new.sort(key=lambda row: (row["file"], row["line"]))
        added = pa.Table.from_pylist([{name: row[name] for name in STORED.names} for row in new], schema=STORED)
        self._write_events(bucket, pa.concat_tables([kept, added]), ledger)
        return self._touched([*_texts(rows, "group"), *_texts(out, "group")])

    def age(self, rows: pa.Table) -> pa.Table:
        """Drop the bucket's events that are too old; returns the groups that changed. For `applyInArrow`."""
        bucket = int(rows["bucket"][0].as_py())
        old, ledger = self._events(bucket)
        kept, out = self._split(old)
        if out.num_rows:
            self._write_events(bucket, kept, ledger)
        return self._touched(_texts(out, "group"))

    def name(self, rows: pa.Table) -> pa.Table:
        """Find the groups of the nameless events again: a name that appears in one group only belongs to that group.
        Returns the groups that gained or lost some. For `applyInArrow`, one task."""
        old, ledger = self._events(NAMELESS)
        known = self._groups_of_names()
        groups, touched = list[str](), list[str]()
        columns = (_texts(old, name) for name in ("member", "client", "group"))
        for member, client, before in zip(*columns, strict=True):
            sure = (known[name] for name in (member, client) if len(known.get(name, ())) == 1)
            now = next((next(iter(one)) for one in sure), "")
            groups.append(now)
            if now != before:
                touched += [before, now]
        if touched:
            place = STORED.get_field_index("group")
            self._write_events(NAMELESS, old.set_column(place, "group", pa.array(groups, pa.string())), ledger)
        return self._touched(touched)

    def nameless(self) -> int:
        """How many events no name connects with a group."""
        if not self._events_path(NAMELESS).exists():
            return 0
        groups = pq.read_table(self._events_path(NAMELESS), columns=["group"])["group"]
        return int(pc.sum(pc.equal(groups, "")).as_py() or 0)

    def _groups_of_names(self) -> dict[str, set[str]]:
        known: dict[str, set[str]] = defaultdict(set)
        for bucket in range(BUCKETS):
            path = self._path("_follow/names", bucket)
            if path.exists():
                table = pq.read_table(path)
                for name, group in zip(_texts(table, "name"), _texts(table, "group"), strict=True):
                    known[name].add(group)
        return known

    def _split(self, old: pa.Table) -> tuple[pa.Table, pa.Table]:
        young = pc.greater_equal(old["arrived_ms"], self.now_ms - self.keep_ms)
        return old.filter(young), old.filter(pc.invert(young))

    def _touched(self, groups: Sequence[str]) -> pa.Table:
        names = sorted({name for name in groups if name})
        buckets = pa.array([bucket_of(name) for name in names], pa.int32())
        return pa.Table.from_arrays([buckets, pa.array(names, pa.string())], schema=TOUCHED)

    def _events(self, bucket: int) -> tuple[pa.Table, dict[str, int]]:
        path = self._events_path(bucket)
        if not path.exists():
            return STORED.empty_table(), {}
        table = pq.read_table(path)
        told = (table.schema.metadata or {}).get(LEDGER, b"{}")
        return table.select(STORED.names).cast(STORED), json.loads(told)

    def _write_events(self, bucket: int, table: pa.Table, ledger: Mapping[str, int]) -> None:
        write(table.replace_schema_metadata({LEDGER: json.dumps(ledger).encode()}), self._events_path(bucket))
        if bucket == NAMELESS:
            return
        pairs = [
            table.select([column, "group"]).rename_columns(NAMES.names).group_by(NAMES.names).aggregate([])
            for column in ("member", "client")
        ]
        names = pa.concat_tables(pairs)
        write(names.filter(pc.not_equal(names["name"], "")), self._path("_follow/names", bucket))

    # -- tables

    def examine(self, rows: pa.Table) -> pa.Table:
        """Examine these groups of one bucket again and rewrite their rows; returns what changed. A row without a group
        means all groups of the bucket. For `applyInArrow`."""
        bucket = int(rows["bucket"][0].as_py())
        asked: set[Any] = set(rows["group"].to_pylist())
        of = self._by_group(bucket, None if None in asked else asked)
        old = {name: self._rows(name, bucket) for name in COLUMNS}
        before = _findings(old[FINDINGS])
        known = set(_texts(old[GROUPS], "group"))
        groups = known | set(of) if None in asked else {str(name) for name in asked}
        if self.only is not None:
            # Rows of other groups, from a run that did not name this group alone, are removed.
            groups = (groups & {self.only}) | (known - {self.only})
            of = {name: events for name, events in of.items() if name == self.only}
        made: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        for group in sorted(groups & set(of)):
            for name, row in examined(group, of.pop(group)):
                made[name].append(row)
        for name, table in old.items():
            self._replace(name, bucket, table, groups, made[name])
        after = defaultdict(list)
        for row in made[FINDINGS]:
            after[row["group"]].append(row)
        there = {row["group"] for row in made[GROUPS]}
        told = [
            (group, json.dumps(asdict(change), ensure_ascii=False))
            for group in sorted(groups)
            if group in known or group in there
            for change in changes_of(group, before[group], after[group], there=group in there)
        ]
        arrays = [pa.array([row[place] for row in told], pa.string()) for place in (0, 1)]
        return pa.Table.from_arrays(arrays, schema=CHANGED)

    def _by_group(self, bucket: int, asked: set[str] | None) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for place in (bucket, NAMELESS):
            table, _ = self._events(place)
            if asked is not None:
                table = table.filter(pc.is_in(table["group"], pa.array(sorted(asked), pa.string())))
            for row in table.select(list(FIELDS)).to_pylist():
                if row["group"] and (asked is not None or bucket_of(row["group"]) == bucket):
                    found[row["group"]].append(Event(**row))
        return found

    def _replace(self, name: str, bucket: int, old: pa.Table, groups: set[str], made: list[Row]) -> None:
        others = old.filter(pc.invert(pc.is_in(old["group"], pa.array(sorted(groups), pa.string()))))
        new = pa.Table.from_pylist(json.loads(json.dumps(made)), schema=arrow_schema_of(name))
        if new.num_rows or others.num_rows != old.num_rows or not self._path(name, bucket).exists():
            write(pa.concat_tables([others, new]), self._path(name, bucket))

    def _rows(self, name: str, bucket: int) -> pa.Table:
        path = self._path(name, bucket)
        return (
            pq.read_table(path, schema=arrow_schema_of(name)) if path.exists() else arrow_schema_of(name).empty_table()
        )

    # -- what the driver reads

    def read(self, name: str, groups: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows of a table, a few thousand in memory at a time; if groups are named, only theirs."""
        buckets = range(BUCKETS) if groups is None else sorted({bucket_of(group) for group in groups})
        for bucket in buckets:
            path = self._path(name, bucket)
            if not path.exists():
                continue
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=4_096):
                    for row in batch.to_pylist(maps_as_pydicts="strict"):
                        if groups is None or row["group"] in groups:
                            yield row

    def _events_path(self, bucket: int) -> Path:
        return Path(self.folder, "events", "nameless.parquet") if bucket == NAMELESS else self._path("events", bucket)

    def _path(self, table: str, bucket: int) -> Path:
        return Path(self.folder, table, f"b{bucket:02d}.parquet")


def _texts(table: pa.Table, column: str) -> list[str]:
    return [str(value) for value in table[column].to_pylist()]


def _findings(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    columns = ["group", "kind", "culprit", "times", "cost_partition_seconds", "measured"]
    for row in table.select(columns).to_pylist():
        found[row["group"]].append(row)
    return found


def write(table: pa.Table, path: Path) -> None:
    """Write atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, hidden_by="_") as file:
        pq.write_table(table, file)


@contextlib.contextmanager
def replacing(path: Path, *, hidden_by: str) -> Iterator[IO[bytes]]:
    """A file to write under a hidden name; when the block has ended, it replaces `path` atomically and durably."""
    hidden = path.with_name(f"{hidden_by}{path.name}.{uuid.uuid4().hex}")
    with hidden.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_folder(path.parent)
