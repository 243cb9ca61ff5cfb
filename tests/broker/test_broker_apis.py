"""Every API in every version we offer: an empty request is answered, and so is every refusal."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from raw_client import RawClient

from holdfast.broker import apis
from holdfast.broker.apis import SERVED
from holdfast.broker.exchange import Exchange, Parts
from holdfast.model import ErrorCode
from holdfast.testing.broker import Broker
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.cursor import join
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from holdfast.wire.frames import read_request_header
from holdfast.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from holdfast.wire.schema import Struct, message

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.schema}-{version}") for api, versions in SERVED.items() for version in versions
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", 2)
        yield running


def filled(part: Struct) -> dict[str, Any]:
    """A value for every field, with one item in every array: a request that asks for something."""
    return {field.name: _filled_field(field) for field in part.fields if field.tag is None}


def _filled_field(field: Any) -> Any:
    if field.struct is not None:
        value: Any = filled(field.struct)
    elif field.kind == "string":
        value = "orders"
    elif field.kind in ("bytes", "records"):
        value = b""
    elif field.kind == "uuid":
        value = None
    else:
        value = False if field.kind == "bool" else 0
    return [value] if field.array else value


def frame_of(api: Api, version: int) -> bytes:
    """A request for one topic, group or resource."""
    if api is Api.PRODUCE:
        topics = (ProduceTopic(topic="orders", partitions=(ProducePartition(partition=0, records=b""),)),)
        return join(encode_produce_request(version, 1, "test", ProduceRequest(topics=topics)))
    if api is Api.FETCH:
        asked = (FetchTopic(topic="orders", partitions=(FetchPartition(partition=0, offset=0),)),)
        return encode_fetch_request(version, 1, "test", FetchRequest(max_wait_ms=0, topics=asked))
    body = filled(message(api, version, "request"))
    if api is Api.API_VERSIONS:
        body = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    return codec.encode_request(api, version, 1, "test", body)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_request_is_answered_in_its_own_version(broker: Broker, api: Api, version: int) -> None:
    with RawClient(broker) as client:
        client.send(frame_of(api, version))

        answer = codec.decode_response(api, version, client.receive())

        assert answer.correlation_id == 1
        assert client.ask(Api.API_VERSIONS, version=0).error_code == 0, "the connection goes on"


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_refusal_can_be_said_in_every_version(api: Api, version: int) -> None:
    frame = frame_of(api, version)[4:]
    header = read_request_header(frame)
    module = apis.module(api)
    body = module.decode(memoryview(frame), header, api)
    request = codec.RequestFrame(api=api, version=version, correlation_id=1, client_id="test", body=body)

    refused = module.refuse(Exchange(request, SimpleNamespace(host="h", node_id=0, principal=None)), ErrorCode(-1))

    encoded = (
        join(list(refused.parts)) if isinstance(refused, Parts) else codec.encode_response(api, version, 1, refused)
    )
    assert b"\xff\xff" in encoded, "the error code is somewhere in it"
    assert codec.decode_response(api, version, encoded[4:]).correlation_id == 1


def test_what_is_not_implemented_is_not_advertised(broker: Broker) -> None:
    with RawClient(broker) as client:
        answer = client.ask(Api.API_VERSIONS, {"client_software_name": "test", "client_software_version": "1"})

    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    transactions = {24, 25, 26, 28, 65, 66}
    next_protocol = {68, 69, 76, 77, 78, 79}
    assert not offered.keys() & (transactions | next_protocol)
    assert offered.keys() == {api.key for api in SERVED}
    assert offered[Api.SASL_HANDSHAKE.key] == (1, 1)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: Broker) -> None:
    with RawClient(broker) as client:
        frame = bytearray(client.request(Api.API_VERSIONS, 4, {}))
        frame[6:8] = (99).to_bytes(2, "big")
        client.send(bytes(frame))

        answer = codec.decode_response(Api.API_VERSIONS, 0, client.receive()).body

        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {entry.api_key for entry in answer.api_keys} == {api.key for api in SERVED}
        assert client.ask(Api.API_VERSIONS, version=2).error_code == 0


def test_a_client_name_that_could_forge_log_lines_is_refused(broker: Broker) -> None:
    with RawClient(broker) as client:
        answer = client.ask(Api.API_VERSIONS, {"client_software_name": "a\nb", "client_software_version": "1"})

        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [24, 68, 999])
def test_an_api_that_is_not_served_closes_the_connection(broker: Broker, key: int) -> None:
    with RawClient(broker) as client:
        frame = bytearray(client.request(Api.API_VERSIONS, 0, {}))
        frame[4:6] = key.to_bytes(2, "big")
        client.send(bytes(frame))

        assert client.is_closed()
