"""Death at every operation: what was acknowledged is there afterwards, and opening never fails.

One script is run once to count its operations, then once for each of them with the world ending there: before the
operation, or half-way through a write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from storage_batches import NOW, batch, noise, split, stored
from storage_world import Crash, SimFiles

from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy

SEGMENTS = {"segment.bytes": "4096"}
TEARS = (None, 0.0, 0.3, 0.99, 1.0)


@dataclass
class Acknowledged:
    """What the outside world was told."""

    topics: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    records: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    values: dict[bytes, bytes | None] = field(default_factory=dict)
    pending: dict[bytes, bytes | None] = field(default_factory=dict)
    """Being written when the world ended: may be there or not."""
    producer_ids: list[int] = field(default_factory=list)
    removed: bool = False


def open_store(files: SimFiles, flush: FlushPolicy, now: int = NOW) -> Store:
    numbers = iter(range(1, 1000))
    return Store(None, files=files, flush=flush, clock=lambda: now, new_id=lambda: UUID(int=next(numbers)))


def write(store: Store, told: Acknowledged, seed: int) -> None:
    topic, partition = "orders", seed % 2
    data = batch(records=1 + seed % 3, body=noise(seed, 300 + 97 * (seed % 7)), time=NOW - 50 + seed)
    appended = store.log(topic, partition).append(data)
    told.records.setdefault((topic, partition), {})[appended.base_offset] = stored(data, appended.base_offset)


def commit(store: Store, told: Acknowledged, entries: dict[bytes, bytes | None]) -> None:
    told.pending = entries
    store.journal("groups", compact_min_bytes=600).append(list(entries.items()))
    told.values |= entries
    told.pending = {}


def script(files: SimFiles, flush: FlushPolicy, told: Acknowledged) -> None:
    """A day in the life of a store: create, append over several segments, commit, compact, delete, close, go on."""
    store = open_store(files, flush)
    store.create_topic("orders", 2, configs=SEGMENTS)
    told.topics.add("orders")
    store.create_topic("doomed", 1)
    store.log("doomed", 0).append(batch())
    for seed in range(14):
        write(store, told, seed)
        commit(store, told, {f"g{seed % 4}".encode(): noise(seed, 40), f"m{seed}".encode(): b"x"})
        commit(store, told, {f"m{seed - 1}".encode(): None})
        if seed == 6:
            store.tick()
    told.producer_ids.append(store.next_producer_id())
    told.removed = True
    store.delete_topic("doomed")
    told.deleted.add("doomed")
    start = store.log("orders", 0).log_start_offset
    told.starts["orders", 0] = max(start, store.log("orders", 0).delete_records(7))
    store.close()
    store = open_store(files, flush)
    store.journal("groups").replay()
    store.journal("groups").compact()
    for seed in range(14, 24):
        write(store, told, seed)
    store.close()


def count_steps(flush: FlushPolicy) -> int:
    files = SimFiles()
    script(files, flush, Acknowledged())
    return len(files.steps)


def check(files: SimFiles, flush: FlushPolicy, told: Acknowledged) -> None:
    """Open what is left and compare it with what was acknowledged; then go on working with it."""
    store = open_store(files, flush, NOW + 1000)
    names = {topic.name for topic in store.topics()}
    assert told.topics <= names
    assert not told.deleted & names
    values: dict[bytes, bytes | None] = {}
    store.journal("groups").replay(values.__setitem__)
    for key, value in told.values.items():
        allowed = {value, told.pending.get(key, value)}
        assert values.get(key) in allowed
    if told.pending:
        seen = {values.get(key) == value for key, value in told.pending.items()}
        assert len(seen) == 1, "an append is all or nothing"
    for (topic, partition), records in told.records.items():
        check_log(store, topic, partition, records, told.starts.get((topic, partition), 0))
    assert store.next_producer_id() not in told.producer_ids
    assert all(each.cut_bytes > 0 and each.damaged_bytes == 0 for each in store.recoveries)
    if "orders" in names:
        end = store.log("orders", 1).log_end_offset
        assert store.log("orders", 1).append(batch(body=b"afterwards")).base_offset == end
        assert store.log("orders", 1).read(end, 1) == stored(batch(body=b"afterwards"), end)
    store.close()


def check_log(store: Store, topic: str, partition: int, records: dict[int, bytes], start: int) -> None:
    log = store.log(topic, partition)
    assert log.log_start_offset >= start
    for offset, data in records.items():
        if offset >= log.log_start_offset:
            assert split(log.read(offset, 1))[0] == data
    assert log.log_start_offset in (0, start, 7)


@pytest.mark.parametrize("tear", TEARS)
def test_a_process_killed_at_any_operation_loses_nothing_acknowledged(tear: float | None) -> None:
    steps = count_steps(FlushPolicy.OS)
    assert steps > 100
    for crash_at in range(steps):
        files, told = SimFiles(crash_at=crash_at, tear=tear), Acknowledged()
        with pytest.raises(Crash):
            script(files, FlushPolicy.OS, told)
        check(files.after_kill(), FlushPolicy.OS, told)


def each_power_cut(flush: FlushPolicy, seeds: int, then: Callable[[SimFiles, Acknowledged], None]) -> None:
    for crash_at in range(count_steps(flush)):
        files, told = SimFiles(crash_at=crash_at, tear=0.5), Acknowledged()
        with pytest.raises(Crash):
            script(files, flush, told)
        for seed in range(seeds):
            then(files.after_power_cut(random.Random(f"{crash_at}/{seed}")), told)


@pytest.mark.slow
def test_a_machine_that_dies_at_any_operation_loses_nothing_acknowledged_under_flush_always() -> None:
    each_power_cut(FlushPolicy.ALWAYS, 3, lambda files, told: check(files, FlushPolicy.ALWAYS, told))


def test_a_machine_that_dies_under_the_default_policy_still_opens_and_serves_what_is_whole() -> None:
    def serves(files: SimFiles, told: Acknowledged) -> None:
        store = open_store(files, FlushPolicy.OS, NOW + 1000)
        assert told.topics <= {topic.name for topic in store.topics()}, "the catalog is always forced to disk"
        store.journal("groups").replay()
        for topic, partition in told.records:
            log = store.log(topic, partition)
            end = log.append(batch(body=b"afterwards")).base_offset
            assert split(log.read(end, 1)) == [stored(batch(body=b"afterwards"), end)]
        store.close()

    each_power_cut(FlushPolicy.OS, 3, serves)


def test_a_crash_while_recovering_from_a_crash_loses_nothing_either() -> None:
    files, told = SimFiles(crash_at=count_steps(FlushPolicy.OS) // 2, tear=0.5), Acknowledged()
    with pytest.raises(Crash):
        script(files, FlushPolicy.OS, told)
    probe = files.after_kill()
    check(probe, FlushPolicy.OS, told)
    for crash_at in range(len(probe.steps)):
        again = files.after_kill()
        again.crash_at, again.tear = crash_at, 0.5
        with pytest.raises(Crash):
            check(again, FlushPolicy.OS, told)
        check(again.after_kill(), FlushPolicy.OS, told)
