"""Maintenance of a state: show what it holds, remove what nobody needs, let a partition start empty.

For each partition the last entries of its chain and all files in them are kept: the state for the next owner, and the
output of the last batches in case it has to be delivered again. Everything else is left over from tasks that died or
lost a race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.layout import is_data_file, is_partition
from holdfast.spark.files.store import Store
from holdfast.spark.state.batch import named_by
from holdfast.spark.state.chain import OUTBOX, Chain
from holdfast.spark.state.opening import partitions_of
from holdfast.spark.state.times import shown


def held(store: Store) -> list[dict[str, Any]]:
    """By partition: its position, the size of its state, and the size of files that nobody needs."""
    return [_held(store, partition) for partition in partitions_of(store)]


def _held(store: Store, partition: TopicPartition) -> dict[str, Any]:
    chain = Chain(store, partition)
    tip = chain.tip()
    there = _files(store, chain)
    referenced = _referenced(chain)
    sizes = {name: store.size(name) or 0 for name in there}
    state = {run.name for run in tip.runs} if tip is not None else set()
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "next_offset": None if tip is None else tip.end,
        "watermark": None if tip is None else shown(tip.watermark),
        "state_rows": 0 if tip is None else sum(run.rows for run in tip.runs),
        "state_bytes": sum(sizes.get(name, 0) for name in state),
        "for_successors": sum(sizes[name] for name in there if name in referenced and name not in state),
        "unnamed": sum(sizes[name] for name in there if name not in referenced),
        "entries": len(chain.numbers()),
        "late_rows": 0 if tip is None else tip.late,
        "last_writer": None if tip is None else tip.writer or None,
    }


@dataclass(frozen=True, slots=True)
class Cleaned:
    files: int
    bytes: int


def clean(store: Store, *, now: float, grace_s: float, dry_run: bool = False) -> Cleaned:
    """Remove files that are in no entry and are older than any batch can be. With `dry_run` only count."""
    files = size = 0
    for partition in partitions_of(store):
        chain = Chain(store, partition)
        referenced = _referenced(chain)
        folders = (chain.runs_folder, chain.entries_folder, _outbox(partition))
        unneeded = [name for name in _files(store, chain) if name not in referenced]
        unneeded += [name for folder in folders for name in store.leftovers(folder)]
        for name in unneeded:
            modified = store.modified(name)
            if modified is not None and modified < now - grace_s:
                files, size = files + 1, size + (store.size(name) or 0)
                if not dry_run:
                    store.remove(name)
    return Cleaned(files, size)


def start_empty(store: Store, partition: TopicPartition) -> int:
    """Delete all state of a partition: its next batch begins with empty state. Returns how many files were removed.

    For state that can't be read, with the applications stopped. Output that was not delivered yet is lost too.
    """
    if partition not in partitions_of(store) and not store.exists(Chain(store, partition).known_name):
        raise HoldfastError(
            "STATE_NO_PARTITION", f"There is no state of {partition} here.", "Name a partition as orders-3."
        )
    chain = Chain(store, partition)
    names = [chain.known_name]  # first, so that a half-deleted chain does not look like lost state
    names += [chain.entry_name(number) for number in reversed(chain.numbers())]
    names += _files(store, chain)
    for name in names:
        store.remove(name)
    return len(names)


def skip_to(store: Store, partition: TopicPartition, offset: int) -> int:
    """Move the state's position to a later offset, because the records in between are gone. Returns the old position.

    The state itself stays as it is. For STATE_BEHIND, with the applications stopped.
    """
    chain = Chain(store, partition)
    tip = chain.tip()
    if tip is None or offset <= tip.end:
        raise HoldfastError(
            "STATE_NO_GAP",
            f"The state of {partition} stands at {None if tip is None else tip.end}, not before {offset}.",
            "Name the offset at which the next batch begins, as STATE_BEHIND told it.",
        )
    chain.extend(lambda now: None if now is None or now.end >= offset else now.next(offset))
    return tip.end


def parse_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not is_partition(number):
        raise HoldfastError("INVALID_OPTION", f"{text!r} is not a partition.", "Write topic and number: orders-3.")
    return TopicPartition(topic, int(number))


def _referenced(chain: Chain) -> set[str]:
    return {
        name for number in chain.numbers() if (entry := chain.entry(number)) is not None for name in named_by(entry)
    }


def _files(store: Store, chain: Chain) -> list[str]:
    """The runs and the output that are there, without what somebody else may have put beside them."""
    outbox = _outbox(chain.partition)
    runs = [f"{chain.runs_folder}/{name}" for name in store.names(chain.runs_folder) if chain.is_run(name)]
    return runs + [f"{outbox}/{name}" for name in store.names(outbox) if is_data_file(name)]


def _outbox(partition: TopicPartition) -> str:
    return f"{OUTBOX}/{partition.topic}/{partition.partition}"
