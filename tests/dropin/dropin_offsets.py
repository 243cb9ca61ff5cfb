"""How a program keeps its offsets: the first of the three things that are crossed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck
from dropin_run import COMMIT_S, Run

Each = Callable[[Run, ck.Message], None]
Batch = Callable[[Run], None]


def _never(run: Run, message: ck.Message) -> None:
    """Nothing is to be done record by record."""


def _show_commits(run: Run) -> None:
    run.note_committed()


def _nothing(run: Run) -> None:
    """What is committed by now depends on the clock: only the end is looked at."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """One way. `each` is called with every record, `batch` when a batch is done: it commits and notes what is there."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    each: Each = _never
    batch: Batch = _show_commits
    by_hand: bool = False
    """The partitions are assigned by hand and there is no subscription."""


def positions(run: Run, *, metadata: str = "", epoch: int | None = None) -> list[ck.TopicPartition]:
    """Behind the last record of each partition."""
    return [
        ck.TopicPartition(topic, number, offset + 1, metadata, epoch)
        if epoch is not None
        else ck.TopicPartition(topic, number, offset + 1, metadata)
        for (topic, number), offset in sorted(run.last.items())
    ]


def _until_committed(run: Run) -> None:
    """Poll until the automatic commit has come."""
    wanted = {partition: offset + 1 for partition, offset in run.last.items()}

    def committed() -> bool:
        found = run.world.committed()
        return all(found.get(partition, (None,))[0] == offset for partition, offset in wanted.items())

    run.until(committed, "an automatic commit", COMMIT_S)
    run.note_committed()


def _commit(run: Run) -> None:
    run.call("commit()", lambda: run.consumer.commit(asynchronous=False))
    run.note_committed()


def _commit_later(run: Run) -> None:
    run.call("commit()", lambda: run.consumer.commit(asynchronous=True))
    _until_committed(run)


def _commit_message(run: Run, message: ck.Message) -> None:
    run.consumer.commit(message=message, asynchronous=False)


def _commit_offsets(run: Run) -> None:
    offsets = positions(run, metadata="by clerk 7")
    run.call("commit(offsets)", lambda: run.consumer.commit(offsets=offsets, asynchronous=False))
    run.note_committed()


def _store(run: Run, message: ck.Message) -> None:
    run.consumer.store_offsets(message=message)


def _store_with_metadata(run: Run) -> None:
    run.call("store_offsets", lambda: run.consumer.store_offsets(offsets=positions(run, metadata="by clerk 7")))
    _until_committed(run)


MANUAL = {"enable.auto.commit": False}
SHORT = {"auto.commit.interval.ms": 100}
STORED = {"enable.auto.offset.store": False}

KEEPINGS = {
    each.name: each
    for each in (
        Keeping("auto", batch=_nothing),
        Keeping("auto-short", SHORT, batch=_until_committed),
        Keeping("auto-zero", {"auto.commit.interval.ms": 0}),
        Keeping("auto-long", {"auto.commit.interval.ms": 600_000}),
        Keeping("none", MANUAL),
        Keeping("sync", MANUAL, batch=_commit),
        Keeping("async", MANUAL, batch=_commit_later),
        Keeping("message", MANUAL, each=_commit_message),
        Keeping("metadata", MANUAL, batch=_commit_offsets),
        Keeping("stored", STORED | SHORT, each=_store, batch=_until_committed),
        Keeping("stored-metadata", STORED | SHORT, batch=_store_with_metadata),
        Keeping("stored-sync", STORED | MANUAL, each=_store, batch=_commit),
        Keeping("hand-auto", SHORT, batch=_until_committed, by_hand=True),
        Keeping("hand-long", {"auto.commit.interval.ms": 600_000}, by_hand=True),
        Keeping("hand-sync", MANUAL, batch=_commit, by_hand=True),
        Keeping("hand-stored", STORED | SHORT, each=_store, batch=_until_committed, by_hand=True),
    )
}
