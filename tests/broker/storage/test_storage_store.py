"""The store: topics, properties, journals, locks, and thousands of partitions that cost nothing until used."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from storage_batches import NOW, batch, noise, stored
from storage_bench import Clock
from storage_world import SimFiles

from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.files import RealFiles
from holdfast.broker.storage.producer_ids import BLOCK
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy
from holdfast.model import ErrorCode, HoldfastError, TopicPartition


def open_sim(files: SimFiles, *, clock: Clock | None = None, flush: FlushPolicy = FlushPolicy.OS) -> Store:
    return Store(
        None, files=files, clock=clock or Clock(), steady=clock or Clock(), flush=flush, retention_check_ms=1000
    )


def code(error: pytest.ExceptionInfo[StorageError]) -> ErrorCode:
    return error.value.error


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    opened = Store(tmp_path / "data" if request.param == "disk" else None, clock=Clock())
    request.addfinalizer(opened.close)
    return opened


def test_a_topic_is_created_found_grown_configured_and_deleted(store: Store) -> None:
    topic = store.create_topic("orders", 2, configs={"retention.ms": "1000"}, replicas=[[0, 1], [1, 2]])
    assert store.topic("orders") == store.topic_by_id(topic.topic_id) == topic
    store.log("orders", 1).append(batch())
    grown = store.grow_topic("orders", 3, replicas=[[2]])
    assert grown.replicas == ((0, 1), (1, 2), (2,))
    assert grown.topic_id == topic.topic_id
    assert store.log("orders", 2).append(batch()).base_offset == 0
    store.configure_topic("orders", {"max.message.bytes": "70"})
    assert store.log("orders", 1).config.retention_ms == 7 * 86_400_000, "what is not named goes back to its default"
    with pytest.raises(StorageError) as caught:
        store.log("orders", 1).append(batch())
    assert code(caught) == ErrorCode.MESSAGE_TOO_LARGE
    store.delete_topic("orders")
    assert store.topics() == []
    for lost in (lambda: store.log("orders", 1), lambda: store.log_of(topic, 1), lambda: store.delete_topic("orders")):
        with pytest.raises(StorageError) as caught:
            lost()
        assert code(caught) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_created_again_starts_empty_with_another_id(store: Store) -> None:
    first = store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    store.delete_topic("orders")
    second = store.create_topic("orders", 1)
    assert second.topic_id != first.topic_id
    assert store.log("orders", 0).log_end_offset == 0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "a\0", "x" * 250, "../../etc/passwd", "a:b", "a*"]
)
def test_a_name_that_is_not_a_topics_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StorageError) as caught:
        store.create_topic(name, 1)
    assert code(caught) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert store.topics() == []


@pytest.mark.parametrize("name", ["a", "...", "a.b_c-D9", "x" * 249])
def test_a_name_that_kafka_takes_is_taken(store: Store, name: str) -> None:
    assert store.create_topic(name, 1).name == name


def test_what_can_not_be_created_is_refused_with_kafkas_code(store: Store) -> None:
    store.create_topic("orders", 2)
    refusals: dict[ErrorCode, Callable[[], object]] = {
        ErrorCode.TOPIC_ALREADY_EXISTS: lambda: store.create_topic("orders", 1),
        ErrorCode.INVALID_PARTITIONS: lambda: store.create_topic("other", 0),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: lambda: store.create_topic("other", 2, replicas=[[0]]),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: lambda: store.grow_topic("other", 3),
    }
    for expected, attempt in refusals.items():
        with pytest.raises(StorageError) as caught:
            attempt()
        assert code(caught) == expected
    for count in (0, 1, 2, 10_001):
        with pytest.raises(StorageError) as caught:
            store.grow_topic("orders", count)
        assert code(caught) == ErrorCode.INVALID_PARTITIONS
    for configs in (
        {"cleanup.policy": "compact"},
        {"retention.ms": "soon"},
        {"segment.bytes": "5"},
        {"no.such.thing": "1"},
        {"min.insync.replicas": "2"},
    ):
        with pytest.raises(StorageError) as caught:
            store.create_topic("other", 1, configs=configs)
        assert code(caught) == ErrorCode.INVALID_CONFIG
        with pytest.raises(StorageError):
            store.configure_topic("orders", configs)
    assert [topic.name for topic in store.topics()] == ["orders"]
    assert store.topics()[0].configs == {}


def test_validating_only_checks_everything_and_changes_nothing(store: Store) -> None:
    store.create_topic("orders", 1)
    store.create_topic("other", 5, validate_only=True)
    store.grow_topic("orders", 5, validate_only=True)
    store.configure_topic("orders", {"retention.ms": "1"}, validate_only=True)
    (topic,) = store.topics()
    assert (topic.name, topic.partitions, topic.configs) == ("orders", 1, {})


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_everything_is_there_after_a_restart(end: str) -> None:
    files = SimFiles()
    store = open_sim(files)
    topic = store.create_topic("orders", 3, configs={"segment.bytes": "4096"}, replicas=[[0], [1], [0, 1]])
    store.grow_topic("orders", 4, replicas=[[1]])
    store.log("orders", 2).append(batch(body=b"kept"))
    store.journal("groups").append([(b"k", b"v")])
    cluster, producer = store.cluster_id, store.next_producer_id()
    if end == "closed":
        store.close()
    again = open_sim(files.after_kill())
    (found,) = again.topics()
    assert found.topic_id == topic.topic_id
    assert (found.partitions, found.configs, found.replicas) == (
        4,
        {"segment.bytes": "4096"},
        ((0,), (1,), (0, 1), (1,)),
    )
    assert again.log("orders", 2).read(0, 1000) == stored(batch(body=b"kept"), 0)
    values: dict[bytes, bytes | None] = {}
    again.journal("groups").replay(values.__setitem__)
    assert values == {b"k": b"v"}
    assert again.cluster_id == cluster
    assert again.next_producer_id() == producer + BLOCK
    assert again.recoveries == []


def test_producer_ids_are_never_given_twice() -> None:
    files = SimFiles()
    seen: list[int] = []
    for _ in range(3):
        store = open_sim(files)
        seen += [store.next_producer_id() for _ in range(BLOCK + 5)]
    assert len(set(seen)) == len(seen)


def test_thousands_of_partitions_open_with_a_handful_of_operations() -> None:
    files = SimFiles()
    store = open_sim(files)
    for number in range(5):
        store.create_topic(f"topic{number}", 2000)
    for number in range(5):
        for partition in range(0, 2000, 100):
            store.log(f"topic{number}", partition).append(batch())
    store.close()
    files = files.after_kill()
    again = open_sim(files)
    assert files.calls + files.reads < 25, "only the catalog is read; partitions open on first use"
    assert again.open_partitions() == []
    assert again.log("topic3", 500).log_end_offset == 1
    assert again.log("topic3", 501).log_end_offset == 0
    assert again.open_partitions() == [TopicPartition("topic3", 500), TopicPartition("topic3", 501)]


def test_after_a_crash_the_partitions_with_data_are_repaired_at_once_and_reported() -> None:
    files = SimFiles()
    store = open_sim(files)
    store.create_topic("orders", 2000)
    for partition in (5, 900):
        store.log("orders", partition).append(batch())
    after = files.after_kill()
    for path in after.paths(".log"):
        after.now[path].now += b"torn"
    again = open_sim(after)
    assert after.calls < 60, "those without data are not looked at"
    assert [(report.partition, report.cut_bytes) for report in again.recoveries] == [(5, 4), (900, 4)]


def test_repairs_found_later_reach_the_listener() -> None:
    files = SimFiles()
    store = open_sim(files)
    store.create_topic("orders", 1)
    for number in range(5):
        store.log("orders", 0).append(batch(body=noise(number, 100)))
    store.close()
    files.flip(files.paths(".log")[0], 8 * 200)
    again = open_sim(files)
    heard: list[Recovery] = []
    again.on_recovery = heard.append
    assert again.recoveries == []
    again.log("orders", 0).read(0, 1)
    assert [report.first_offset for report in heard] == [1]
    assert again.recoveries == heard


def test_only_a_bounded_number_of_files_is_open(tmp_path: Path) -> None:
    with Store(tmp_path, clock=Clock(), max_open_files=10) as store:
        store.create_topic("orders", 100)
        for turn in range(2):
            for partition in range(100):
                assert store.log("orders", partition).append(batch()).base_offset == turn
        mine = [Path(link).resolve() for link in Path("/proc/self/fd").iterdir() if link.exists()]
        assert len([path for path in mine if path.suffix == ".log" and path.is_relative_to(tmp_path)]) <= 10
        assert all(len(store.log("orders", partition).read(0, 1000)) == 2 * len(batch()) for partition in range(100))


def test_a_slice_stays_readable_after_its_file_was_let_go_and_its_topic_deleted(tmp_path: Path) -> None:
    with Store(tmp_path, clock=Clock(), max_open_files=2) as store:
        store.create_topic("orders", 5)
        store.log("orders", 0).append(batch(body=b"still here"))
        piece = store.log("orders", 0).slice(0, 1000)
        assert piece is not None
        for partition in range(1, 5):
            store.log("orders", partition).append(batch())
        store.delete_topic("orders")
        number = piece.fileno()
        assert number is not None
        assert os.pread(number, piece.count, piece.position) == piece.read() == stored(batch(body=b"still here"), 0)


def test_two_brokers_can_not_share_a_folder_and_the_second_is_told_what_to_do(tmp_path: Path) -> None:
    first = Store(tmp_path)
    with pytest.raises(HoldfastError, match=rf"in use by another broker \(process {os.getpid()}\).*another --data"):
        Store(tmp_path)
    first.close()
    Store(tmp_path).close()


def test_files_are_for_the_owner_only_and_named_by_topic_id(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = Store(tmp_path / "data", clock=Clock())
        topic = store.create_topic("orders", 1)
        store.log("orders", 0).append(batch())
        store.journal("groups").append([(b"k", b"v")])
        store.close()
    finally:
        os.umask(old)
    everything = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    for path in everything:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
        assert "orders" not in path.name
    assert (tmp_path / "data/topics" / topic.topic_id.hex / "0").is_dir()


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    store = Store(tmp_path / "data", clock=Clock())
    topic = store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    store.close()
    (segment,) = (tmp_path / "data/topics" / topic.topic_id.hex / "0").glob("*.log")
    outside = tmp_path / "outside"
    outside.write_bytes(segment.read_bytes())
    segment.unlink()
    segment.symlink_to(outside)
    with Store(tmp_path / "data", clock=Clock()) as again, pytest.raises(StorageError):
        again.log("orders", 0)
    (tmp_path / "data/clean").unlink()
    with Store(tmp_path / "data", clock=Clock()) as again:
        told = again.recoveries[0]
        assert str(told).startswith("orders-0 can't be opened: "), "and it does not keep the others from being served"
        assert told.kind == "unusable", "nothing is known to be damaged in it"


def test_a_deletion_that_was_interrupted_is_finished_on_the_next_start() -> None:
    files = SimFiles()
    store = open_sim(files)
    topic = store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    store.log("orders", 0).close()
    files.crash_at = len(files.steps) + 3
    with pytest.raises(BaseException, match="unlink"):
        store.delete_topic("orders")
    after = files.after_kill()
    assert any(topic.topic_id.hex in path for path in after.now)
    again = open_sim(after)
    assert again.topics() == []
    assert not any(topic.topic_id.hex in path for path in (*after.now, *after.folders))
    again.close()
    assert open_sim(after).topics() == []


def test_a_large_topic_is_forgotten_at_once_and_its_files_go_with_the_ticks() -> None:
    files = SimFiles()
    store = open_sim(files)
    store.create_topic("large", 200)
    for partition in range(200):
        store.log("large", partition).append(batch())
    store.delete_topic("large")
    store.create_topic("large", 1)
    left = [len(files.paths(".log"))]
    while left[-1]:
        store.tick()
        left.append(len(files.paths(".log")))
    assert left == [136, 72, 8, 0]
    store.close()
    assert [topic.partitions for topic in open_sim(files).topics()] == [1]


def test_one_partition_that_fails_does_not_keep_the_others_from_retention() -> None:
    files, clock = SimFiles(), Clock()
    store = open_sim(files, clock=clock)
    store.create_topic("orders", 3, configs={"retention.ms": "5000"})
    for partition in range(3):
        store.log("orders", partition).append(batch())
    store.close()
    store = open_sim(files, clock=clock)
    files.refuse_to_open.add(files.paths(".log")[0])
    clock.now += 6000
    with pytest.raises(StorageError):
        store.tick()
    assert [store.log("orders", partition).log_start_offset for partition in (1, 2)] == [1, 1]


def test_folders_nobody_knows_are_left_alone() -> None:
    """Symptom: a lost catalog took all data with it. Cause: folders without an entry were swept on start. Invariant:
    data is removed only when the catalog says that its topic was deleted.
    """
    files = SimFiles()
    store = open_sim(files)
    store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    store.close()
    for path in files.paths(".journal"):
        files.unlink(path)
    again = open_sim(files)
    assert again.topics() == []
    assert len(files.paths(".log")) == 1


def test_ticks_apply_retention_and_compact_journals() -> None:
    files, clock = SimFiles(), Clock()
    store = open_sim(files, clock=clock)
    store.create_topic("orders", 200, configs={"retention.ms": "5000"})
    for partition in range(200):
        store.log("orders", partition).append(batch())
    journal = store.journal("groups", compact_min_bytes=500)
    for number in range(50):
        journal.append([(b"k", noise(number, 30))])
    size = journal.size
    store.tick()
    assert journal.size < size
    clock.now += 6000
    ticks = 0
    while any(store.log("orders", partition).log_start_offset == 0 for partition in range(200)):
        store.tick()
        ticks += 1
    assert ticks == 4, "64 partitions each time, so that the loop is never held up for long"
    store.close()


def test_the_interval_policy_syncs_when_its_time_has_come_and_always_syncs_before_the_answer() -> None:
    def syncs(files: SimFiles) -> int:
        return sum(kind == "fsync" and path.endswith(".log") for kind, path in files.steps)

    files, clock = SimFiles(), Clock()
    store = Store(None, files=files, clock=clock, steady=clock, flush=FlushPolicy.INTERVAL, flush_interval_ms=100)
    store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    store.tick()
    assert syncs(files) == 0
    clock.now += 100
    store.tick()
    assert syncs(files) == 1
    store.tick()
    clock.now += 100
    store.tick()
    assert syncs(files) == 1, "nothing new to sync"

    files = SimFiles()
    store = open_sim(files, flush=FlushPolicy.ALWAYS)
    store.create_topic("orders", 2)
    store.log("orders", 0).append(batch())
    assert syncs(files) == 1
    for _ in range(10):
        store.log("orders", 0).append(batch(), commit=False)
        store.log("orders", 1).append(batch(), commit=False)
    assert syncs(files) == 1
    store.commit()
    assert syncs(files) == 3, "one for each file, however many appends"
    store.log("orders", 0).append(batch(), commit=False)
    taken = store.take_sync()
    assert taken is not None
    store.log("orders", 1).append(batch(), commit=False)
    store.finish_sync(taken.run())
    assert syncs(files) == 4
    assert store.take_sync() is not None, "what came meanwhile waits for the next round"


def test_a_clean_stop_forces_everything_to_disk_under_any_policy() -> None:
    files = SimFiles()
    store = open_sim(files)
    store.create_topic("orders", 2)
    kept = [stored(batch(body=noise(number, 50)), number) for number in range(5)]
    for number in range(5):
        store.log("orders", 1).append(batch(body=noise(number, 50)))
    store.journal("groups").append([(b"k", b"v")])
    store.close()
    for seed in range(20):
        after = open_sim(files.after_power_cut(random.Random(seed)))
        assert after.log("orders", 1).read(0, 10_000) == b"".join(kept)
        values: dict[bytes, bytes | None] = {}
        after.journal("groups").replay(values.__setitem__)
        assert values == {b"k": b"v"}


def test_after_a_power_cut_nobody_believes_that_the_last_stop_was_in_order() -> None:
    files = SimFiles()
    open_sim(files).close()
    store = open_sim(files)
    store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    for seed in range(10):
        after = files.after_power_cut(random.Random(seed))
        open_sim(after)
        assert ("unlink", "clean") not in after.steps


def test_ids_come_from_the_caller_when_it_wants_them() -> None:
    numbers = iter(range(1, 10))
    store = Store(None, clock=lambda: NOW, new_id=lambda: UUID(int=next(numbers)))
    assert store.cluster_id == UUID(int=1)
    assert store.create_topic("orders", 1).topic_id == UUID(int=2)


def test_a_store_that_can_not_be_closed_in_order_does_not_say_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RealFiles, path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path, clock=Clock())
    store.create_topic("orders", 1)
    store.log("orders", 0).append(batch())
    with monkeypatch.context() as patched:
        patched.setattr(RealFiles, "fsync_dir", full)
        with pytest.raises(StorageError, match=r"not be closed in order: .*No space left") as caught:
            store.close()
    assert "the next start" in caught.value.do and "goes on by itself" not in caught.value.do
    with Store(tmp_path, clock=Clock()) as again:
        assert again.log("orders", 0).log_end_offset == 1
