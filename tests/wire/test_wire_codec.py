"""Every version of every message, against kio."""

from __future__ import annotations

import importlib
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wire_oracle as oracle

from holdfast.model import ErrorCode
from holdfast.wire import codec, frames
from holdfast.wire.api import Api, common_version
from holdfast.wire.errors import MalformedFrame, UnsupportedVersion
from holdfast.wire.primitives import Source
from holdfast.wire.schema import message


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_every_version_reads_and_writes_as_kio_does(api: Api) -> None:
    random_ = random.Random(api.key)
    for version in api.versions:
        for kind in ("request", "response"):
            part = message(api, version, kind)
            entity = oracle.kio_type(api, version, kind)
            for _ in range(12):
                value = oracle.arbitrary(part, random_)
                theirs = oracle.to_kio(entity, part, value)
                out = bytearray()
                part.write(out, value)
                assert bytes(out) == oracle.kio_bytes(theirs), (version, kind)
                assert oracle.kio_read(entity, bytes(out)) == theirs
                assert part.read(Source(bytes(out)), 0) == (value, len(out))
                assert part.read(Source(memoryview(out)), 0) == (value, len(out))


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_the_table_of_apis_agrees_with_kio(api: Api) -> None:
    from kio.schema.index import api_key_map

    assert api_key_map[api.key] == api.schema
    folder = Path(importlib.import_module(f"kio.schema.{api.schema}").__path__[0])
    known = {int(found.name[1:]) for found in folder.iterdir() if re.fullmatch(r"v\d+", found.name)}
    assert set(api.versions) <= known
    for version in api.versions:
        request, response = (oracle.kio_type(api, version, kind) for kind in ("request", "response"))
        assert request.__api_key__ == response.__api_key__ == api.key
        assert request.__flexible__ is response.__flexible__ is api.flexible(version)
        assert request.__header_schema__.__version__ == (2 if api.flexible(version) else 1)
        expected = 1 if frames.response_header_has_tags(api, version) else 0
        assert response.__header_schema__.__version__ == expected


@pytest.mark.parametrize("client_id", ["me", "", None, "ä"])
@pytest.mark.parametrize(("api", "version"), [(Api.HEARTBEAT, 3), (Api.HEARTBEAT, 4), (Api.API_VERSIONS, 3)])
def test_request_headers_are_kios(api: Api, version: int, client_id: str | None) -> None:
    entity = oracle.kio_type(api, version, "request")
    header = entity.__header_schema__(
        request_api_key=api.key, request_api_version=version, correlation_id=-5, client_id=client_id
    )
    body = oracle.arbitrary(message(api, version, "request"), random.Random(1))
    frame = codec.encode_request(api, version, -5, client_id, body)
    assert frame[4:].startswith(oracle.kio_bytes(header))
    assert frames.frame_size(frame) == len(frame) - 4
    read = codec.decode_request(frame[4:])
    assert (read.api, read.version, read.correlation_id, read.client_id) == (api, version, -5, client_id)
    assert read.body == body


def test_the_response_of_api_versions_never_has_tags_in_its_header() -> None:
    """A client asks a broker of unknown age in version 3; one that is older answers in version 0 (KIP-511)."""
    frame = codec.encode_response(Api.API_VERSIONS, 3, 9, {"error_code": 0})
    assert frame[4:10] == bytes([0, 0, 0, 9, 0, 0])
    assert codec.encode_response(Api.HEARTBEAT, 4, 9, {"error_code": 0})[4:9] == bytes([0, 0, 0, 9, 0])
    assert codec.decode_response(Api.API_VERSIONS, 3, frame[4:]).correlation_id == 9


def test_a_mapping_serves_every_version_and_drops_what_a_version_does_not_have() -> None:
    body = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "static"}
    old = codec.decode_request(codec.encode_request(Api.HEARTBEAT, 0, 1, None, body)[4:]).body
    new = codec.decode_request(codec.encode_request(Api.HEARTBEAT, 4, 1, None, body)[4:]).body
    assert old._asdict() == {"group_id": "g", "generation_id": 3, "member_id": "m"}
    assert new.group_instance_id == "static"


def test_missing_fields_take_the_defaults_of_the_schema() -> None:
    frame = codec.encode_response(Api.METADATA, 12, 1, {"topics": [{"name": "t", "partitions": [{}]}]})
    body = codec.decode_response(Api.METADATA, 12, frame[4:]).body
    assert (body.controller_id, body.throttle_time_ms, body.brokers, body.cluster_id) == (-1, 0, (), None)
    assert body.topics[0].topic_authorized_operations == -(2**31)
    assert body.topics[0].partitions[0].leader_epoch == -1


def test_a_field_that_no_version_has_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has no field member in any version"):
        codec.encode_request(Api.HEARTBEAT, 4, 1, None, {"group_id": "g", "member": "m"})


@pytest.mark.parametrize(
    "body",
    [
        {"group_id": None},
        {"group_id": "g", "generation_id": "three"},
        {"group_id": "g", "generation_id": 2**31},
        {"group_id": "g" * 40_000},
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_field(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"HeartbeatRequest\.(group|generation)_id"):
        codec.encode_request(Api.HEARTBEAT, 3, 1, None, body)


def test_tagged_fields_nobody_knows_are_skipped() -> None:
    """kio refuses them; Kafka's protocol adds fields that way, and old readers must step over them (KIP-482)."""
    frame = codec.encode_response(Api.HEARTBEAT, 4, 9, {"error_code": 27})
    assert frame[-1] == 0
    extended = frame[4:-1] + bytes([2, 3, 2]) + b"ab" + bytes([200, 1, 0])
    assert codec.decode_response(Api.HEARTBEAT, 4, extended).body.error_code == 27


def test_an_error_code_newer_than_we_are_keeps_its_number() -> None:
    """It read as UNKNOWN_SERVER_ERROR, and nobody could look up what the broker had said."""
    frame = codec.encode_response(Api.HEARTBEAT, 4, 9, {"error_code": 32_000})
    number = codec.decode_response(Api.HEARTBEAT, 4, frame[4:]).body.error_code
    assert number == 32_000
    newer = codec.error_code(number)
    assert (int(newer), newer.name, ErrorCode.named(newer.name)) == (32_000, "ERROR_32000", newer)
    assert newer is codec.error_code(number) and newer not in list(ErrorCode)
    assert codec.error_code(27) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(("key", "version"), [(11, 99), (11, -1), (999, 0), (18, 5)])
def test_what_we_do_not_offer_is_told_with_its_header(key: int, version: int) -> None:
    frame = bytearray(frames.start_request(Api.HEARTBEAT, 0, 77, "me"))
    frame[4:8] = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    if key in (11, 18) and version > 0:
        frame.append(0)
    with pytest.raises(UnsupportedVersion) as refused:
        codec.decode_request(bytes(frame[4:]))
    assert (refused.value.api_key, refused.value.version, refused.value.correlation_id) == (key, version, 77)
    assert refused.value.client_id == "me"


def test_the_highest_common_version_is_chosen() -> None:
    assert common_version(Api.JOIN_GROUP, 0, 7) == 7
    assert common_version(Api.JOIN_GROUP, 0, 99) == 9
    assert common_version(Api.JOIN_GROUP, 10, 12) is None


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, frames.MAX_FRAME_BYTES + 1])
def test_a_frame_beyond_the_limit_is_refused_by_its_size_alone(size: int) -> None:
    with pytest.raises(MalformedFrame, match=str(size)):
        frames.frame_size(frames.SIZE.pack(size))


def test_before_login_frames_are_small() -> None:
    prefix = frames.SIZE.pack(frames.MAX_FRAME_BYTES_BEFORE_LOGIN + 1)
    assert frames.frame_size(prefix) == frames.MAX_FRAME_BYTES_BEFORE_LOGIN + 1
    with pytest.raises(MalformedFrame):
        frames.frame_size(prefix, limit=frames.MAX_FRAME_BYTES_BEFORE_LOGIN)


def test_importing_the_codec_loads_no_schema_and_using_it_loads_no_hypothesis() -> None:
    """kio imports hypothesis wherever it is installed: 0.4 s that a broker with a second to start does not have."""
    program = (
        "import sys; from holdfast.wire import codec, fetch, produce, groups; from holdfast.wire.api import Api;"
        "assert 'kio' not in sys.modules;"
        "codec.preload((Api.HEARTBEAT, 4));"
        "assert 'kio' in sys.modules and 'hypothesis' not in sys.modules;"
        "import hypothesis"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_long_answer_written_in_steps_has_the_same_bytes() -> None:
    """For every API and version that the embedded broker serves, with lists long enough to be written in steps."""
    partition = {"error_code": 3, "partition_index": 7, "leader_id": 0, "replica_nodes": [1, 2], "isr_nodes": ()}
    topics = [{"name": f"t{number}", "error_code": 0, "partitions": [partition] * 3} for number in range(50)]
    metadata = {"brokers": [{"node_id": 1, "host": "h", "port": 9}] * 5, "cluster_id": "c", "topics": topics}
    groups = {"groups": [{"group_id": f"g{number}", "members": [{"member_id": "m"}]} for number in range(50)]}
    nobody = {"responses": [{"name": None, "topic_id": None, "error_code": 3}] * 20}
    for api, body in ((Api.METADATA, metadata), (Api.DESCRIBE_GROUPS, groups), (Api.DELETE_TOPICS, nobody)):
        for version in api.versions:
            if api is Api.DELETE_TOPICS and version < 6:
                continue
            steps = codec.encode_response_steps(api, version, 5, body)
            count = 0
            while True:
                try:
                    next(steps)
                    count += 1
                except StopIteration as end:
                    assert end.value == codec.encode_response(api, version, 5, body)
                    break
            assert count >= 20


def test_an_answer_about_one_topic_with_many_partitions_is_written_in_steps_too() -> None:
    """Symptom: one ListOffsets, or OffsetFetch, that named 150,000 partitions of one topic held up everybody for most
    of a second. Cause: what is long was told by the answer's own lists, which had one item each. Invariant: no more
    than a thousand items, at any depth, are written without a pause."""
    offsets = {"topics": [{"name": "t", "partitions": [{"partition_index": n, "offset": 5} for n in range(3_000)]}]}
    entry = {"committed_offset": 5, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
    topics = [{"name": f"t{n}", "partitions": [{"partition_index": 0, **entry}] * 300} for n in range(10)]
    fetched = {"groups": [{"group_id": "g", "topics": topics, "error_code": 0}]}
    assert not codec.is_long({"topics": [{"name": "t", "partitions": [{"partition_index": n} for n in range(100)]}]})
    for api, versions, body in ((Api.LIST_OFFSETS, range(1, 11), offsets), (Api.OFFSET_FETCH, (8, 9), fetched)):
        assert codec.is_long(body)
        for version in versions:
            steps = codec.encode_response_steps(api, version, 5, body)
            count = 0
            while True:
                try:
                    next(steps)
                    count += 1
                except StopIteration as end:
                    assert end.value == codec.encode_response(api, version, 5, body)
                    break
            assert count >= 10
