"""What is deleted is removed beside the event loop, and a broker that is killed or stopped meanwhile finishes it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from raw_client import RawClient, batch

from holdfast.broker import slices
from holdfast.broker.cleaner import Cleaner
from holdfast.broker.groups import Groups
from holdfast.broker.slices import Slices, Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import RealFiles
from holdfast.broker.storage.journal import Journal
from holdfast.broker.storage.store import Store
from holdfast.model import ErrorCode
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from patience import PATIENCE_S, wait_for

MANY = 200
"""Partitions: more than one share of removing."""


class Removing:
    """Watches files of topics being removed, and holds them up if asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: set[str] = set()
        self.begun, self.open = threading.Event(), threading.Event()
        self.open.set()
        self.removed = 0
        real = RealFiles.unlink

        def unlink(files: RealFiles, path: str) -> None:
            if path.startswith("topics/"):
                self.threads.add(threading.current_thread().name)
                self.begun.set()
                assert self.open.wait(PATIENCE_S)
                self.removed += 1
            real(files, path)

        monkeypatch.setattr(RealFiles, "unlink", unlink)


@pytest.fixture
def removing(monkeypatch: pytest.MonkeyPatch) -> Removing:
    return Removing(monkeypatch)


def loop_thread(broker: Broker) -> str:
    return broker.call(lambda _state: threading.current_thread().name)


def fill(client: RawClient, topic: str, partitions: int) -> None:
    """One record into each partition."""
    data = batch([b"x"])
    wanted = tuple(ProducePartition(partition=number, records=data) for number in range(partitions))
    request = ProduceRequest(acks=-1, topics=(ProduceTopic(topic=topic, partitions=wanted),))
    client.send(join(encode_produce_request(12, 1, "raw", request)))
    answer = decode_produce_response(12, client.receive())
    assert {each.error for each in answer.topics[0].partitions} == {0}


def create(client: RawClient, topic: str, partitions: int) -> int:
    asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    return int(client.ask(Api.CREATE_TOPICS, {"topics": [asked]}).topics[0].error_code)


def delete(client: RawClient, topic: str) -> int:
    answer = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": topic, "topic_id": None}]})
    return int(answer.responses[0].error_code)


def span(broker: Broker, topic: str) -> tuple[int, int]:
    """Where its one partition begins and ends."""
    ((start, end),) = broker.topics.offsets(topic).values()
    return start, end


def folders(data: Path) -> set[str]:
    return {path.name for path in (data / "topics").iterdir()}


def logs(data: Path) -> int:
    return len(list((data / "topics").rglob("*.log")))


def test_the_files_of_a_deleted_topic_are_removed_beside_the_loop(tmp_path: Path, removing: Removing) -> None:
    """Symptom: who deleted a topic of 1,000 partitions held up everybody for more than a second. Cause: its files were
    removed on the event loop. Here: the answer comes, others are served and the name is free before a file is gone."""
    with Broker(data=tmp_path) as broker, RawClient(broker) as client:
        assert create(client, "large", MANY) == 0
        fill(client, "large", MANY)
        old = folders(tmp_path)
        removing.open.clear()
        assert delete(client, "large") == 0
        assert removing.begun.wait(PATIENCE_S)
        assert create(client, "large", 1) == 0
        fill(client, "large", 1)
        removing.open.set()
        wait_for(lambda: not folders(tmp_path) & old)
        assert broker.topics.count("large") == 1
        assert loop_thread(broker) not in removing.threads


def test_a_topic_whose_broker_is_killed_after_its_deletion_goes_with_the_next_one(tmp_path: Path) -> None:
    """Nothing of it comes back, and a topic that has its name now is another one."""
    args = ("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    with BrokerProcess(*args) as killed, RawClient(killed) as client:
        assert create(client, "large", MANY) == 0
        fill(client, "large", MANY)
        assert delete(client, "large") == 0
        assert create(client, "large", 2) == 0
        killed.kill()
    with BrokerProcess(*args) as again, RawClient(again) as client:
        fill(client, "large", 2)
        wait_for(lambda: len(folders(tmp_path)) == 1)
        assert again.stop() == 0
    with Store(tmp_path) as store:
        assert [(topic.name, topic.partitions) for topic in store.topics()] == [("large", 2)]
        assert [store.log("large", number).log_end_offset for number in range(2)] == [1, 1]
        assert store.recoveries == []


def test_a_stop_waits_for_the_files_that_are_being_removed(
    tmp_path: Path, removing: Removing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is another broker's as soon as this one has ended: nothing may go on in it."""
    at_close: list[int] = []
    real = Store.close

    def close(store: Store) -> None:
        at_close.append(removing.removed)
        real(store)

    monkeypatch.setattr(Store, "close", close)
    broker = Broker(data=tmp_path).start()
    with RawClient(broker) as client:
        assert create(client, "doomed", 1) == 0
        fill(client, "doomed", 1)
        removing.open.clear()
        assert delete(client, "doomed") == 0
        assert removing.begun.wait(PATIENCE_S)
        address = (broker.host, broker.port)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        wait_for(lambda: _refused(address))
    removing.open.set()
    stopping.join(PATIENCE_S)
    assert at_close == [1]
    assert folders(tmp_path) == set()


def _refused(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return True
    return False


def segments(client: RawClient, topic: str, count: int) -> None:
    """A topic of so many segments, a batch in each."""
    configs = [{"name": "segment.bytes", "value": "4096"}, {"name": "retention.ms", "value": "-1"}]
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    assert client.ask(Api.CREATE_TOPICS, {"topics": [asked]}).topics[0].error_code == 0
    for _ in range(count):
        client.produce(topic, [b"x" * 4_000])


def test_the_segments_that_delete_records_frees_are_removed_beside_the_loop(tmp_path: Path, removing: Removing) -> None:
    """Symptom: a DeleteRecords that freed thousands of segments held up everybody for 3.6 s. Cause: their files were
    removed on the event loop. Here: the new start holds, and others are served, before a file is gone."""
    with Broker(data=tmp_path) as broker, RawClient(broker) as client:
        segments(client, "orders", 30)
        removing.open.clear()
        asked = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 25}]}
        answer = client.ask(Api.DELETE_RECORDS, {"topics": [asked]})
        assert answer.topics[0].partitions[0].low_watermark == 25
        assert removing.begun.wait(PATIENCE_S)
        assert span(broker, "orders") == (25, 30)
        client.produce("orders", [b"y"])
        removing.open.set()
        wait_for(lambda: logs(tmp_path) == 6)
        assert loop_thread(broker) not in removing.threads
        broker.restart()
        assert span(broker, "orders") == (25, 31)


def test_what_retention_frees_is_removed_beside_the_loop(tmp_path: Path, removing: Removing) -> None:
    """The last segment goes too; the empty one that follows it must be on disk first, and that sync is beside the loop
    as well."""
    with Broker(data=tmp_path, manual_clock=True) as broker, RawClient(broker) as client:
        segments(client, "orders", 30)
        synced = _threads_of(RealFiles, "fsync_dir")
        with synced as threads:
            _configure(client, "orders", {"retention.ms": "1000", "segment.bytes": "4096"})
            broker.advance(400_000)
            wait_for(lambda: logs(tmp_path) == 1)
        assert span(broker, "orders") == (30, 30)
        assert loop_thread(broker) not in removing.threads | threads
        client.produce("orders", [b"y"])
        broker.restart()
        assert span(broker, "orders") == (30, 31)


def _configure(client: RawClient, topic: str, configs: dict[str, str]) -> None:
    wanted = [{"name": name, "value": value} for name, value in configs.items()]
    resource = {"resource_type": 2, "resource_name": topic, "configs": wanted}
    assert client.ask(Api.ALTER_CONFIGS, {"resources": [resource]}).responses[0].error_code == 0


class _threads_of:
    """Names the threads that call a method meanwhile."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._real: Callable[..., Any] = getattr(owner, name)

    def __enter__(self) -> set[str]:
        seen: set[str] = set()

        def watched(*args: Any) -> Any:
            seen.add(threading.current_thread().name)
            return self._real(*args)

        setattr(self._owner, self._name, watched)
        return seen

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._real)


def test_a_catalog_that_can_not_be_written_does_not_end_the_housekeeping(caplog: pytest.LogCaptureFixture) -> None:
    """The files of a topic are gone and its entry can't be taken out: that is said once in a while, and tried again."""

    class Full:
        asked = 0

        def remove_later(self) -> None: ...
        def retention_due(self) -> None: ...
        def take(self) -> None:
            raise AssertionError("not so soon")

        def complete(self) -> None:
            self.asked += 1
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.", "Free some space.")

    space: Any = Full()
    cleaner = Cleaner(space, Slices())
    cleaner.tick()
    cleaner.tick()
    assert space.asked == 1
    assert "The disk is full." in caplog.text


# -- committed offsets of a topic that is deleted

MANY_NUMBERS = range(3_000)


def _committed(client: RawClient, group: str) -> set[int]:
    """The offsets that a group has committed in the topic "orders"."""
    topics = [{"name": "orders", "partition_indexes": list(MANY_NUMBERS)}]
    asked = {"groups": [{"group_id": group, "topics": topics}], "require_stable": False}
    (found,) = client.ask(Api.OFFSET_FETCH, asked, version=8).groups
    return {each.committed_offset for topic in found.topics for each in topic.partitions}


def _commit(client: RawClient, group: str, offset: int) -> None:
    partitions = [{"partition_index": number, "committed_offset": offset} for number in MANY_NUMBERS]
    body = {
        "group_id": group,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "orders", "partitions": partitions}],
    }
    (topic,) = client.ask(Api.OFFSET_COMMIT, body).topics
    assert {each.error_code for each in topic.partitions} == {0}


@pytest.mark.parametrize("flush", ["os", "always"])
def test_committed_offsets_of_a_deleted_topic_are_forgotten_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    """Symptom: deleting a topic in which groups had committed 200,000 offsets held up everybody for a second. Cause:
    all of them were forgotten in one turn of the loop. Rule: some in each turn; and a new topic of this name is not
    made before that is over, so it neither shows the old offsets nor loses its own."""
    turns: list[int] = [0]
    order: list[str] = []
    written: Counter[int] = Counter()
    append, create_topic = Journal.append, Store.create_topic

    def counted(journal: Journal, entries: Any, **more: Any) -> Any:
        if "groups" in journal.path:
            written[turns[0]] += len(entries)
            if not order:
                other.send(other.request(Api.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 30_000}))
            order.append("forgotten")
        return append(journal, entries, **more)

    def created(store: Store, *arguments: Any, **more: Any) -> Any:
        order.append("created")
        return create_topic(store, *arguments, **more)

    def count_turns(_state: State) -> None:
        def turn() -> None:
            turns[0] += 1
            if len(turns) == 1:
                loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        turn()

    topic = {"name": "orders", "num_partitions": len(MANY_NUMBERS), "replication_factor": 1}
    with Broker(data=tmp_path / "data", flush=flush) as broker, RawClient(broker) as client, RawClient(broker) as other:
        broker.topics.create("orders", len(MANY_NUMBERS))
        for group in ("a", "b"):
            _commit(client, group, 7)
        broker.call(count_turns)
        monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
        monkeypatch.setattr(Journal, "append", counted)
        monkeypatch.setattr(Store, "create_topic", created)
        (deleted,) = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]}).responses
        other.receive()
        monkeypatch.undo()
        turns.append(0)  # that's enough

        assert deleted.error_code == 0
        assert sum(written.values()) == 2 * len(MANY_NUMBERS)
        assert max(written.values()) <= 1_000
        assert order == ["forgotten"] * order.count("forgotten") + ["created"]
        assert _committed(client, "a") == _committed(client, "b") == {-1}
        _commit(client, "a", 3)
        assert (_committed(client, "a"), _committed(client, "b")) == ({3}, {-1})


def test_what_a_broker_had_no_time_to_forget_it_forgets_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed right after the deletion. A new topic of this name does not begin where the old one ended."""

    def nothing(_groups: Groups, _partitions: object) -> Steps:
        yield None

    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", len(MANY_NUMBERS))
        broker.topics.create("kept", 1)
        with RawClient(broker) as client:
            _commit(client, "a", 7)
            monkeypatch.setattr(Groups, "partitions_deleted", nothing)
            client.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]})
        monkeypatch.undo()
        broker.restart()
        broker.topics.create("orders", len(MANY_NUMBERS))
        with RawClient(broker) as client:
            assert _committed(client, "a") == {-1}
            _commit(client, "a", 3)
        broker.restart()
        with RawClient(broker) as client:
            assert _committed(client, "a") == {3}
