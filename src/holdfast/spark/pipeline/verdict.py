"""What a sink's ledger proves about a run: what was lost or duplicated, who wrote which partition when, and how long
each stood still. Pure, except for `read_commits` and `read_offsets`, which read the sink.

A *pause* of a partition is the time between two of its commits to the sink. Batches come one after the other, so even
an undisturbed partition has pauses as long as a batch. The longest pause of a quiet time is the reference for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from holdfast.model import TopicPartition
from holdfast.spark.files.ledger import Ledger
from holdfast.spark.files.sink import committed_files, partitions_of
from holdfast.spark.files.store import open_store


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a ledger: which application, and when (seconds since 1970)."""

    at_s: float
    writer: str
    rows: int


Commits = Mapping[TopicPartition, Sequence[Commit]]


def read_commits(path: str) -> dict[TopicPartition, list[Commit]]:
    """All entries of a sink that was not compacted, by partition, in order."""
    store = open_store(path)
    found: dict[TopicPartition, list[Commit]] = {}
    for partition in partitions_of(store):
        ledger = Ledger(store, partition)
        commits = []
        for number in ledger.entry_numbers():
            entry, at = ledger.entry(number), store.modified(ledger.entry_name(number))
            if entry is not None and at is not None:
                rows = sum(file.rows for file in entry.files)
                commits.append(Commit(at, entry.writer.partition(" batch ")[0], rows))
        found[partition] = commits
    return found


def read_offsets(path: str, topic: str) -> dict[int, Counter[int]]:
    """How often each offset is in the committed files, by partition."""
    import pyarrow.parquet as pq

    found: dict[int, Counter[int]] = {}
    for name in committed_files(path):
        if not Path(name).exists():
            continue  # counted as lost
        table = pq.ParquetFile(name).read(columns=["topic", "partition", "offset"])
        rows = zip(*(table.column(column).to_pylist() for column in ("topic", "partition", "offset")), strict=True)
        for name_of_topic, partition, offset in rows:
            if name_of_topic == topic and partition is not None and offset is not None:
                found.setdefault(partition, Counter())[offset] += 1
    return found


@dataclass(frozen=True, slots=True)
class Balance:
    """Records in and out."""

    records_in: int
    records_out: int
    lost: int
    doubled: int


def balance(stored: Mapping[int, Iterable[int]], written: Mapping[int, Counter[int]]) -> Balance:
    """`stored`: the offsets that must be in the sink, by partition."""
    lost = records_in = 0
    for partition, offsets in stored.items():
        wanted = set(offsets)
        records_in += len(wanted)
        lost += len(wanted - written.get(partition, Counter()).keys())
    out = sum(count for offsets in written.values() for count in offsets.values())
    doubled = sum(count - 1 for offsets in written.values() for count in offsets.values())
    return Balance(records_in, out, lost, doubled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to the group, from its beginning until the group had been quiet for a while."""

    what: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an event did to the partitions."""

    event: Event
    moved: Mapping[TopicPartition, tuple[str, str]]
    """Partition -> (from, to)."""
    moved_pause_s: float | None
    """The longest pause of a partition that moved; None if none did."""
    unmoved_pause_s: float | None


def effect(event: Event, commits: Commits) -> Effect:
    moved = {}
    for partition, found in sorted(commits.items()):
        before = writer_at(found, event.began_s)
        after = writer_at(found, event.ended_s)
        if before and after and before != after:
            moved[partition] = (before, after)
    pauses = {partition: longest_pause(found, event.began_s, event.ended_s) for partition, found in commits.items()}
    return Effect(
        event=event,
        moved=moved,
        moved_pause_s=max((pause for partition, pause in pauses.items() if partition in moved), default=None),
        unmoved_pause_s=max((pause for partition, pause in pauses.items() if partition not in moved), default=None),
    )


def writer_at(commits: Sequence[Commit], at_s: float) -> str:
    """Who wrote last before this time."""
    return next((commit.writer for commit in reversed(commits) if commit.at_s <= at_s), "")


def longest_pause(commits: Sequence[Commit], began_s: float, ended_s: float) -> float:
    """The longest time between two commits that overlaps with the window."""
    times = [commit.at_s for commit in commits]
    inside = [after - before for before, after in pairwise(times) if after >= began_s and before <= ended_s]
    return max(inside, default=ended_s - began_s)
