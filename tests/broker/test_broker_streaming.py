"""Large answers go from the file to the socket without passing through Python; they must be as right as the small
ones."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import make_certificates
from raw_client import RawClient, batch, server_of

from holdfast.broker.limits import Limits
from holdfast.broker.settings import Security
from holdfast.records.batch import iter_records
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, decode_fetch_response
from patience import wait_for

MIB = 1024 * 1024
BATCHES = 8
VALUES = [bytes([number]) * (600 * 1024) for number in range(BATCHES)]


def fill(client: RawClient, partitions: int = 2) -> None:
    for partition in range(partitions):
        for value in VALUES:
            client.produce("orders", batch([value]), partition=partition)


def everything(partitions: int = 2) -> FetchRequest:
    asked = tuple(FetchPartition(partition=number, offset=0, max_bytes=16 * MIB) for number in range(partitions))
    return FetchRequest(max_wait_ms=0, topics=(FetchTopic(topic="orders", partitions=asked),))


def values(answer: FetchResponse, partition: int) -> list[bytes | None]:
    found = answer.topics[0].partitions[partition]
    return [record.value for record in iter_records(join(list(found.records)))]


def streams(broker: Broker) -> int:
    server = server_of(broker)
    return broker.call(lambda _state: sum(connection.streaming for connection in server.connections))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data") as running:
        running.topics.create("orders", 2)
        yield running


def test_a_large_answer_holds_every_record_and_the_next_answer_follows_it(broker: Broker) -> None:
    with RawClient(broker) as client:
        fill(client)
        client.send_fetch(everything())
        client.send(client.request(Api.API_VERSIONS, 0, {}))

        answer = decode_fetch_response(12, client.receive())
        behind = client.receive()

    assert [values(answer, partition) for partition in (0, 1)] == [VALUES, VALUES]
    assert len(behind) > 100, "the answer to ApiVersions"


def test_the_same_answer_comes_through_tls_where_files_can_t_be_sent(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    security = Security(certificate=folder / "server.pem", key=folder / "server.key")
    with Broker(data=tmp_path / "data", security=security) as broker:
        broker.topics.create("orders", 1)
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        with RawClient(broker, tls=context) as client:
            fill(client, 1)
            answer = client.fetch(everything(1))

    assert values(answer, 0) == VALUES


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker) as writer:
        fill(writer)
        with RawClient(broker) as client:
            client.send_fetch(everything())
            wait_for(lambda: streams(broker) == 1)
        writer.ask(Api.API_VERSIONS, version=0)
        wait_for(lambda: broker.connections() == 1)
        wait_for(lambda: broker.call(_tasks) == 0)


def _tasks(state: object) -> int:
    return len([task for task in asyncio.all_tasks() if not task.done() and "_send_files" in repr(task)])


def test_others_are_served_while_a_slow_client_takes_its_time(broker: Broker) -> None:
    with RawClient(broker) as slow, RawClient(broker) as other:
        fill(other)
        slow.send_fetch(everything())
        wait_for(lambda: streams(broker) == 1)
        other.produce("orders", [b"x"])
        assert other.ask(Api.API_VERSIONS, version=0).error_code == 0

        assert values(decode_fetch_response(12, slow.receive()), 0) == VALUES


@pytest.mark.slow
def test_a_client_that_takes_nothing_at_all_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Broker(data=tmp_path / "data", limits=Limits(idle_seconds=2.0)) as broker:
        broker.topics.create("orders", 2)
        with RawClient(broker) as deaf:
            fill(deaf)
            deaf.send_fetch(everything())
            wait_for(lambda: broker.connections() == 0)
    assert len([line for line in caplog.messages if "stopped reading" in line]) == 1


def test_a_deleted_topic_is_still_sent_to_whoever_began_to_read_it(broker: Broker) -> None:
    with RawClient(broker) as client, RawClient(broker) as admin:
        fill(client)
        client.send_fetch(everything())
        wait_for(lambda: streams(broker) == 1)
        admin.ask(Api.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]})

        assert values(decode_fetch_response(12, client.receive()), 1) == VALUES
