"""Syncs that fail: what was refused never happens, what was acknowledged is there, whichever sync it was.

One script is run once to count its syncs, then once for each of them with that sync failing (and some with those behind
it). Whatever raised was refused. Then the process is killed, or the machine loses its power, at the end or somewhere
before it; and what is left must be what was told.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from storage_batches import NOW, batch, noise, split, stored
from storage_bench import Clock
from storage_world import Crash, SimFiles

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy
from holdfast.model import ErrorCode

ALWAYS, OS = FlushPolicy.ALWAYS, FlushPolicy.OS


@dataclass
class Told:
    """What the outside world was told. `unsure` names what was under way when the world ended."""

    partitions: dict[str, int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    records: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    start: int = 0
    values: dict[bytes, bytes] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)
    unsure: str = ""
    refused: list[str] = field(default_factory=list)


class Day:
    """A day in the life of a store whose disk fails now and then."""

    def __init__(self, files: SimFiles, flush: FlushPolicy, told: Told) -> None:
        self.files, self.flush, self.told = files, flush, told
        self.clock = Clock()

    def open(self) -> Store:
        numbers = iter(range(self.clock.now, self.clock.now + 1000))
        return Store(
            None,
            files=self.files,
            flush=self.flush,
            clock=self.clock,
            steady=self.clock,
            new_id=lambda: UUID(int=next(numbers)),
        )

    def attempt(self, name: str, what: Callable[[], object], then: Callable[[], object]) -> None:
        self.told.unsure = name
        try:
            what()
        except StorageError:
            self.told.refused.append(name)
        else:
            then()
        self.told.unsure = ""

    def run(self) -> None:
        told, store = self.told, self.open()

        def create(name: str, count: int) -> None:
            self.attempt(name, lambda: store.create_topic(name, count), lambda: told.partitions.update({name: count}))

        def commit(key: bytes, value: bytes) -> None:
            journal = store.journal("groups", compact_min_bytes=400)
            self.attempt("groups", lambda: journal.append([(key, value)]), lambda: told.values.update({key: value}))

        def produce(seed: int) -> None:
            data = batch(records=2, body=noise(seed, 300), time=NOW + seed)

            def then() -> None:
                kept = told.records.setdefault(("orders", seed % 2), {})
                kept[appended[0]] = stored(data, appended[0])

            appended: list[int] = []
            self.attempt(
                "records", lambda: appended.append(store.log("orders", seed % 2).append(data).base_offset), then
            )

        def grow() -> None:
            self.attempt("orders", lambda: store.grow_topic("orders", 4), lambda: told.partitions.update({"orders": 4}))

        def configure() -> None:
            configs = {"segment.bytes": "4096"}
            self.attempt(
                "orders",
                lambda: store.configure_topic("orders", configs),
                lambda: told.configs.update({"orders": configs}),
            )

        def delete(name: str) -> None:
            self.attempt(name, lambda: store.delete_topic(name), lambda: told.partitions.pop(name))

        def delete_records() -> None:
            self.attempt("start", lambda: store.log("orders", 0).delete_records(4), lambda: setattr(told, "start", 4))

        def new_producer() -> None:
            self.attempt("ids", lambda: told.producer_ids.append(store.next_producer_id()), lambda: None)

        def tick() -> None:
            self.clock.now += 40_000
            try:
                store.tick()
            except StorageError:
                told.refused.append("tick")

        create("orders", 2)
        create("doomed", 1)
        create("spare", 1)
        configure()
        for seed in range(8):
            produce(seed)
            commit(b"k%d" % (seed % 3), noise(seed, 60))
        tick()
        grow()
        new_producer()
        delete("doomed")
        delete_records()
        tick()
        for seed in range(8, 16):
            produce(seed)
            commit(b"k%d" % (seed % 3), noise(seed, 60))
        tick()
        delete("spare")
        create("late", 3)
        produce(16)
        commit(b"last", b"1")


def check(
    files: SimFiles,
    flush: FlushPolicy,
    told: Told,
    *,
    records: bool = True,
    values: bool = True,
    strict: bool = True,
) -> None:
    """Open what is left on a disk that is well again, and compare."""
    day = Day(files, flush, Told())
    day.clock.now += 10_000_000
    store = day.open()
    found = {topic.name: topic.partitions for topic in store.topics()}
    expected = dict(told.partitions)
    for counts in (found, expected):
        counts.pop(told.unsure, None)
    assert found == expected if strict else expected.keys() <= found.keys(), f"refused: {told.refused}"
    for name, configs in told.configs.items():
        if name in found:
            topic = store.topic(name)
            assert topic is not None
            assert topic.configs == configs or told.unsure == name
    kept: dict[bytes, bytes | None] = {}
    store.journal("groups").replay(kept.__setitem__)
    if values and told.unsure != "groups":
        assert kept == told.values if strict else told.values.items() <= kept.items()
    if store.topic("orders") is not None and records:
        for (name, partition), batches in told.records.items():
            log = store.log(name, partition)
            if told.unsure != "start" and partition == 0 and strict:
                assert log.log_start_offset == told.start
            for offset, data in batches.items():
                if offset >= log.log_start_offset:
                    assert split(log.read(offset, 1))[0] == data
    assert store.next_producer_id() not in told.producer_ids
    store.create_topic("afterwards", 1)
    assert store.log("afterwards", 0).append(batch()).base_offset == 0
    store.close()


def count_syncs(flush: FlushPolicy) -> int:
    files = SimFiles()
    Day(files, flush, Told()).run()
    return files.syncs


FAILURES: dict[str, Callable[[int], Callable[[int], bool]]] = {
    "one": lambda first: lambda number: number == first,
    "three in a row": lambda first: lambda number: first <= number < first + 3,
    "all from there": lambda first: lambda number: number >= first,
}


@pytest.mark.parametrize("pages", ["dropped", "forgotten", "written"])
@pytest.mark.parametrize("failure", list(FAILURES))
@pytest.mark.parametrize("flush", [OS, ALWAYS], ids=lambda flush: flush.value)
def test_whichever_sync_fails_memory_disk_and_restart_agree_on_what_was_refused(
    flush: FlushPolicy, failure: str, pages: str
) -> None:
    """Symptom: a refused DeleteTopics deleted at the next restart, a refused create came back, a refused grow took
    effect. Cause: the catalog's entry stayed in the file when its sync failed. Invariant: what was refused is not in
    the file, and never comes back; what is acknowledged after a failed sync is in a file that was written anew.
    """
    counted = count_syncs(flush)
    assert counted > 15
    for first in range(counted):
        files, told = SimFiles(), Told()
        files.failed_pages, files.fail_syncs = pages, FAILURES[failure](first)
        try:
            Day(files, flush, told).run()
        except (StorageError, OSError):
            assert told == Told(), "a store that can't be opened on a bad disk"
        check(files.after_kill(), flush, told, records=flush is ALWAYS or pages != "forgotten")
        if pages != "written":
            # A sync that says no and writes all the same, a cut that is never synced, then no power: nobody can know.
            survive, strict = flush is ALWAYS, failure != "all from there"
            for seed in range(2):
                world = files.after_power_cut(random.Random(f"{first}/{seed}"))
                check(world, flush, told, records=survive, values=survive, strict=strict)


@pytest.mark.slow
@pytest.mark.parametrize("flush", [OS, ALWAYS], ids=lambda flush: flush.value)
def test_a_crash_at_any_step_behind_a_failed_sync_loses_nothing_acknowledged(flush: FlushPolicy) -> None:
    steps = SimFiles()
    Day(steps, flush, Told()).run()
    dice = random.Random(11)
    for first in range(count_syncs(flush)):
        for crash_at in dice.sample(range(len(steps.steps)), 25):
            files, told = SimFiles(crash_at=crash_at, tear=dice.choice([None, 0.3, 0.99])), Told()
            files.fail_syncs = FAILURES["one"](first)
            with contextlib.suppress(Crash, StorageError, OSError):
                Day(files, flush, told).run()
            check(files.after_kill(), flush, told)
            if flush is ALWAYS:
                check(files.after_power_cut(random.Random(f"{first}/{crash_at}")), flush, told)


# One file


def open_store(files: SimFiles, clock: Clock, flush: FlushPolicy = ALWAYS) -> Store:
    return Store(None, files=files, clock=clock, steady=clock, flush=flush)


def refused(what: Callable[[], object]) -> ErrorCode:
    with pytest.raises(StorageError) as caught:
        what()
    return caught.value.error


def test_after_a_failed_fsync_nothing_is_acknowledged_until_the_file_was_written_anew() -> None:
    """The trap: the kernel drops the pages that it could not write, and the next fsync of the file succeeds over
    nothing. So the file is copied, with every checksum looked at, and only the copy counts.
    """
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    store.create_topic("orders", 1)
    log = store.log("orders", 0)
    log.append(batch(body=b"before"))
    files.fail_fsync = True
    data = batch(producer=1, epoch=0, sequence=0)
    assert refused(lambda: log.append(data)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(store.tick) == ErrorCode.KAFKA_STORAGE_ERROR, "writing it anew fails too"
    files.fail_fsync = False

    assert refused(lambda: log.append(data)) == ErrorCode.KAFKA_STORAGE_ERROR, "a retry is not told that it is safe"
    assert refused(lambda: log.append(batch(body=b"other"))) == ErrorCode.KAFKA_STORAGE_ERROR
    clock.now += 1000
    store.tick()
    again = log.append(data)
    assert (again.base_offset, again.duplicate) == (1, True), "it is in the new file"
    assert log.append(batch(body=b"other")).base_offset == 2

    after = open_store(files.after_power_cut(random.Random(1)), clock).log("orders", 0)
    assert split(after.read(0, 1000)) == [
        stored(batch(body=b"before"), 0),
        stored(data, 1),
        stored(batch(body=b"other"), 2),
    ]


def test_a_file_whose_pages_are_gone_goes_on_at_what_is_left_and_says_so() -> None:
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    store.create_topic("orders", 1)
    store.log("orders", 0).append(batch(body=b"before"))
    files.fail_fsync, files.failed_pages = True, "forgotten"
    data = batch(producer=1, epoch=0, sequence=0)
    assert refused(lambda: store.log("orders", 0).append(data)) == ErrorCode.KAFKA_STORAGE_ERROR
    files.fail_fsync = False
    store.tick()

    appended = store.log("orders", 0).append(data)
    assert (appended.base_offset, appended.duplicate) == (1, False), "it was refused, and it is not there"
    assert split(store.log("orders", 0).read(0, 1000)) == [stored(batch(body=b"before"), 0), stored(data, 1)]


def test_an_append_that_came_before_the_failure_was_known_is_not_acknowledged_by_the_next_sync() -> None:
    """Symptom: under --flush always a record was acknowledged and lost. Cause: it was written while a sync was under
    way that then failed; the next sync of the file succeeded, since the kernel had dropped both records' pages.
    """
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    store.create_topic("orders", 2)
    for partition in (0, 1):
        store.log("orders", partition).append(batch())
    store.log("orders", 0).append(batch(), commit=False)
    first = store.take_sync()
    store.log("orders", 0).append(batch(), commit=False)
    store.log("orders", 1).append(batch(), commit=False)
    assert first is not None
    files.fail_fsync = True
    assert store.finish_sync(first.run())
    files.fail_fsync = False
    second = store.take_sync()
    assert second is not None
    failures = store.finish_sync(second.run())
    paths = files.paths(".log")
    assert failures.of(paths[0]) is not None
    assert failures.of(paths[1]) is None, "the other file is as good as before"


def test_a_folder_that_can_not_be_synced_holds_everything_up_until_it_can() -> None:
    """A new segment whose name is not on disk is lost in a power cut with all that was acknowledged in it."""
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    store.create_topic("orders", 1)
    files.fail_syncs = lambda number: files.steps[-1][0] == "fsync_dir"
    log = store.log("orders", 0)
    assert refused(lambda: log.append(batch(body=b"one"))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(lambda: log.append(batch(body=b"two"))) == ErrorCode.KAFKA_STORAGE_ERROR
    files.fail_syncs = lambda number: False
    end = log.append(batch(body=b"three")).base_offset
    after = open_store(files.after_power_cut(random.Random(2)), clock).log("orders", 0)
    assert split(after.read(end, 1000)) == [stored(batch(body=b"three"), end)]


def test_a_batch_found_after_a_kill_is_synced_before_its_repetition_is_acknowledged() -> None:
    """Symptom: under --flush always an acknowledged record was lost in a power cut. Cause: the process was killed
    between write and sync; after the restart the producer repeated the batch, and was told that it was there.
    """
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    store.create_topic("orders", 1)
    data = batch(producer=1, epoch=0, sequence=0)
    store.log("orders", 0).append(data, commit=False)
    killed = files.after_kill()
    again = open_store(killed, clock)
    assert again.log("orders", 0).append(data).duplicate
    again.commit()
    after = open_store(killed.after_power_cut(random.Random(3)), clock).log("orders", 0)
    assert split(after.read(0, 1000)) == [stored(data, 0)]


def test_a_journal_s_entry_that_could_not_be_cut_off_is_cut_before_anything_else() -> None:
    """The disk refuses the sync and the cut as well. What was refused stays refused, also for a broker that is stopped
    and started once the disk is well again.
    """
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock)
    journal = store.journal("groups")
    journal.append([(b"a", b"1")])
    files.fail_fsync = True
    files.refuse_to_truncate = True
    assert refused(lambda: journal.append([(b"b", b"2")])) == ErrorCode.KAFKA_STORAGE_ERROR
    journal.take_back()
    seen: dict[bytes, bytes | None] = {}
    files.fail_fsync = False
    journal.replay(seen.__setitem__)
    assert seen == {b"a": b"1"}
    files.refuse_to_truncate = False
    store.close()
    open_store(files.after_kill(), clock).journal("groups").replay(seen.__setitem__)
    assert seen == {b"a": b"1"}


def test_an_entry_that_changed_on_disk_is_not_copied_as_if_it_were_sound() -> None:
    files, clock = SimFiles(), Clock()
    store = open_store(files, clock, OS)
    journal = store.journal("groups")
    journal.append([(b"a", b"first value")])
    journal.append([(b"b", b"second value")])
    (path,) = [path for path in files.paths(".journal") if "groups" in path]
    at = files.now[path].now.index(b"second value")
    files.flip(path, 8 * at)
    journal.compact()
    seen: dict[bytes, bytes | None] = {}
    journal.replay(seen.__setitem__)
    assert seen == {b"a": b"first value"}
    assert ["changed on disk" in str(each) for each in store.recoveries] == [True]
