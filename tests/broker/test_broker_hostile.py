"""Clients that want too much: everybody else is served as if they were not there."""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from crc32c import crc32c
from raw_client import Closed, RawClient, batch, server_of

from holdfast.broker import slices
from holdfast.broker.apis import api_versions, leave_group, offset_commit
from holdfast.broker.collector import Collector
from holdfast.broker.limits import MIB, Limits
from holdfast.broker.room import Room
from holdfast.broker.slices import InThread, Slices, Steps, at_once
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.topics import create
from holdfast.group.coordinator.coordinator import Coordinator
from holdfast.group.messages import LeaveRequest
from holdfast.model import ErrorCode
from holdfast.records import batch as records
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from patience import wait_for


def produce_frame(topic: str, size: int) -> bytes:
    partition = ProducePartition(partition=0, records=batch([b"x" * size]))
    request = ProduceRequest(acks=-1, topics=(ProduceTopic(topic=topic, partitions=(partition,)),))
    return join(encode_produce_request(12, 1, "raw", request))


def with_large_topic(broker: Broker, name: str = "large") -> None:
    broker.topics.create(name, 1, configs={"max.message.bytes": str(4 * MIB)})


def in_flight(broker: Broker) -> int:
    server = server_of(broker)
    return broker.call(lambda _state: server.bytes_in_flight)


# -- large frames


def test_producers_of_large_frames_take_turns_and_all_of_them_are_served() -> None:
    """Symptom: of 80 producers of 2 MiB, 18 were never served and 36 lost their connection. Cause: room was handed out
    piece by piece, so that many had half of what they needed and nobody could finish; and a connection that waited for
    us was closed for being slow. Rule: a large frame waits in line for all the room it needs, and its time is counted
    from then on.
    """
    producers, rounds = 24, 3
    failures: list[str] = []
    frame = produce_frame("large", 2 * MIB)
    with Broker(limits=Limits(max_bytes_in_flight=8 * MIB, frame_seconds=8.0)) as broker:
        with_large_topic(broker)
        half_sent = threading.Barrier(producers)

        def produce() -> None:
            try:
                with RawClient(broker) as client:
                    client.socket.settimeout(120)
                    for number in range(rounds):
                        # Everybody has begun before anybody goes on: as much as the system takes for us.
                        client.send(frame[:100_000])
                        if number == 0:
                            half_sent.wait(60)
                        client.send(frame[100_000:])
                        client.receive()
            except (OSError, Closed, threading.BrokenBarrierError) as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=produce) for _ in range(producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(180)

        assert failures == []
        assert broker.topics.count("large") == producers * rounds
        assert in_flight(broker) <= 8 * MIB


def test_a_connection_that_waits_for_room_is_not_closed_for_being_slow() -> None:
    """The one that has the room and does not use it is the one to go."""
    frame = produce_frame("large", 2 * MIB)
    with Broker(limits=Limits(max_bytes_in_flight=3 * MIB, frame_seconds=3.0)) as broker:
        with_large_topic(broker)
        with RawClient(broker) as holder, RawClient(broker) as patient:
            patient.socket.settimeout(60)
            holder.send(frame[:1_500_000])
            wait_for(lambda: in_flight(broker) > 1 * MIB)
            began = time.monotonic()
            sender = threading.Thread(target=patient.send, args=(frame,))
            sender.start()

            assert holder.is_closed()
            assert time.monotonic() - began > 1.0, "it had its time"
            assert patient.receive()
            sender.join(30)
        assert broker.topics.count("large") == 1


def test_small_requests_need_no_room() -> None:
    frame = produce_frame("large", 2 * MIB)
    with Broker(limits=Limits(max_bytes_in_flight=1 * MIB, frame_seconds=60.0)) as broker:
        with_large_topic(broker)
        with RawClient(broker) as holder, RawClient(broker) as waits, RawClient(broker) as small:
            holder.send(frame[:200_000])
            wait_for(lambda: in_flight(broker) > 1 * MIB)
            waits.send(frame[:200_000])
            response = small.produce("large", [b"x" * 1_000])

            assert response is not None
            assert response.topics[0].partitions[0].error == 0


class _Guest:
    def __init__(self) -> None:
        self.granted = 0

    def room_granted(self, count: int) -> None:
        self.granted += count


def test_room_is_given_in_the_order_of_asking_and_never_more_than_there_is() -> None:
    room = Room(100)
    guests = [_Guest() for _ in range(4)]
    assert room.ask(guests[0], 60)
    assert not room.ask(guests[1], 50)
    assert not room.ask(guests[2], 10), "it would fit, but somebody came before"
    assert not room.ask(guests[3], 90)
    room.forget(guests[2])
    assert (guests[1].granted, room.waiting) == (0, 2)

    room.release(60)
    assert [guest.granted for guest in guests] == [0, 50, 0, 0]
    room.release(50)
    assert [guest.granted for guest in guests] == [0, 50, 0, 90]
    room.release(90)
    assert (room.taken, room.waiting) == (0, 0)


def test_a_frame_larger_than_all_room_is_taken_when_nobody_else_has_any() -> None:
    room = Room(100)
    first, second = _Guest(), _Guest()
    assert room.ask(first, 500)
    assert not room.ask(second, 500)
    room.release(500)
    assert second.granted == 500


def test_who_does_not_take_his_answers_goes_when_too_many_of_those_wait() -> None:
    """Answers that nobody takes are bounded over all connections, not only for each."""
    limits = Limits(max_bytes_unsent=3 * MIB)
    with Broker(limits=limits) as broker, RawClient(broker) as writer:
        for number in range(8):
            _join(writer, f"group-{number}", MIB // 2)
        deaf = [RawClient(broker) for _ in range(16)]
        names = {"groups": [f"group-{number}" for number in range(8)]}
        for client in deaf:
            for _ in range(4):  # the system takes some of what nobody reads; more than this it does not
                client.send(client.request(Api.DESCRIBE_GROUPS, 5, names))
        wait_for(lambda: broker.connections() < 17)
        assert broker.call(lambda state: state.unsent_bytes()) <= limits.max_bytes_unsent
        assert writer.ask(Api.API_VERSIONS, version=0).error_code == 0
        for client in deaf:
            client.socket.close()


# -- repeated names


def _join(client: RawClient, group: str, size: int) -> None:
    """One member with so many bytes of metadata."""
    body = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m" * size}],
    }
    answer = client.ask(Api.JOIN_GROUP, body, version=3)
    assert answer.error_code == 0
    sync = {
        "group_id": group,
        "generation_id": answer.generation_id,
        "member_id": answer.member_id,
        "assignments": [{"member_id": answer.member_id, "assignment": b""}],
    }
    assert client.ask(Api.SYNC_GROUP, sync, version=2).error_code == 0


def test_a_group_that_is_named_400_times_is_described_once(holdfast_broker: Broker) -> None:
    """Symptom: a request of 4 KB made an answer of 1.2 GB. Rule: whatever is named again is answered once."""
    with RawClient(holdfast_broker) as client:
        _join(client, "g", 1_000)
        described = client.ask(Api.DESCRIBE_GROUPS, {"groups": ["g"] * 400}, version=5)
        fetched = client.ask(Api.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": None}] * 400}, version=8)
        found = client.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"] * 400}, version=4)

    assert [group.group_id for group in described.groups] == ["g"]
    assert [group.group_id for group in fetched.groups] == ["g"]
    assert [each.key for each in found.coordinators] == ["g"]


def test_a_long_description_is_given_in_parts() -> None:
    """The size is known before the answer is made: what would not fit is left for the client's next request."""
    names = ["a", "b", "c"]
    with Broker(limits=Limits(max_description_bytes=1_500)) as broker, RawClient(broker) as client:
        for name in names:
            _join(client, name, 1_000)
        first = client.ask(Api.DESCRIBE_GROUPS, {"groups": names}).groups
        again = client.ask(Api.DESCRIBE_GROUPS, {"groups": names[1:]}).groups

    later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [(group.group_id, group.error_code) for group in first] == [("a", 0), ("b", later), ("c", later)]
    assert len(first[0].members) == 1
    assert [(group.group_id, group.error_code) for group in again] == [("b", 0), ("c", later)]


def test_settings_of_a_topic_that_is_named_often_are_described_once(holdfast_broker: Broker) -> None:
    """Symptom: DescribeConfigs with one name many times stalled everybody for 10 s. A broker's number that is none
    makes no list of settings either."""
    holdfast_broker.topics.create("orders", 1)
    resources = [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}] * 1_000
    strangers = [{"resource_type": 4, "resource_name": "x", "configuration_keys": None}]
    with RawClient(holdfast_broker) as client:
        results = client.ask(Api.DESCRIBE_CONFIGS, {"resources": resources + strangers}).results

    assert [(each.resource_name, each.error_code) for each in results] == [
        ("orders", 0),
        ("x", ErrorCode.INVALID_REQUEST),
    ]


def test_a_resource_that_is_changed_twice_in_one_request_is_not_changed(holdfast_broker: Broker) -> None:
    holdfast_broker.topics.create("orders", 1)
    changes = [
        {
            "resource_type": 2,
            "resource_name": "orders",
            "configs": [{"name": "segment.bytes", "config_operation": 0, "value": str(value)}],
        }
        for value in (1_048_576, 2_097_152)
    ]
    with RawClient(holdfast_broker) as client:
        answer = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": changes})

    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]
    topic = holdfast_broker.call(lambda state: state.store.topic("orders"))
    assert topic is not None and dict(topic.configs) == {}


# -- long work


NAMES = {"topics": [{"name": f"new-{number}"} for number in range(500)], "allow_auto_topic_creation": True}
ONE_TOPIC = {"topics": [{"name": "large"}], "allow_auto_topic_creation": False}


@pytest.mark.parametrize(
    ("step", "asked", "steps"),
    [("topic_refusal", NAMES, 500), ("replicas", ONE_TOPIC, 2_000)],
    ids=["many names", "one topic of many partitions"],
)
def test_a_request_of_many_things_lets_others_in_between(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str, asked: Any, steps: int
) -> None:
    """Symptom: 9,000 new names in one Metadata request held everybody up for 36 s; one name of a topic of 10,000
    partitions for 47 ms. Rule: work that grows with a request is done in slices, and the loop serves others between
    them."""
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()
    real, handle = getattr(State, step), api_versions.handle
    holdfast_broker.topics.create("large", 2_000)

    def slow(*arguments: Any) -> Any:
        """Called once for each thing that is asked for."""
        order.append("step")
        if len(order) == 5:
            begun.set()
            go_on.wait(30)
        return real(*arguments)

    def seen(*arguments: Any) -> Any:
        order.append("other")
        return handle(*arguments)

    monkeypatch.setattr(State, step, slow)
    monkeypatch.setattr(slices, "FIRST_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    with RawClient(holdfast_broker) as client, RawClient(holdfast_broker) as other:
        other.ask(Api.API_VERSIONS, version=0)
        from holdfast.broker import apis

        module = apis.module(Api.API_VERSIONS)
        monkeypatch.setitem(apis.loaded_modules, Api.API_VERSIONS, apis.Module(seen, module.refuse, module.decode))
        client.send(client.request(Api.METADATA, 9, asked))
        assert begun.wait(30)
        other.send(other.request(Api.API_VERSIONS, 0, {}))
        go_on.set()
        other.receive()
        client.receive()

    assert order.count("step") == steps
    assert order.index("other") < steps // 4, "it came while most was still to be done"
    assert len(holdfast_broker.topics.names()) == (501 if asked is NAMES else 1)


def test_a_commit_of_very_many_partitions_is_read_and_answered_beside_the_loop(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: an OffsetCommit that named 200,000 partitions held up everybody for more than a second. Cause: what it
    asks was put together, and its answer written, in one piece on the event loop. Here: the same answer."""
    threads: set[str] = set()

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            threads.add(threading.current_thread().name)
            return work(*arguments)

        return run

    for name in ("request_of", "body_of_answer"):
        monkeypatch.setattr(offset_commit, name, watched(getattr(offset_commit, name)))
    holdfast_broker.topics.create("orders", 2)
    loop = holdfast_broker.call(lambda _state: threading.current_thread().name)
    numbers = range(20_000)
    partitions = [{"partition_index": number, "committed_offset": 7} for number in numbers]
    body = {
        "group_id": "g",
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "orders", "partitions": partitions}],
    }
    with RawClient(holdfast_broker) as client:
        (topic,) = client.ask(Api.OFFSET_COMMIT, body).topics
    missing = dict.fromkeys(numbers, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert {each.partition_index: each.error_code for each in topic.partitions} == missing | {0: 0, 1: 0}
    assert loop not in threads


def test_a_request_that_removes_very_many_members_is_worked_on_in_pieces(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a LeaveGroup that named 200,000 members held up everybody for half a second. Cause: it was read, judged
    and answered in one piece on the event loop. Here: the same answer, and who was a member is gone."""
    threads: set[str] = set()
    pieces: list[int] = []
    handle = Coordinator.handle

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            threads.add(threading.current_thread().name)
            return work(*arguments, **named)

        return run

    def counted(coordinator: Coordinator, token: object, request: Any, now: float) -> Any:
        if isinstance(request, LeaveRequest):
            pieces.append(len(request.members))
        return handle(coordinator, token, request, now)

    for name in ("request_of", "body_of_answer"):
        monkeypatch.setattr(leave_group, name, watched(getattr(leave_group, name)))
    monkeypatch.setattr(Coordinator, "handle", counted)
    loop = holdfast_broker.call(lambda _state: threading.current_thread().name)
    with RawClient(holdfast_broker) as client:
        _join(client, "g", 100)
        (member,) = client.ask(Api.DESCRIBE_GROUPS, {"groups": ["g"]}).groups[0].members
        names = [f"nobody-{number}" for number in range(5_000)]
        names[2_500] = member.member_id
        answer = client.ask(Api.LEAVE_GROUP, {"group_id": "g", "members": [{"member_id": name} for name in names]})

    unknown = dict.fromkeys(names, ErrorCode.UNKNOWN_MEMBER_ID)
    assert [(each.member_id, each.error_code) for each in answer.members] == list(
        (unknown | {member.member_id: 0}).items()
    )
    assert loop not in threads
    assert pieces == [1_000] * 5
    assert holdfast_broker.group("g").members == ()


def test_a_large_request_is_not_looked_through_for_garbage(holdfast_broker: Broker) -> None:
    """Symptom: requests of 200,000 things held up everybody for 80 ms several times, though they were worked on in
    slices. Cause: full collections of garbage, which look at all objects in one piece. Rule: none comes while a large
    request is in work, and then things are as they were."""
    import gc

    full: list[str] = []

    def collected(phase: str, found: dict[str, int]) -> None:
        if phase == "start" and found["generation"] == 2:
            full.append(threading.current_thread().name)

    names = [{"name": f"absent-{number}"} for number in range(50_000)]
    asked = {"topics": names, "allow_auto_topic_creation": False}
    with RawClient(holdfast_broker) as client:
        frame = client.request(Api.METADATA, 9, asked)
        before = gc.get_threshold()
        gc.collect()
        gc.freeze()  # what is there by now does not count, so that few new objects bring a full collection
        gc.collect()
        gc.callbacks.append(collected)
        try:
            client.send(frame)
            client.receive()
        finally:
            gc.callbacks.remove(collected)
            gc.unfreeze()
        assert client.ask(Api.API_VERSIONS, version=0).error_code == 0
    assert full == []
    assert gc.get_threshold() == before


class _Freed(dict[str, Any]):
    """An item of an answer that tells when it is freed."""

    freed: ClassVar[list[str]] = []

    def __del__(self) -> None:
        self.freed.append("item")


def test_a_long_answer_is_freed_in_slices(holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the turn of the loop in which an answer of half a million items was done took 80 ms. Cause: all of them
    were freed at once."""
    body = {"error_code": 0, "groups": [_Freed(group_id="g", protocol_type="consumer") for _ in range(5_000)]}
    order = _Freed.freed
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)

    def handle(*_: object) -> Any:
        yield None
        answer = dict(body)
        body.clear()
        return answer

    def turn() -> None:
        if order[-1:] != ["end"]:
            order.append("turn")
            asyncio.get_running_loop().call_soon(turn)

    from holdfast.broker import apis

    with RawClient(holdfast_broker) as client:
        module = apis.module(Api.LIST_GROUPS)
        monkeypatch.setitem(apis.loaded_modules, Api.LIST_GROUPS, apis.Module(handle, module.refuse, module.decode))
        holdfast_broker.call(lambda _state: turn())
        answer = client.ask(Api.LIST_GROUPS)
        wait_for(lambda: order.count("item") == 5_000)
        holdfast_broker.call(lambda _state: order.append("end"))
    assert len(answer.groups) == 5_000
    assert max(len(part) for part in "".join(each[0] for each in order).split("t")) <= 200


class _Name(str):
    """Counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        type(self).looked_up += 1
        return super().__hash__()


@pytest.mark.parametrize("api", [Api.DESCRIBE_GROUPS, Api.DELETE_GROUPS, Api.FIND_COORDINATOR, Api.METADATA])
def test_what_a_request_names_is_looked_up_in_slices(holdfast_broker: Broker, api: Api) -> None:
    """Symptom: the names of half a million groups, or topics, held up everybody for 80 to 110 ms in one turn of the
    loop. Cause: what comes twice was left out, or what is to be created was found, in one piece."""
    from holdfast.broker import apis

    names = [_Name(f"name-{number}") for number in range(5_000)]
    body = SimpleNamespace(
        groups=names,
        groups_names=names,
        key_type=0,
        coordinator_keys=names,
        topics=[SimpleNamespace(name=name, topic_id=None) for name in names],
        allow_auto_topic_creation=False,
    )

    def most_at_a_time(state: State) -> int:
        client = SimpleNamespace(principal=None, host="127.0.0.1", node_id=0)
        frame = SimpleNamespace(body=body, version=4)
        exchange: Any = SimpleNamespace(body=body, client=client, version=4, api=api, frame=frame)
        steps = apis.module(api).handle(exchange, state)
        most, before = 0, _Name.looked_up
        for _ in steps:  # type: ignore[union-attr]  # it is a generator
            most = max(most, _Name.looked_up - before)
            before = _Name.looked_up
        return most

    assert holdfast_broker.call(most_at_a_time) < 1_000


def test_brokers_of_one_process_leave_the_collector_s_settings_as_they_were() -> None:
    import gc

    before = gc.get_threshold()
    first, second = Collector(), Collector()
    try:
        first.hold_off()
        second.hold_off()
        first.let_go()
        second.let_go()
        assert gc.get_threshold() == before
        first.hold_off()
        gc.set_threshold(1_000, 20, 30)
        first.let_go()
        assert gc.get_threshold() == (1_000, 20, 30), "somebody else's setting stays"
    finally:
        gc.set_threshold(*before)


def test_a_new_name_is_compared_only_with_names_that_are_like_it(holdfast_broker: Broker) -> None:
    """Symptom: with 9,000 topics every new one cost milliseconds of the loop, and a hundred are made at a time. Cause:
    its name was compared with all others, because of "." and "_"."""
    for number in range(300):
        holdfast_broker.topics.create(f"some_{number:03d}", 1)

    def calls(state: State) -> int:
        seen: list[object] = []
        sys.setprofile(lambda _frame, event, what: seen.append(what) if event == "c_call" else None)
        try:
            create(state, "some_300")
        finally:
            sys.setprofile(None)
        return len(seen)

    assert holdfast_broker.call(calls) < 300
    for taken in ("some.007", "some.300"):
        with pytest.raises(StorageError, match="collides"):
            holdfast_broker.topics.create(taken, 1)


def test_a_search_by_time_in_a_batch_does_not_hold_up_anybody(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: ListOffsets by time in one large compressed batch held the loop for 2.5 s. Rule: a batch is looked into
    beside the loop."""
    holdfast_broker.topics.create("orders", 1)
    begun, go_on = threading.Event(), threading.Event()
    verify = records.verify_crc

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(30), "nobody else was served meanwhile"
        return verify(*arguments)

    asked = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": 1_003}]}]}
    with RawClient(holdfast_broker) as client, RawClient(holdfast_broker) as other:
        client.produce("orders", batch([b"x"] * 10, codec=1))
        monkeypatch.setattr(records, "verify_crc", slow)
        client.send(client.request(Api.LIST_OFFSETS, 6, {"replica_id": -1, **asked}))
        assert begun.wait(30)
        assert other.ask(Api.API_VERSIONS, version=0).error_code == 0
        go_on.set()
        from holdfast.wire import codec

        (found,) = codec.decode_response(Api.LIST_OFFSETS, 6, client.receive()).body.topics[0].partitions

    assert (found.error_code, found.offset, found.timestamp) == (0, 3, 1_003)


def test_one_large_request_is_in_work_at_a_time(holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request's objects take forty times its bytes: a crowd of large ones, all read at once, would fill the memory.
    Those behind wait unread, and whoever is small passes them all."""
    begun, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []
    overtaken: list[bool] = []
    refusal = State.topic_refusal

    def slow_refusal(state: State, exchange: Any, *arguments: Any) -> Any:
        if not any(each is exchange for each in seen):
            overtaken.append(not all(each.done for each in seen))
            seen.append(exchange)
            begun.set()
            go_on.wait(30)
        return refusal(state, exchange, *arguments)

    monkeypatch.setattr(State, "topic_refusal", slow_refusal)
    names = {"topics": [{"name": f"absent-{number:0240}"} for number in range(400)], "allow_auto_topic_creation": False}
    with RawClient(holdfast_broker) as other:
        clients = [RawClient(holdfast_broker) for _ in range(5)]
        for client in clients:
            frame = client.request(Api.METADATA, 9, names)
            assert len(frame) > 64 * 1024
            client.send(frame)
        assert begun.wait(30)
        go_on.set()
        assert other.ask(Api.API_VERSIONS, version=0).error_code == 0
        for client in clients:
            assert client.receive()
            client.socket.close()
    assert overtaken == [False] * 5


def test_a_large_request_that_can_t_be_read_costs_its_connection_and_not_the_turn_of_others(
    holdfast_broker: Broker,
) -> None:
    body = {"topics": [{"name": f"absent-{number:0240}"} for number in range(400)]}
    with RawClient(holdfast_broker) as broken, RawClient(holdfast_broker) as good:
        frame = broken.request(Api.METADATA, 1, body)
        header = 4 + 8 + 2 + len("raw")
        broken.send(frame[:header] + b"\x7f" * (len(frame) - header))
        assert broken.is_closed()
        good.send(good.request(Api.METADATA, 1, body))
        assert good.receive()


def test_a_request_is_forgotten_when_it_is_done_and_not_when_garbage_is_collected() -> None:
    """Symptom: 750 MB resident under producers of 2 MiB. Cause: every request held itself, with its bytes, until the
    collector came by. Rule: what is done is free."""
    import gc
    import weakref

    from holdfast.broker import dispatch
    from holdfast.broker.exchange import Exchange

    class Watched(Exchange):
        __slots__ = ("__weakref__",)

    alive: list[weakref.ref[Exchange]] = []

    def watched(*arguments: Any) -> Exchange:
        exchange = Watched(*arguments)
        alive.append(weakref.ref(exchange))
        return exchange

    with Broker() as broker, RawClient(broker) as client, pytest.MonkeyPatch.context() as patch:
        broker.topics.create("orders", 1)
        patch.setattr(dispatch, "Exchange", watched)
        gc.disable()
        try:
            for _ in range(5):
                client.produce("orders", [b"x" * 200_000])
                client.ask(Api.METADATA, {"topics": None}, version=9)
            wait_for(lambda: sum(ref() is not None for ref in alive) <= 1)
        finally:
            gc.enable()
    assert len(alive) == 10


def test_steps_that_fail_or_whose_client_is_gone_end() -> None:
    def failing() -> Steps:
        yield None
        raise ValueError("a mistake")

    def never() -> Steps:
        raise AssertionError("nobody is there to answer")
        yield

    found: list[Any] = []

    def finished(outcome: Callable[[], Any]) -> None:
        try:
            found.append(outcome())
        except ValueError as error:
            found.append(str(error))

    work = Slices()
    work.run(failing(), finished)
    work.run(never(), finished, lambda: True)
    assert found == ["a mistake"]

    def threaded() -> Steps:
        return (yield InThread(lambda: 7, "check"))

    assert at_once(threaded()) == 7


# -- poison


def _with(data: bytes, **fields: int) -> bytes:
    """A batch with other values in its header and a checksum that fits."""
    places = {"attributes": (">h", 21), "last_offset_delta": (">i", 23), "records": (">i", 57)}
    changed = bytearray(data)
    for name, value in fields.items():
        form, at = places[name]
        struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


PLAIN = batch([b"one", b"two", b"three"])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_is_not_compressed_as_it_says_is_refused(holdfast_broker: Broker, codec: int) -> None:
    """Symptom: a batch with the gzip flag over plain bytes was stored, and every reader stumbled on it for ever. Rule:
    what no reader could read is not accepted, and the code is one that no producer takes for a reason to try again."""
    holdfast_broker.topics.create("orders", 1)
    with RawClient(holdfast_broker) as client:
        response = client.produce("orders", _with(PLAIN, attributes=codec))

    assert response is not None
    assert response.topics[0].partitions[0].error == ErrorCode.INVALID_RECORD
    assert holdfast_broker.topics.count("orders") == 0


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 4, 100])
def test_a_batch_with_a_false_number_of_records_is_refused(holdfast_broker: Broker, codec: int, count: int) -> None:
    holdfast_broker.topics.create("orders", 1)
    data = batch([b"one", b"two", b"three"], codec=codec)
    with RawClient(holdfast_broker) as client:
        response = client.produce("orders", _with(data, records=count, last_offset_delta=count - 1))

    assert response is not None
    assert response.topics[0].partitions[0].error == ErrorCode.INVALID_RECORD
    assert holdfast_broker.topics.count("orders") == 0


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_that_unpacks_to_much_is_looked_at_too(holdfast_broker: Broker, codec: int) -> None:
    holdfast_broker.topics.create("orders", 1, configs={"max.message.bytes": str(8 * MIB)})
    data = batch([b"x" * 1_000 for _ in range(5_000)], codec=codec)
    with RawClient(holdfast_broker) as client:
        good = client.produce("orders", data)
        false = client.produce("orders", _with(data, records=4_999, last_offset_delta=4_998))

    assert good is not None
    assert false is not None
    assert good.topics[0].partitions[0].error == 0
    assert false.topics[0].partitions[0].error == ErrorCode.INVALID_RECORD
    assert holdfast_broker.topics.count("orders") == 5_000


def test_a_batch_that_unpacks_to_more_than_anybody_would_hold_is_too_large(holdfast_broker: Broker) -> None:
    """70 MB of zeros in some hundred KB. Java's producer answers this code by sending smaller batches."""
    holdfast_broker.topics.create("orders", 1)
    data = batch([bytes(1_000_000) for _ in range(70)], codec=4)
    with RawClient(holdfast_broker) as client:
        response = client.produce("orders", data)

    assert len(data) < MIB
    assert response is not None
    assert response.topics[0].partitions[0].error == ErrorCode.MESSAGE_TOO_LARGE


def test_acks_0_to_a_partition_that_is_not_there_costs_the_connection(holdfast_broker: Broker) -> None:
    """There is no answer to say it with, and a producer that hears nothing believes that all is well. Kafka closes the
    connection too."""
    holdfast_broker.topics.create("orders", 1)
    with RawClient(holdfast_broker) as client:
        client.produce("orders", [b"x"], partition=7, acks=0)
        assert client.is_closed()


@pytest.mark.parametrize("codec", [0, 1])
def test_what_is_sent_with_acks_0_is_kept_although_its_sender_leaves_at_once(
    holdfast_broker: Broker, codec: int
) -> None:
    """Large batches wait for their turn and are looked at in pieces or beside the loop. Meanwhile the sender is gone,
    as senders with acks=0 are."""
    holdfast_broker.topics.create("orders", 1, configs={"max.message.bytes": str(8 * MIB)})
    data = batch([b"x" * 100 for _ in range(20_000)], codec=codec)
    for _ in range(5):
        with RawClient(holdfast_broker) as client:
            client.produce("orders", data, acks=0)
    wait_for(lambda: holdfast_broker.topics.count("orders") == 100_000)


def test_a_transactional_producer_hears_at_once_that_there_are_no_transactions(holdfast_broker: Broker) -> None:
    """Symptom: init_transactions() waited for its whole time-out. Cause: librdkafka asks again after the error that we
    gave. Rule: an error that every client takes for final."""
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap, "transactional.id": "t", "log_level": 0})
    began = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(60)

    assert time.monotonic() - began < 30, "it did not wait for its time-out"
    assert raised.value.args[0].fatal()
