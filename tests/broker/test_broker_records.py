"""Producing, fetching and finding records, said exactly over one socket."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from raw_client import RawClient, batch

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.sync import Failures, SyncRound
from holdfast.model import ErrorCode, TopicPartition
from holdfast.records.encode import Producer
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast.wire.produce import ProducedPartition, ProduceResponse
from patience import wait_for

LONG_WAIT_MS = 30_000
"""A fetch that is not woken would wait this long: the test's own limit is shorter."""


@pytest.fixture
def broker(holdfast_broker: Broker) -> Broker:
    holdfast_broker.topics.create("orders", 2)
    return holdfast_broker


def produced(response: ProduceResponse | None) -> ProducedPartition:
    assert response is not None
    return response.topics[0].partitions[0]


def fetch_request(offset: int, *, partition: int = 0, topic: str = "orders", **options: Any) -> FetchRequest:
    epoch = options.pop("leader_epoch", -1)
    limit = options.pop("partition_bytes", 1_048_576)
    asked = FetchPartition(partition=partition, offset=offset, leader_epoch=epoch, max_bytes=limit)
    return FetchRequest(topics=(FetchTopic(topic=topic, partitions=(asked,)),), **options)


def fetched(client: RawClient, request: FetchRequest, **options: int) -> FetchedPartition:
    return client.fetch(request, **options).topics[0].partitions[0]


def content(found: FetchedPartition) -> bytes:
    return join(list(found.records))


def test_a_batch_comes_back_as_it_was_sent_but_for_its_offset(broker: Broker) -> None:
    sent = batch([b"one", b"two"])
    with RawClient(broker) as client:
        assert produced(client.produce("orders", sent)).base_offset == 0
        assert produced(client.produce("orders", sent)).base_offset == 2

        found = fetched(client, fetch_request(2, max_wait_ms=0))

    assert content(found)[16:] == sent[16:], "only base offset and leader epoch are the broker's"
    assert int.from_bytes(content(found)[:8], "big") == 2
    assert (found.high_watermark, found.log_start_offset) == (4, 0)


def test_topics_are_known_by_their_ids_too(broker: Broker) -> None:
    topic = broker.call(lambda state: state.store.topic("orders"))
    assert topic is not None
    topic_id = topic.topic_id
    with RawClient(broker) as client:
        answer = client.produce("", [b"a"], version=13, topic_id=topic_id)
        assert answer is not None and answer.topics[0].topic_id == topic_id
        asked = FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0, offset=0),))
        found = client.fetch(FetchRequest(max_wait_ms=0, topics=(asked,)), version=17).topics[0]
        stranger = FetchTopic(topic_id=uuid.uuid4(), partitions=(FetchPartition(partition=0, offset=0),))
        missing = client.fetch(FetchRequest(max_wait_ms=0, topics=(stranger,)), version=17).topics[0]

    assert found.topic_id == topic_id and len(content(found.partitions[0])) > 0
    assert missing.partitions[0].error == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_0_has_no_answer_and_the_record_is_there(broker: Broker) -> None:
    with RawClient(broker) as client:
        client.produce("orders", [b"a"], acks=0)
        client.produce("orders", [b"a"], acks=0)
        assert len(client.ask(Api.METADATA, {"topics": []}).brokers) == 1, "the next answer is to the next request"

    assert broker.topics.count("orders") == 2


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch([b"a"])[:-1], ErrorCode.INVALID_RECORD),
        (batch([b"a"])[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch([b"a"]) * 2, ErrorCode.INVALID_RECORD),
        (batch([b"a"], transactional=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (batch([b"x" * 1_100_000]), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["nothing", "cut short", "bit flip", "two batches", "transactional", "too large"],
)
def test_what_can_t_be_stored_is_refused_and_nothing_is_stored(
    broker: Broker, records: bytes, error: ErrorCode
) -> None:
    with RawClient(broker) as client:
        assert produced(client.produce("orders", records)).error == error

    assert broker.topics.count("orders") == 0


def test_a_disk_that_does_not_sync_acknowledges_nothing(tmp_path: Path) -> None:
    def refuse(taken: SyncRound) -> Failures:
        refused = StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk refused.", "Look at it.")
        return Failures(dict.fromkeys(taken.paths, refused), frozenset())

    with Broker(data=tmp_path / "data", flush="always") as broker, RawClient(broker) as client:
        broker.topics.create("orders", 1)
        assert produced(client.produce("orders", [b"a"])).error == 0
        broker.call(lambda state: setattr(state.store, "finish_sync", refuse))

        assert produced(client.produce("orders", [b"b"])).error == ErrorCode.KAFKA_STORAGE_ERROR
        client.produce("orders", [b"c"], acks=0)
        assert client.is_closed(), "acks=0 has no answer: the connection's end is the only sign"


def test_appends_that_come_during_a_sync_share_the_next(tmp_path: Path) -> None:
    """Group commit: while the first sync is held up, three producers append; one more sync serves them all."""
    rounds: list[object] = []
    gate = threading.Event()
    with Broker(data=tmp_path / "data", flush="always") as broker:
        broker.topics.create("orders", 4)
        broker.call(lambda state: _watch_syncs(state, rounds, gate))
        clients = [RawClient(broker) for _ in range(4)]
        threads = [
            threading.Thread(target=client.produce, args=("orders", [b"x"]), kwargs={"partition": number})
            for number, client in enumerate(clients)
        ]
        threads[0].start()
        wait_for(lambda: len(rounds) == 1)
        for thread in threads[1:]:
            thread.start()
        wait_for(lambda: broker.topics.count("orders") == 4)
        assert clients[0].socket is not None and all(thread.is_alive() for thread in threads), "nobody is answered yet"
        gate.set()
        for thread in threads:
            thread.join(20)
        for client in clients:
            client.socket.close()

    assert len(rounds) == 2


def _watch_syncs(state: Any, rounds: list[object], gate: threading.Event) -> None:
    take = state.store.take_sync

    def taken() -> Any:
        found = take()
        if found is not None:
            rounds.append(found)
            run = found.run
            found = SimpleNamespace(run=lambda: (gate.wait(20), run())[1])
        return found

    state.store.take_sync = taken


def test_records_synced_after_their_producer_left_still_wake_a_fetch(tmp_path: Path) -> None:
    rounds: list[object] = []
    gate = threading.Event()
    with Broker(data=tmp_path / "data", flush="always") as broker, RawClient(broker) as reader:
        broker.topics.create("orders", 2)
        reader.send_fetch(fetch_request(0, max_wait_ms=LONG_WAIT_MS))
        wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 1)
        broker.call(lambda state: _watch_syncs(state, rounds, gate))
        with RawClient(broker) as producer:
            producer.produce("orders", [b"x"], acks=0)
            wait_for(lambda: len(rounds) == 1)
        wait_for(lambda: broker.connections() == 1)
        gate.set()

        assert len(reader.receive()) > 61


def test_a_retry_of_an_idempotent_producer_is_stored_once(broker: Broker) -> None:
    with RawClient(broker) as client:
        producer_id = client.ask(Api.INIT_PRODUCER_ID).producer_id
        first = batch([b"a"], producer=Producer(producer_id=producer_id, epoch=0, base_sequence=0))
        gap = batch([b"c"], producer=Producer(producer_id=producer_id, epoch=0, base_sequence=5))

        answers = [produced(client.produce("orders", sent)) for sent in (first, first, gap)]

    assert [(answer.error, answer.base_offset) for answer in answers] == [
        (0, 0),
        (0, 0),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    ]
    assert broker.topics.count("orders") == 1


def test_producer_ids_are_never_given_twice_and_transactions_are_refused(broker: Broker) -> None:
    with RawClient(broker) as client:
        ids = [client.ask(Api.INIT_PRODUCER_ID).producer_id for _ in range(3)]
        refused = client.ask(Api.INIT_PRODUCER_ID, {"transactional_id": "t"})
        nobody = client.ask(Api.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["t"]}).coordinators[0]

    assert len(set(ids)) == 3
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_waiting_fetch_is_woken_by_an_append(broker: Broker) -> None:
    with RawClient(broker) as reader, RawClient(broker) as writer:
        reader.send_fetch(fetch_request(0, max_wait_ms=LONG_WAIT_MS))
        wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 1)

        began = time.monotonic()
        writer.produce("orders", [b"a"])
        reader.receive()

        assert time.monotonic() - began < LONG_WAIT_MS / 1000 / 2
        assert broker.call(lambda state: len(state.waiting)) == 0


def test_a_fetch_waits_for_its_min_bytes_over_several_partitions(broker: Broker) -> None:
    size = len(batch([b"x" * 100]))
    asked = tuple(FetchPartition(partition=number, offset=0) for number in (0, 1))
    request = FetchRequest(
        max_wait_ms=LONG_WAIT_MS, min_bytes=2 * size, topics=(FetchTopic(topic="orders", partitions=asked),)
    )
    with RawClient(broker) as reader, RawClient(broker) as writer:
        answers: list[FetchResponse] = []
        thread = threading.Thread(target=lambda: answers.append(reader.fetch(request)))
        thread.start()
        wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 1)
        writer.produce("orders", [b"x" * 100], partition=0)
        assert broker.call(lambda state: len(state.waiting)) == 1, "half is not enough"
        writer.produce("orders", [b"x" * 100], partition=1)
        thread.join(20)

    (answer,) = answers
    assert [len(content(each)) for each in answer.topics[0].partitions] == [size, size]


def test_a_fetch_gives_up_waiting_after_its_time(broker: Broker) -> None:
    with RawClient(broker) as client:
        found = fetched(client, fetch_request(0, max_wait_ms=50))

    assert (found.error, content(found)) == (0, b"")


def test_a_client_that_goes_away_leaves_no_waiting_fetch_behind(broker: Broker) -> None:
    with RawClient(broker) as client:
        client.send_fetch(fetch_request(0, max_wait_ms=LONG_WAIT_MS))
        wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 1)

    wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 0)


def test_deleting_a_topic_wakes_those_who_wait_for_it(broker: Broker) -> None:
    with RawClient(broker) as reader, RawClient(broker) as admin:
        reader.send_fetch(fetch_request(0, max_wait_ms=LONG_WAIT_MS))
        wait_for(lambda: broker.call(lambda state: len(state.waiting)) == 1)
        admin.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]})

        assert reader.receive()


def test_the_first_batch_is_sent_even_if_it_is_larger_than_asked_for(broker: Broker) -> None:
    with RawClient(broker) as client:
        client.produce("orders", [b"x" * 5_000])
        client.produce("orders", [b"y" * 5_000])

        found = fetched(client, fetch_request(0, max_wait_ms=0, partition_bytes=100, max_bytes=100))

    assert b"x" * 5_000 in content(found) and b"y" not in content(found)


def test_a_fetch_session_is_declined(broker: Broker) -> None:
    with RawClient(broker) as client:
        opened = client.fetch(fetch_request(0, max_wait_ms=0, session_epoch=0))
        continued = client.fetch(fetch_request(0, max_wait_ms=0, session_id=7, session_epoch=1))

    assert opened.session_id == 0
    assert continued.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch_request(5, max_wait_ms=LONG_WAIT_MS), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(0, partition=9, max_wait_ms=LONG_WAIT_MS), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(0, topic="nowhere", max_wait_ms=LONG_WAIT_MS), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(0, leader_epoch=3, max_wait_ms=LONG_WAIT_MS), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=["beyond the end", "no such partition", "no such topic", "an epoch from elsewhere"],
)
def test_a_fetch_that_can_t_succeed_does_not_wait(broker: Broker, request_: FetchRequest, error: ErrorCode) -> None:
    with RawClient(broker) as client:
        assert fetched(client, request_).error == error


def test_offsets_are_found_by_place_and_by_time(broker: Broker) -> None:
    with RawClient(broker) as client:
        for number in range(3):
            client.produce("orders", batch([b"a", b"b"], timestamp=1_000 * (number + 1)))
        client.ask(
            Api.DELETE_RECORDS, {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]}
        )

        def offset(timestamp: int) -> tuple[int, int]:
            asked = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
            found = client.ask(Api.LIST_OFFSETS, {"replica_id": -1, "topics": [asked]}).topics[0].partitions[0]
            assert found.error_code == 0
            return found.offset, found.timestamp

        assert offset(-2) == (1, -1), "earliest, after records were deleted"
        assert offset(-4) == (1, -1), "earliest local"
        assert offset(-1) == (6, -1), "latest"
        assert offset(-3) == (5, 3_001), "the record with the latest time"
        assert offset(2_000) == (2, 2_000)
        assert offset(2_001) == (3, 2_001)
        assert offset(1_500) == (2, 2_000), "the first one after a time nobody has"
        assert offset(9_999) == (-1, -1), "nothing that late"
        assert offset(-5) == (-1, -1), "nothing is tiered"


def test_records_can_be_deleted_up_to_an_offset_or_all(broker: Broker) -> None:
    with RawClient(broker) as client:
        client.produce("orders", [b"a", b"b", b"c"])

        def delete(offset: int, partition: int = 0) -> tuple[int, int]:
            asked = {"name": "orders", "partitions": [{"partition_index": partition, "offset": offset}]}
            found = client.ask(Api.DELETE_RECORDS, {"topics": [asked]}).topics[0].partitions[0]
            return found.error_code, found.low_watermark

        assert delete(2) == (0, 2)
        assert fetched(client, fetch_request(0, max_wait_ms=0)).error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert delete(-1) == (0, 3)
        assert delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert delete(0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    assert broker.topics.offsets("orders")[TopicPartition("orders", 0)] == (3, 3)


def test_the_only_epoch_has_not_ended(broker: Broker) -> None:
    with RawClient(broker) as client:
        client.produce("orders", [b"a", b"b"])

        def end(epoch: int) -> tuple[int, int]:
            asked = {"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": epoch}]}
            found = client.ask(Api.OFFSET_FOR_LEADER_EPOCH, {"topics": [asked]}).topics[0].partitions[0]
            return found.leader_epoch, found.end_offset

        assert end(0) == (0, 2)
        assert end(4) == (-1, -1)
