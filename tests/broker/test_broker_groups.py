"""Groups over the wire: what survives a restart, a full disk, a client that goes away, and administrators."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, server_of

from holdfast.broker.apis.offset_fetch import MANY_PARTITIONS
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.group.coordinator.effects import Persist, Reply
from holdfast.group.messages import CommitRequest, OffsetEntry
from holdfast.model import ErrorCode, TopicPartition
from holdfast.testing.broker import Broker
from holdfast.trace import read_trace_file
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for


def join_body(group: str = "g", member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        **more,
    }


def enter(client: RawClient, group: str = "g", **more: Any) -> tuple[str, int]:
    """Join as the only member, sync, and return member id and generation."""
    joined = client.ask(Api.JOIN_GROUP, join_body(group, **more), version=3)
    assert joined.error_code == 0
    plan = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"everything"}],
    }
    assert client.ask(Api.SYNC_GROUP, plan, version=2).assignment == b"everything"
    return joined.member_id, joined.generation_id


def commit(client: RawClient, offset: int, *, group: str = "g", member: tuple[str, int] = ("", -1), **more: Any) -> Any:
    body = {
        "group_id": group,
        "member_id": member[0],
        "generation_id_or_member_epoch": member[1],
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": offset, **more}]}],
    }
    return client.ask(Api.OFFSET_COMMIT, body).topics[0].partitions[0].error_code


def committed(client: RawClient, group: str = "g") -> int:
    asked = {"groups": [{"group_id": group, "topics": [{"name": "orders", "partition_indexes": [0]}]}]}
    found = client.ask(Api.OFFSET_FETCH, asked).groups[0]
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def heartbeat(client: RawClient, member: tuple[str, int], group: str = "g") -> int:
    asked = {"group_id": group, "generation_id": member[1], "member_id": member[0]}
    return int(client.ask(Api.HEARTBEAT, asked).error_code)


@pytest.fixture
def broker(holdfast_broker: Broker) -> Broker:
    holdfast_broker.topics.create("orders", 2)
    return holdfast_broker


def test_a_group_and_its_offsets_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker:
        broker.topics.create("orders", 2)
        with RawClient(broker) as client:
            member = enter(client)
            assert commit(client, 42, member=member, committed_metadata="note") == 0
        before = broker.group("g")

        broker.restart()

        assert broker.group("g") == before
        with RawClient(broker) as client:
            assert committed(client) == 42
            assert heartbeat(client, member) == 0, "the member goes on where it was"


def test_an_offset_commit_for_a_topic_that_is_not_there_is_refused_alone(broker: Broker) -> None:
    with RawClient(broker) as client:
        topics = [
            {"name": name, "partitions": [{"partition_index": number, "committed_offset": 1}]}
            for name, number in (("missing", 0), ("orders", 0), ("orders", 9))
        ]
        body = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1, "topics": topics}
        answer = client.ask(Api.OFFSET_COMMIT, body)
        found = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }

        assert found == {
            ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", 0): 0,
            ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert committed(client) == 1


def test_several_groups_are_asked_for_at_once_and_all_partitions_with_null(broker: Broker) -> None:
    with RawClient(broker) as client:
        commit(client, 5, group="a")
        commit(client, 6, group="b")
        asked = {"groups": [{"group_id": name, "topics": None} for name in ("a", "b", "c")]}
        groups = client.ask(Api.OFFSET_FETCH, asked).groups

    offsets = [[each.committed_offset for topic in group.topics for each in topic.partitions] for group in groups]
    assert offsets == [[5], [6], []]


def test_deleting_a_topic_takes_its_offsets_along(broker: Broker) -> None:
    with RawClient(broker) as client:
        commit(client, 5)
        client.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]})
        broker.topics.create("orders", 2)

        assert committed(client) == -1


def test_a_parked_join_blocks_its_own_connection_only_and_ends_with_it(broker: Broker) -> None:
    """The first member never joins again, so the second waits; when its client goes away, nobody waits any more."""
    with RawClient(broker) as first, RawClient(broker) as second:
        member = enter(first)
        second.send(second.request(Api.JOIN_GROUP, 3, join_body()))
        wait_for(lambda: broker.call(lambda state: state.groups.waiting) == 1)
        assert heartbeat(first, member) == ErrorCode.REBALANCE_IN_PROGRESS
    wait_for(lambda: broker.call(lambda state: state.groups.waiting) == 0)


def test_whoever_waits_when_the_broker_stops_is_answered(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path / "data").start()
    with RawClient(broker) as first, RawClient(broker) as second:
        enter(first)
        second.send(second.request(Api.JOIN_GROUP, 3, join_body()))
        wait_for(lambda: broker.call(lambda state: state.groups.waiting) == 1)
        broker.stop()

        answer = second.receive()

    assert int.from_bytes(answer[8:10], "big") == ErrorCode.NOT_COORDINATOR


def test_a_journal_that_can_t_be_written_takes_nothing_for_granted(broker: Broker) -> None:
    """Symptom: with a full disk, memory ran ahead of the log. Cause: effects were performed although the record they
    depend on was refused. Invariant: what clients are told, and what the coordinator believes, is what the log says.
    """
    with RawClient(broker) as client:
        member = enter(client)
        assert commit(client, 1, member=member) == 0
        restore = broker.call(_break_journal)

        assert commit(client, 2, member=member) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(client) == 1
        broker.call(lambda state: restore())
        assert commit(client, 3, member=member) == 0, "membership comes from the log, so the member is still one"
        assert committed(client) == 3


def _break_journal(state: Any) -> Callable[[], None]:
    journal = state.store.journal("groups")
    whole = journal.append

    def refuse(*_: object, **__: object) -> None:
        raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.", "Free some space.")

    journal.append = refuse

    def restore() -> None:
        journal.append = whole

    return restore


def test_administrators_list_describe_and_delete(broker: Broker) -> None:
    with RawClient(broker) as client:
        member = enter(client, "living")
        commit(client, 1, group="simple")

        listed = client.ask(Api.LIST_GROUPS).groups
        assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [
            ("living", "Stable", "classic"),
            ("simple", "Empty", "classic"),
        ]
        only = client.ask(Api.LIST_GROUPS, {"states_filter": ["stable"], "types_filter": ["Classic"]}).groups
        assert [group.group_id for group in only] == ["living"]
        assert client.ask(Api.LIST_GROUPS, {"types_filter": ["consumer"]}).groups == ()

        described = client.ask(Api.DESCRIBE_GROUPS, {"groups": ["living", "none"]}).groups
        assert (described[0].group_state, described[0].protocol_data) == ("Stable", "range")
        assert [(each.client_host, each.member_assignment) for each in described[0].members] == [
            ("/127.0.0.1", b"everything")
        ]
        assert described[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        older = client.ask(Api.DESCRIBE_GROUPS, {"groups": ["none"]}, version=5).groups[0]
        assert (older.error_code, older.group_state) == (0, "Dead")

        deleted = client.ask(Api.DELETE_GROUPS, {"groups_names": ["living", "simple", "none"]}).results
        assert {each.group_id: each.error_code for each in deleted} == {
            "living": ErrorCode.NON_EMPTY_GROUP,
            "simple": 0,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        leave = {"group_id": "living", "members": [{"member_id": member[0]}, {"member_id": "stranger"}]}
        left = client.ask(Api.LEAVE_GROUP, leave).members
        assert [each.error_code for each in left] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_offsets_can_be_deleted_unless_the_topic_is_subscribed(broker: Broker) -> None:
    with RawClient(broker) as client:
        commit(client, 5)
        asked = {
            "group_id": "g",
            "topics": [
                {"name": "orders", "partitions": [{"partition_index": 0}]},
                {"name": "missing", "partitions": [{"partition_index": 0}]},
            ],
        }
        answer = client.ask(Api.OFFSET_DELETE, asked)
        assert answer.error_code == 0
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "orders": 0,
        }
        assert committed(client) == -1


def test_the_coordinator_s_steps_are_written_to_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "group.trace"
    with Broker(trace=path) as broker:
        broker.topics.create("orders", 1)
        with RawClient(broker) as client:
            enter(client)

    bad: list[object] = []
    records = list(read_trace_file(path, on_bad=bad.append))
    assert bad == []
    assert {record.group for record in records} == {"g"}
    assert {record.source for record in records} == {"coordinator"}
    assert any(record.generation == 1 for record in records)


def test_offsets_of_very_many_partitions_are_put_together_beside_the_loop() -> None:
    """Symptom: an OffsetFetch that named 150,000 partitions held up everybody's heartbeats for most of a second. Cause:
    its answer was made, and written, in one piece. Here: it is the same answer, in the order of asking."""
    with Broker() as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1)
        assert commit(client, 7) == 0
        numbers = [*range(1, MANY_PARTITIONS + 10), 0]
        asked = {"groups": [{"group_id": "g", "topics": [{"name": "orders", "partition_indexes": numbers}]}]}
        for version in (8, 9):
            (found,) = client.ask(Api.OFFSET_FETCH, asked, version=version).groups[0].topics
            offsets = {each.partition_index: each.committed_offset for each in found.partitions}
            assert offsets == dict.fromkeys(numbers, -1) | {0: 7}


def test_commits_that_wait_for_one_sync_are_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: under --flush always 4,000 commits that waited for one sync held up everybody for 6 s. Cause: for each
    record to be written, all effects that waited were compared with it. Here: nothing is compared, and all of them
    share a few syncs."""
    compared = 0

    def same(one: object, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one is other

    for kind in (Persist, Reply):
        monkeypatch.setattr(kind, "__eq__", same)
    many = 300
    answers: list[Any] = []

    def ask(state: State) -> None:
        for number in range(many):
            offsets = {TopicPartition("orders", 0): OffsetEntry(number)}
            state.groups.ask(CommitRequest(group=f"g{number}", offsets=offsets), answers.append)

    with Broker(data=tmp_path, flush="always") as broker:
        broker.topics.create("orders", 1)
        broker.call(ask)
        wait_for(lambda: len(answers) == many)
        assert {error for answer in answers for error in answer.errors.values()} == {ErrorCode.NONE}
        assert compared == 0
        broker.restart()
        with RawClient(broker) as client:
            assert [committed(client, f"g{number}") for number in (0, many - 1)] == [0, many - 1]


@pytest.mark.parametrize("ask", ["offsets", "deletion"])
def test_what_needs_no_sync_waits_for_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """Symptom: under --flush always, OffsetFetch and DeleteGroups failed with UNKNOWN_SERVER_ERROR while somebody's
    commit waited for its sync. Cause: they took for granted that their answer comes at once, and it was queued behind
    the commit's. Here: they get it as soon as the commit is on disk."""
    gate, begun = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").readlink().parent.name == "groups":
            begun.set()
            assert gate.wait(PATIENCE_S)
        real(number)

    with (
        Broker(data=tmp_path / "data", flush="always") as broker,
        RawClient(broker) as first,
        RawClient(broker) as second,
        RawClient(broker) as other,
    ):
        broker.topics.create("orders", 1)
        assert commit(second, 7, group="idle") == 0
        monkeypatch.setattr(os, "fdatasync", slow)
        body = {
            "group_id": "busy",
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        }
        first.send(first.request(Api.OFFSET_COMMIT, Api.OFFSET_COMMIT.highest, body))
        assert begun.wait(PATIENCE_S)
        threading.Timer(0, _open_when_asked, (broker, gate)).start()
        if ask == "offsets":
            assert committed(second, "idle") == 7
        else:
            assert second.ask(Api.DELETE_GROUPS, {"groups_names": ["idle", "none"]}).results[0].error_code == 0
            assert committed(other, "idle") == -1


def _open_when_asked(broker: Broker, gate: threading.Event) -> None:
    """Let the sync end once the second request is in work."""
    wait_for(lambda: sum(each.busy for each in broker.call(lambda _state: server_of(broker).connections)) == 2)
    gate.set()
