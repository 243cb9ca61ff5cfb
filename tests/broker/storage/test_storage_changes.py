"""Changes of topics are written in a thread: all or nothing, in order, and unseen until they are on disk."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from storage_world import SimFiles

from holdfast.broker.changes import CHANGES_AT_A_TIME, Changes
from holdfast.broker.slices import PAUSE, Slices, Steps
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.store import Store
from holdfast.model import ErrorCode


class SlowFiles(SimFiles):
    """A disk whose syncs wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def sync_fails(self) -> bool:
        self.begun.set()
        assert self.gate.wait(20)
        return super().sync_fails()


def names(store: Store) -> list[str]:
    return [topic.name for topic in store.topics()]


async def begun(files: SlowFiles) -> None:
    """Until a sync waits at the gate."""
    assert await asyncio.get_running_loop().run_in_executor(None, files.begun.wait, 20)


def test_a_change_is_seen_by_nobody_until_it_is_on_disk_and_the_loop_goes_on_meanwhile() -> None:
    """Symptom: nobody was served while a topic was created on a slow disk. Cause: the catalog was synced on the event
    loop. Invariant: syncs run in a thread, and what they make true is true when they are done.
    """

    async def scene() -> None:
        files = SlowFiles()
        store = Store(None, files=files)
        changes = Changes(store, Slices())
        files.gate.clear()
        files.begun.clear()
        first = asyncio.ensure_future(changes.make(lambda: store.create_topic("a", 2)))
        again = asyncio.ensure_future(changes.make(lambda: store.create_topic("a", 3)))
        await begun(files)
        third = asyncio.ensure_future(changes.make(lambda: store.grow_topic("a", 4)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert names(store) == []
        assert not first.done()
        files.gate.set()
        assert (await first).partitions == 2
        with pytest.raises(StorageError) as caught:
            await again
        assert caught.value.error == ErrorCode.TOPIC_ALREADY_EXISTS, "it sees what was planned before it"
        assert (await third).partitions == 4
        assert store.partition_count() == 4
        await changes.drained()
        store.close()
        assert names(Store(None, files=files)) == ["a"]

    asyncio.run(scene())


def test_what_the_disk_refuses_never_was_and_what_comes_behind_is_judged_by_that() -> None:
    async def scene() -> None:
        files = SlowFiles()
        store = Store(None, files=files)
        changes = Changes(store, Slices())
        await changes.make(lambda: store.create_topic("old", 1))
        files.gate.clear()
        files.begun.clear()
        first = asyncio.ensure_future(changes.make(lambda: store.create_topic("a", 2)))
        gone = asyncio.ensure_future(changes.make(lambda: store.delete_topic("old")))
        identity = asyncio.ensure_future(changes.make(store.next_producer_id))
        await begun(files)
        behind = asyncio.ensure_future(changes.make(lambda: store.create_topic("a", 5)))
        await asyncio.sleep(0)
        files.fail_fsync = True
        files.gate.set()
        for refused in (first, gone, identity):
            with pytest.raises(StorageError) as caught:
                await refused
            assert caught.value.error == ErrorCode.KAFKA_STORAGE_ERROR
        files.fail_fsync = False
        with pytest.raises(StorageError):
            await behind  # its own sync failed as well
        assert (names(store), store.partition_count()) == (["old"], 1)
        assert await changes.make(store.next_producer_id) == 0
        assert await changes.make(store.next_producer_id) == 1
        await changes.drained()
        assert names(Store(None, files=files.after_kill())) == ["old"]

    asyncio.run(scene())


def test_work_that_fails_half_way_leaves_nothing_and_does_not_take_others_with_it() -> None:
    async def scene() -> None:
        store = Store(None, files=SimFiles())
        changes = Changes(store, Slices())

        def half() -> None:
            store.create_topic("half", 1)
            raise ZeroDivisionError

        results = await asyncio.gather(
            changes.make(lambda: store.create_topic("a", 1)),
            changes.make(half),
            changes.make(lambda: store.create_topic("half", 2)),
            return_exceptions=True,
        )
        assert isinstance(results[1], ZeroDivisionError)
        assert names(store) == ["a", "half"]
        topic = store.topic("half")
        assert topic is not None
        assert topic.partitions == 2

    asyncio.run(scene())


def test_many_changes_share_a_sync_and_none_holds_the_loop_for_long() -> None:
    async def scene() -> None:
        files = SimFiles()
        store = Store(None, files=files)
        changes = Changes(store, Slices())
        before = files.syncs
        count = 3 * CHANGES_AT_A_TIME
        makes: list[Any] = [changes.make(partial(store.create_topic, f"t{number}", 1)) for number in range(count)]
        await asyncio.gather(*makes)
        assert len(names(store)) == count
        assert files.syncs - before <= 10

    asyncio.run(scene())


def test_a_config_reaches_an_open_log_once_it_is_on_disk() -> None:
    async def scene() -> None:
        files = SlowFiles()
        store = Store(None, files=files)
        changes = Changes(store, Slices())
        await changes.make(lambda: store.create_topic("a", 1))
        log = store.log("a", 0)
        files.gate.clear()
        files.begun.clear()
        change = asyncio.ensure_future(changes.make(lambda: store.configure_topic("a", {"retention.ms": "5"})))
        await begun(files)
        assert log.config.retention_ms != 5
        files.gate.set()
        await change
        assert log.config.retention_ms == 5

    asyncio.run(scene())


def test_what_follows_from_a_deletion_is_done_before_a_new_topic_of_that_name_is_made() -> None:
    """The work that follows is done in slices; a creation that was asked for with the deletion waits for it."""

    async def scene() -> None:
        store = Store(None, files=SimFiles())
        seen: list[list[str]] = []
        deleted: list[str] = []

        def delete() -> None:
            store.delete_topic("a")
            store.when_written(lambda: deleted.append("a"))

        def follow_up() -> Steps | None:
            return forget() if deleted else None

        def forget() -> Steps:
            for _ in range(5):
                seen.append(names(store))
                yield PAUSE
            deleted.clear()

        changes = Changes(store, Slices(), follow_up)
        await changes.make(lambda: store.create_topic("a", 1))
        first = (lambda: store.create_topic("b", 1), delete)  # while this is written, the rest waits together
        work = (*first, lambda: store.create_topic("a", 2), lambda: store.create_topic("c", 1))
        await asyncio.gather(*(changes.make(each) for each in work))
        assert seen == [["b"]] * 5
        assert names(store) == ["a", "b", "c"]

    asyncio.run(scene())
