"""The broker on a disk that fails, with a clock that is set back, with few descriptors: what people are told."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch
from test_broker_groups import commit, committed, enter, heartbeat, join_body

from holdfast.broker.clock import ManualClock
from holdfast.broker.storage import journal as journals
from holdfast.broker.storage.files import RealFiles
from holdfast.model import ErrorCode
from holdfast.records.encode import Producer
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from patience import PATIENCE_S, wait_for


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Say which syncs fail, by the ending of the file's path; the rest of the disk is as good as ever."""
    bad: dict[str, bool] = {}
    real = os.fdatasync

    def fdatasync(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        if any(bad.get(part, False) for part in (path.suffix, path.parent.name)):
            raise OSError(errno.EIO, "Input/output error")
        real(number)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return bad


def error_of(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error)


def test_a_producer_is_refused_while_syncs_fail_and_served_again_once_the_file_was_written_anew(
    tmp_path: Path, failing: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    """The trap of fsync: the second one succeeds over pages that the first one dropped. So a file whose sync failed is
    written anew before anything in it is acknowledged; meanwhile producers hear an error that they retry on.
    """
    with Broker(data=tmp_path / "data", flush="always") as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1)
        assert error_of(client.produce("orders", [b"a"])) == 0
        failing[".log"] = failing[".new"] = True
        assert error_of(client.produce("orders", [b"b"])) == ErrorCode.KAFKA_STORAGE_ERROR
        assert error_of(client.produce("orders", [b"c"])) == ErrorCode.KAFKA_STORAGE_ERROR
        failing.clear()
        wait_for(lambda: error_of(client.produce("orders", [b"d"])) == 0)

        member = enter(client)
        assert commit(client, 1, member=member) == 0
    assert "Forcing topics/" in caplog.text
    assert "was rewritten after its sync had failed" in caplog.text


class Gate:
    """Syncs of segments wait before it; once it is opened, those of `bad` partitions fail."""

    def __init__(self, bad: str) -> None:
        self.bad = bad
        self.shut = False
        self.begun, self._open = threading.Event(), threading.Event()
        self._real = os.fdatasync

    def open(self) -> None:
        self.shut = False
        self._open.set()

    def __call__(self, number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        if self.shut and path.suffix == ".log":
            self.begun.set()
            assert self._open.wait(PATIENCE_S)
        if self.begun.is_set() and path.parent.name == self.bad:
            raise OSError(errno.EIO, "Input/output error")
        self._real(number)


def waits_for_the_next_sync(broker: Broker, requests: int) -> None:
    wait_for(lambda: broker.call(lambda state: state.flusher.waiting) == requests)


def test_a_repeated_batch_is_not_acknowledged_if_the_sync_of_the_first_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: under --flush always, a producer that tried again while the sync of its first attempt was under way was
    told yes although that sync failed. Cause: a batch that is known is not written again, so there was nothing to sync
    and nothing to fail. Rule: whoever is told yes has a sync behind it that came after its request.
    """
    gate = Gate(bad="0")
    monkeypatch.setattr(os, "fdatasync", gate)
    with (
        Broker(data=tmp_path / "data", flush="always") as broker,
        RawClient(broker) as first,
        RawClient(broker) as second,
    ):
        broker.topics.create("orders", 1)
        data = batch([b"a"], producer=Producer(producer_id=7, epoch=0, base_sequence=0))
        gate.shut = True
        first.send_produce("orders", data)
        assert gate.begun.wait(PATIENCE_S)
        second.send_produce("orders", data)
        waits_for_the_next_sync(broker, 1)
        gate.open()
        assert error_of(first.receive_produced()) == ErrorCode.KAFKA_STORAGE_ERROR
        assert error_of(second.receive_produced()) == ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.undo()
        wait_for(lambda: error_of(first.produce("orders", data)) == 0)
        assert broker.topics.count("orders") == 1


def test_a_failed_sync_refuses_the_producers_of_its_partition_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a plain producer's records were there twice although nothing was wrong with their file. Cause: all who
    shared a round of syncs were refused if one file of it failed, and sent again what was on disk.
    """
    gate = Gate(bad="1")
    monkeypatch.setattr(os, "fdatasync", gate)
    with Broker(data=tmp_path / "data", flush="always") as broker:
        broker.topics.create("orders", 11)
        clients = {partition: RawClient(broker) for partition in (0, 1, 2, 10)}
        for partition, client in clients.items():
            assert error_of(client.produce("orders", [b"a"], partition=partition)) == 0
        gate.shut = True
        clients[0].send_produce("orders", [b"b"], partition=0)
        assert gate.begun.wait(PATIENCE_S)
        for partition in (1, 2, 10):
            clients[partition].send_produce("orders", [b"b"], partition=partition)
        waits_for_the_next_sync(broker, 3)
        gate.open()
        answers = {partition: error_of(client.receive_produced()) for partition, client in clients.items()}
        assert answers == {0: 0, 1: ErrorCode.KAFKA_STORAGE_ERROR, 2: 0, 10: 0}
        for client in clients.values():
            client.socket.close()
        monkeypatch.undo()


def test_a_commit_whose_sync_fails_is_refused_and_does_not_come_back(
    tmp_path: Path, failing: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    """Groups wait for their sync beside the loop; what was refused is not in memory, not in the file, not there after a
    restart, and the others' records are not touched.
    """
    with Broker(data=tmp_path / "data", flush="always") as broker:
        broker.topics.create("orders", 1)
        with RawClient(broker) as client:
            member = enter(client)
            assert commit(client, 1, member=member) == 0
            failing["groups"] = True
            assert commit(client, 2, member=member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert committed(client) == 1
            assert error_of(client.produce("orders", [b"a"])) == 0, "another file, whose sync works"
            failing.clear()
            assert heartbeat(client, member) == 0
            assert commit(client, 3, member=member) == 0
            failing["groups"] = True
            assert commit(client, 4, member=member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            failing.clear()
        broker.restart()
        with RawClient(broker) as client:
            assert committed(client) == 3
    assert "groups: Forcing journals/groups/" in caplog.text


def test_a_slow_sync_of_a_commit_does_not_hold_up_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: under --flush always every commit held up everybody for as long as its sync took. Cause: groups synced
    their journal on the event loop.
    """
    gate, begun = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").readlink().parent.name == "groups":
            begun.set()
            assert gate.wait(30)
        real(number)

    with (
        Broker(data=tmp_path / "data", flush="always") as broker,
        RawClient(broker) as client,
        RawClient(broker) as other,
    ):
        broker.topics.create("orders", 1)
        monkeypatch.setattr(os, "fdatasync", slow)
        body = {
            "group_id": "g",
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
        }
        client.send(client.request(Api.OFFSET_COMMIT, Api.OFFSET_COMMIT.highest, body))
        assert begun.wait(30)
        assert other.ask(Api.API_VERSIONS, version=0).error_code == 0, "while the sync is under way"
        gate.set()
        client.receive()
        assert committed(other) == 7


def test_commits_of_many_groups_at_once_are_all_kept(tmp_path: Path) -> None:
    """Commits that came during a sync share the next one, and are answered in order."""
    with Broker(data=tmp_path / "data", flush="always") as broker:
        broker.topics.create("orders", 1)
        clients = [RawClient(broker) for _ in range(8)]
        for number, client in enumerate(clients):
            body = {
                "group_id": f"g{number}",
                "member_id": "",
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": number}]}],
            }
            client.send(client.request(Api.OFFSET_COMMIT, Api.OFFSET_COMMIT.highest, body))
        for client in clients:
            client.receive()
        assert [committed(client, f"g{number}") for number, client in enumerate(clients)] == list(range(8))
        for client in clients:
            client.socket.close()
        broker.restart()
        with RawClient(broker) as client:
            assert [committed(client, f"g{number}") for number in range(8)] == list(range(8))


def test_a_journal_that_is_rewritten_holds_up_nobody_but_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: while a large journal was rewritten, nobody was served. Cause: it was copied and synced on the loop."""
    gate, begun = threading.Event(), threading.Event()
    whole = journals.Journal.compact

    def slow(journal: journals.Journal) -> None:
        begun.set()
        assert gate.wait(30)
        whole(journal)

    monkeypatch.setattr(journals.Journal, "compact", slow)
    with Broker(data=tmp_path / "data") as broker, RawClient(broker) as client, RawClient(broker) as other:
        broker.topics.create("orders", 1)
        broker.call(lambda state: setattr(state.store.journal("groups"), "compact_min_bytes", 100))
        for number in range(20):
            assert commit(client, number) == 0
        assert begun.wait(30)
        body = {
            "group_id": "g",
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 77}]}],
        }
        client.send(client.request(Api.OFFSET_COMMIT, Api.OFFSET_COMMIT.highest, body))
        assert error_of(other.produce("orders", [b"a"])) == 0, "while the journal is being rewritten"
        gate.set()
        client.receive()
        assert committed(other) == 77
        broker.restart()
        with RawClient(broker) as again:
            assert committed(again) == 77


def test_a_group_whose_record_is_too_large_starts_over_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: one group with a record larger than the journal takes put all groups back to their logs, and everybody
    rejoined. Cause: whatever the journal refused started the whole coordinator over. Invariant: it concerns its group.
    """
    monkeypatch.setattr(journals, "MAX_FRAME_BYTES", 2_000)
    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", 1)
        with RawClient(broker) as client, RawClient(broker) as other:
            member = enter(client, "living")
            assert commit(client, 7, group="living", member=member) == 0
            waiting = RawClient(broker)
            waiting.send(waiting.request(Api.JOIN_GROUP, 3, join_body("living")))
            wait_for(lambda: broker.call(lambda state: state.groups.waiting) == 1)

            joined = other.ask(Api.JOIN_GROUP, join_body("large"), version=3)
            plan = {
                "group_id": "large",
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "assignments": [{"member_id": joined.member_id, "assignment": bytes(3_000)}],
            }
            assert other.ask(Api.SYNC_GROUP, plan, version=2).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert commit(other, 1, group="large", member=(joined.member_id, 1), committed_metadata="m" * 3_000) in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            )
            assert (
                commit(other, 1, group="simple", committed_metadata="m" * 3_000) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            )

            assert broker.call(lambda state: state.groups.waiting) == 1, "nobody else was told to come back"
            assert heartbeat(client, member, "living") == ErrorCode.REBALANCE_IN_PROGRESS
            assert committed(client, "living") == 7
            assert broker.group("large").generation == 1, "it is what was written of it"
            waiting.socket.close()
    assert "large is reset to what its log says" in caplog.text


def test_on_a_full_disk_a_refused_commit_concerns_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: on a full disk with 150,000 offsets kept, one client's commits made everybody's heartbeats wait for 5 s.
    Cause: each refused commit had all groups read again, on the loop, and told all who waited to come back. Invariant:
    what could not be written concerns its group; the others are what the journal says.
    """
    real = os.pwritev

    def full(number: int, buffers: Any, position: int) -> int:
        if Path(f"/proc/self/fd/{number}").readlink().parent.name == "groups":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(number, buffers, position)

    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", 1)
        with RawClient(broker) as client, RawClient(broker) as other, RawClient(broker) as waiting:
            member = enter(client, "living")
            assert commit(client, 7, group="living", member=member) == 0
            assert commit(other, 1, group="simple") == 0
            waiting.send(waiting.request(Api.JOIN_GROUP, 3, join_body("living")))
            wait_for(lambda: broker.call(lambda state: state.groups.waiting) == 1)

            monkeypatch.setattr(os, "pwritev", full)
            with monkeypatch.context() as patch:
                patch.setattr(journals.Journal, "replay", lambda *_: pytest.fail("all groups are read again"))
                assert commit(other, 2, group="simple") == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert commit(other, 2, group="new") == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert committed(other, "simple") == 1
            assert broker.call(lambda state: state.groups.waiting) == 1, "nobody else was told to come back"
            assert heartbeat(client, member, "living") == ErrorCode.REBALANCE_IN_PROGRESS

            monkeypatch.undo()
            assert commit(other, 3, group="simple") == 0
        broker.restart()
        with RawClient(broker) as again:
            assert [committed(again, group) for group in ("living", "simple", "new")] == [7, 3, -1]


def test_a_journal_that_can_not_be_read_again_is_tried_until_it_can(
    tmp_path: Path, failing: dict[str, bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: with no descriptors left, a commit was dropped without an answer or a line, and so were all that came
    later. Cause: starting over read the journal, that failed too, and took the answers in line with it.
    """
    with Broker(data=tmp_path / "data", flush="always") as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1)
        member = enter(client)
        whole = journals.Journal.replay

        def unreadable(*_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(RealFiles, "listdir", unreadable)
        failing["groups"] = True
        assert commit(client, 1, member=member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert commit(client, 2, member=member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        failing.clear()
        monkeypatch.undo()
        assert journals.Journal.replay is whole
        wait_for(lambda: commit(client, 3, member=member) == 0)
        assert committed(client) == 3
    assert "not served until the journal can be read" in caplog.text


def change_errors(client: RawClient) -> list[int]:
    """Try a create, a grow, a change of settings, a deletion and an id for a producer; returns what each was told."""
    created = client.ask(Api.CREATE_TOPICS, {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]})
    grown = client.ask(Api.CREATE_PARTITIONS, {"topics": [{"name": "orders", "count": 5, "assignments": None}]})
    setting = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    resource = {"resource_type": 2, "resource_name": "orders", "configs": [setting]}
    altered = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    deleted = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": "doomed", "topic_id": None}]})
    producer = client.ask(Api.INIT_PRODUCER_ID, {"transactional_id": None})
    asked = client.ask(Api.METADATA, {"topics": [{"name": "asked-for", "topic_id": None}]})
    return [
        created.topics[0].error_code,
        grown.results[0].error_code,
        altered.responses[0].error_code,
        deleted.responses[0].error_code,
        producer.error_code,
        asked.topics[0].error_code,
    ]


def test_what_is_refused_because_the_catalog_can_not_be_synced_never_happens(
    tmp_path: Path, failing: dict[str, bool]
) -> None:
    """Symptom: a refused DeleteTopics deleted at the next restart, a refused create came back, a refused grow took
    effect. Cause: the catalog's entry was booked although its sync had failed.
    """

    def state_of(broker: Broker) -> list[tuple[str, int, object]]:
        return broker.call(
            lambda state: [(each.name, each.partitions, dict(each.configs)) for each in state.store.topics()]
        )

    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", 1)
        broker.topics.create("doomed", 1)
        before = state_of(broker)
        with RawClient(broker) as client:
            failing["catalog"] = True
            assert change_errors(client) == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
            assert state_of(broker) == before
            failing.clear()
        broker.restart()
        assert state_of(broker) == before
        with RawClient(broker) as client:
            assert change_errors(client) == [0] * 6
        after = [("asked-for", 1, {}), ("new", 1, {}), ("orders", 5, {"retention.ms": "5"})]
        assert state_of(broker) == after
        broker.restart()
        assert state_of(broker) == after


def test_a_slow_sync_of_the_catalog_or_of_a_start_does_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: whoever created topics held up everybody, a sync a topic. Cause: the catalog was synced on the loop."""
    gate, begun = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(number: int) -> None:
        begun.set()
        assert gate.wait(30)
        real(number)

    with Broker(data=tmp_path / "data") as broker, RawClient(broker) as client, RawClient(broker) as other:
        broker.topics.create("orders", 1)
        client.produce("orders", [b"a", b"b"])
        create = {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]}
        start = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}
        for api, body in ((Api.CREATE_TOPICS, create), (Api.DELETE_RECORDS, {"topics": [start]})):
            gate.clear()
            begun.clear()
            monkeypatch.setattr(os, "fdatasync", slow)
            client.send(client.request(api, api.highest, body))
            assert begun.wait(30)
            assert error_of(other.produce("orders", [b"c"])) == 0, "while the sync is under way"
            assert broker.topics.names() == ["orders"] or api is Api.DELETE_RECORDS
            gate.set()
            client.receive()
        assert broker.topics.names() == ["new", "orders"]
        assert [start for start, _ in broker.topics.offsets("orders").values()] == [1]


def test_a_deletion_whose_client_goes_while_it_is_written_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: records that everybody could read for weeks were gone after a restart. Cause: a client went away while
    its DeleteRecords was being written; the new start was on disk, and the running log was never told. Invariant: where
    a log starts is the same on disk and in memory."""
    gate, begun = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(number: int) -> None:
        begun.set()
        assert gate.wait(30)
        real(number)

    def starts(broker: Broker) -> list[int]:
        return [start for start, _ in broker.topics.offsets("orders").values()]

    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", 1)
        with RawClient(broker) as client:
            client.produce("orders", [b"a", b"b"])
            monkeypatch.setattr(os, "fdatasync", slow)
            asked = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}
            client.send(client.request(Api.DELETE_RECORDS, 2, {"topics": [asked]}))
            assert begun.wait(30)
        wait_for(lambda: broker.connections() == 0)
        gate.set()
        wait_for(lambda: starts(broker) == [1])
        broker.restart()
        assert starts(broker) == [1]


def test_retention_is_looked_after_although_the_clock_was_set_back() -> None:
    with Broker(manual_clock=True) as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1, configs={"retention.ms": "1000"})
        now = broker.call(lambda state: state.clock.wall_ms())
        client.produce("orders", batch([b"a"], timestamp=now))
        clock = broker.call(lambda state: state.clock)
        assert isinstance(clock, ManualClock)
        broker.call(lambda _state: clock.set_back(7_200_000.0))
        broker.advance(400_000)
        wait_for(lambda: broker.topics.count("orders") == 0)


def fetch(client: RawClient, offset: int) -> Any:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(
            FetchTopic(topic="orders", partitions=(FetchPartition(partition=0, offset=offset, max_bytes=1 << 20),)),
        ),
    )
    return client.fetch(request).topics[0].partitions[0]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_segment_that_is_gone_is_told_at_the_start_and_to_whoever_reads_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """Kafka would go on with the next segment without a word. Records that were acknowledged and are gone are never
    skipped in silence: the reader hears CORRUPT_MESSAGE, the log where to go on.
    """
    data = tmp_path / "data"
    broker = Broker(data=data).start()
    broker.topics.create("orders", 1, configs={"segment.bytes": "4096"})
    with RawClient(broker) as client:
        for number in range(12):
            assert error_of(client.produce("orders", [bytes([number]) * 1_000])) == 0
    broker.stop()
    segments = sorted(data.glob("topics/*/0/*.log"))
    lost, after = int(segments[1].stem), int(segments[2].stem)
    segments[1].unlink()
    if end == "killed":
        (data / "clean").unlink()
    caplog.clear()
    with Broker(data=data) as broker, RawClient(broker) as client:
        assert fetch(client, 0).error == 0
        assert f"offsets {lost} to {after - 1} are unreadable" in caplog.text
        assert fetch(client, lost).error == ErrorCode.CORRUPT_MESSAGE
        assert f"Continue from offset {after}" in caplog.text
        assert fetch(client, after).error == 0


@pytest.mark.slow
def test_a_broker_with_few_descriptors_serves_many_partitions_and_says_what_it_refuses(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from holdfast.cli.main import main\n"
        "main()\n"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64
    log = tmp_path / "broker.log"
    command = [sys.executable, str(script), "broker", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    command += ["-o", "json", "--partitions", "200"]
    with log.open("wb") as stderr, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            with RawClient(_Address(ready["host"], ready["port"])) as client:
                client.ask(Api.METADATA, {"topics": [{"name": "orders", "topic_id": None}]})
                for number in range(200):
                    assert error_of(client.produce("orders", [b"a"], partition=number)) == 0
                    assert commit(client, number) == 0
                assert committed(client) == 199
        finally:
            process.terminate()
        assert process.wait(30) == 0
    assert "Traceback" not in log.read_text()


class _Address:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.broker")
