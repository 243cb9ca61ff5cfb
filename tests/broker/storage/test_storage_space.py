"""Files that nothing needs any more, removed by somebody else's thread: what others see, and what a crash leaves."""

from __future__ import annotations

import contextlib

import pytest
from storage_batches import NOW, batch, noise
from storage_bench import Clock, fill
from storage_world import Crash, SimFiles

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sweep import TopicRemoval
from holdfast.broker.storage.work import run_here

CONFIGS = {"segment.bytes": "4096", "retention.ms": "-1"}


def lazy(files: SimFiles, clock: Clock | None = None) -> Store:
    """A store whose files are removed by whoever takes what is to be removed."""
    clock = clock or Clock()
    store = Store(None, files=files, clock=clock, steady=clock, retention_check_ms=1)
    store.space.remove_later()
    return store


def log_of(store: Store, *, segments: int, **configs: str) -> Log:
    """A log with as many segments, an offset in each."""
    store.create_topic("orders", 1, configs=CONFIGS | configs)
    log = store.log("orders", 0)
    for number in range(segments):
        log.append(batch(body=noise(number, 4_000), time=NOW + number))
    return log


def remove_all(store: Store) -> None:
    while (removal := store.space.take()) is not None:
        store.space.finish(removal.run())


def bases(files: SimFiles) -> list[int]:
    return [int(path.rpartition("/")[2].removesuffix(".log")) for path in files.paths(".log")]


def test_deleted_records_are_gone_at_once_and_their_files_when_they_were_taken() -> None:
    files = SimFiles()
    store = lazy(files)
    log = log_of(store, segments=6)
    piece = log.slice(1, 10_000)
    assert log.delete_records(4) == 4
    with pytest.raises(StorageError, match="not in 4 to 6"):
        log.slice(3, 10)
    assert bases(files) == [0, 1, 2, 3, 4, 5]
    removal = store.space.take()
    assert removal is not None
    assert store.space.take() is None, "one share at a time"
    log.append(batch(body=noise(6, 4_000)))
    assert log.delete_records(5) == 5, "more may come while it is removed"
    store.space.finish(removal.run())
    assert bases(files) == [4, 5, 6]
    remove_all(store)
    assert bases(files) == [5, 6]
    assert log.read(5, 1) != b""
    assert piece is not None
    assert piece.read(), "a slice that is being sent stays readable"


@pytest.mark.parametrize("crash_at", range(9))
def test_a_kill_in_the_middle_of_a_removal_leaves_no_gap(crash_at: int) -> None:
    """Segments go oldest first, so that what is left is whole; and what DeleteRecords deleted does not come back."""
    files = SimFiles()
    store = lazy(files)
    log_of(store, segments=6).delete_records(4)
    removal = store.space.take()
    assert removal is not None
    files.crash_at = len(files.steps) + crash_at
    with contextlib.suppress(Crash):
        removal.run()
    left = files.after_kill()
    again = lazy(left)
    log = again.log("orders", 0)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert again.recoveries == []
    run_here(log.retention())
    remove_all(again)
    assert bases(left) == [4, 5]


def test_a_segment_that_can_not_be_removed_is_tried_again_and_keeps_nobody_waiting() -> None:
    files = SimFiles()
    store = lazy(files)
    log_of(store, segments=4).delete_records(3)
    store.create_topic("other", 1)
    store.log("other", 0).append(batch())
    topic = store.topic("other")
    assert topic is not None
    store.delete_topic("other")
    files.refuse_to_unlink = True
    removal = store.space.take()
    assert removal is not None
    with pytest.raises(StorageError, match="Deleting old segments"):
        store.space.finish(removal.run())
    assert store.log("orders", 0).log_start_offset == 3
    assert isinstance(store.space.take(), TopicRemoval), "the other one has its turn"
    files.refuse_to_unlink = False
    store.close()
    store = lazy(files)
    run_here(store.log("orders", 0).retention())
    remove_all(store)
    assert bases(files) == [3]
    assert not any(topic.topic_id.hex in path for path in files.folders)


def test_a_log_that_is_opened_anew_does_not_see_what_is_being_removed() -> None:
    """After a failed sync a log may be opened again at any moment; its files must not go under its feet."""
    files = SimFiles()
    store = lazy(files)
    log = log_of(store, segments=6)
    log.delete_records(4)
    files.fail_fsync = True
    with contextlib.suppress(StorageError):
        store.commit()
    taken = store.take_sync()
    assert taken is not None
    store.finish_sync(taken.run())
    files.fail_fsync = False
    while (mend := store.take_mend()) is not None:
        mend.run()
        mend.end_offset += 1  # as if some of it had been lost
        store.finish_mend(mend)
    again = store.log("orders", 0)
    assert again is not log
    assert log.retired
    assert (again.log_start_offset, again.log_end_offset) == (4, 6)
    remove_all(store)
    assert bases(files) == [4, 5]
    assert len(again.read(4, 1)) + len(again.read(5, 1)) > 8_000


def test_retention_that_is_interrupted_deletes_no_more_than_it_should() -> None:
    """Between two pieces others delete records; how much there is too much of is then looked at again."""
    files = SimFiles()
    store = lazy(files)
    log = log_of(store, segments=10, **{"retention.bytes": "18000"})
    work = log.retention()
    next(work)
    next(work)
    log.delete_records(6)
    with contextlib.suppress(StopIteration):
        while True:
            piece = next(work)
            assert piece is None
    assert log.log_start_offset == 6, "what is left is not too much"
    assert 12_000 < log.size < 22_000


def test_retention_of_a_topic_that_is_deleted_meanwhile_ends() -> None:
    files, clock = SimFiles(), Clock()
    store = lazy(files, clock)
    log = log_of(store, segments=10, **{"retention.bytes": "4096"})
    work = log.retention()
    next(work)
    store.delete_topic("orders")
    steps = len(files.steps)
    assert run_here(work) == 0
    assert len(files.steps) == steps


def test_a_search_passes_over_what_is_deleted_while_it_looks() -> None:
    files = SimFiles()
    store = lazy(files)
    log = log_of(store, segments=6)
    for kept in (2, 4):
        search = log.search_time(NOW + 5)
        next(search)
        log.delete_records(kept)
        remove_all(store)
        assert (found := run_here(search)) is not None
        assert found.offset == 5


def test_a_clean_stop_leaves_nothing_to_remove() -> None:
    files = SimFiles()
    store = lazy(files)
    fill(log_of(store, segments=3), 1)
    store.log("orders", 0).delete_records(3)
    store.close()
    assert bases(files) == [3]
