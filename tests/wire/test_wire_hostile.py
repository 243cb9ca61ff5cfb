"""Bytes of strangers: whatever they claim, the answer is MalformedFrame, soon, and without much memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
import wire_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.wire import codec, frames
from holdfast.wire import fetch as f
from holdfast.wire import produce as w
from holdfast.wire.api import Api
from holdfast.wire.errors import MalformedFrame, UnsupportedVersion
from holdfast.wire.primitives import MAX_ITEMS, Source, uvarint
from holdfast.wire.schema import message

HUGE = (2**31 - 1, 2**31, 2**32 - 2, 2**30)


def decode(frame: bytes) -> Any:
    """As a broker does: by hand for Fetch and Produce, by schema for the others."""
    header = frames.read_request_header(frame)
    api = codec.known_api(header)
    if api is Api.FETCH:
        f.decode_fetch_request(frame, header)
    if api is Api.PRODUCE:
        w.decode_produce_request(frame, header)
    return codec.decode_body(frame, header, api)


def mutate(frame: bytes, random_: random.Random) -> bytes:
    out = bytearray(frame)
    for _ in range(random_.choice([1, 1, 2, 4])):
        at = random_.randrange(len(out)) if out else 0
        match random_.randrange(6):
            case 0:
                out[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                out[at : at + 4] = random_.choice(
                    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"]
                )
            case 2:
                del out[at : at + random_.randrange(1, 9)]
            case 3:
                out[at:at] = random_.randbytes(random_.randrange(1, 9))
            case 4:
                out[at:at] = uvarint(random_.choice(HUGE))
            case 5:
                del out[at:]
    return bytes(out)


def damaged_requests(api: Api, seed: int, count: int) -> tuple[int, int]:
    """(read, refused) of so many damaged requests. Anything but MalformedFrame and UnsupportedVersion escapes."""
    random_ = random.Random(f"{api.key}/{seed}")
    wholes = [
        codec.encode_request(api, version, 1, "me", oracle.arbitrary(message(api, version, "request"), random_))[4:]
        for version in api.versions
        for _ in range(8)
    ]
    refused = 0
    for _ in range(count):
        try:
            decode(mutate(random_.choice(wholes), random_))
        except (MalformedFrame, UnsupportedVersion):
            refused += 1
    return count - refused, refused


def damaged_responses(api: Api, seed: int, count: int) -> tuple[int, int]:
    random_ = random.Random(f"-{api.key}/{seed}")
    wholes = [
        (version, codec.encode_response(api, version, 1, oracle.arbitrary(message(api, version, "response"), random_)))
        for version in api.versions
        for _ in range(8)
    ]
    refused = 0
    for _ in range(count):
        version, whole = random_.choice(wholes)
        damaged = mutate(whole[4:], random_)
        readers: list[Any] = [lambda frame, version=version: codec.decode_response(api, version, frame)]
        if api is Api.FETCH:
            readers.append(lambda frame, version=version: f.decode_fetch_response(version, frame))
        if api is Api.PRODUCE:
            readers.append(lambda frame, version=version: w.decode_produce_response(version, frame))
        for reader in readers:
            try:
                reader(damaged)
            except MalformedFrame:
                refused += 1
    return count - refused, refused


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_a_damaged_request_is_read_or_malformed_and_nothing_else(api: Api) -> None:
    read, refused = damaged_requests(api, 0, 5_000)
    assert read > 0
    assert refused > 0


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_a_damaged_response_is_read_or_malformed_and_nothing_else(api: Api) -> None:
    _, refused = damaged_responses(api, 0, 2_000)
    assert refused > 0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_very_many_damaged_messages_are_read_or_malformed_and_nothing_else(api: Api) -> None:
    for seed in range(1, 11):
        damaged_requests(api, seed, 20_000)
        damaged_responses(api, seed, 5_000)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(Api)), st.integers(0, 20), st.binary(max_size=200), st.booleans())
def test_random_bytes_are_read_or_malformed(api: Api, version: int, content: bytes, tagged: bool) -> None:
    frame = struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if tagged else b"") + content
    try:
        decode(frame)
    except (MalformedFrame, UnsupportedVersion) as error:
        assert error.what


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("version", [8, 12])
def test_a_claimed_count_reserves_no_memory(version: int, count: int) -> None:
    """kio's reader asked the allocator for 16 GiB here and took the process with it."""
    claim = uvarint(count + 1 if count < 2**32 - 1 else count) if version >= 9 else struct.pack(">I", count)
    frame = bytes(frames.start_request(Api.METADATA, version, 1, None)[4:]) + claim
    message(Api.METADATA, version, "request")
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame):
            codec.decode_request(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_message_can_not_expand_into_millions_of_objects() -> None:
    """A frame within the size limit may hold millions of two-byte items: the count of items has a limit of its own."""
    count = MAX_ITEMS + 1
    frame = bytes(frames.start_request(Api.LIST_GROUPS, 4, 1, None)[4:]) + uvarint(count + 1) + b"\x01" * count + b"\0"
    with pytest.raises(MalformedFrame, match=str(MAX_ITEMS)):
        codec.decode_request(frame)


def test_the_limit_of_items_counts_nested_arrays_and_tags_together() -> None:
    part = message(Api.OFFSET_FETCH, 7, "request")
    value = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": list(range(10))} for _ in range(10)]}
    out = bytearray()
    part.write(out, value)
    part.read(Source(bytes(out), budget=110), 0)
    with pytest.raises(MalformedFrame):
        part.read(Source(bytes(out), budget=109), 0)
    tags = bytes(out[:-1]) + bytes([2, 50, 0, 51, 0])
    part.read(Source(tags, budget=112), 0)
    with pytest.raises(MalformedFrame):
        part.read(Source(tags, budget=111), 0)


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.schema)
def test_a_truncated_request_is_malformed_wherever_it_ends(api: Api) -> None:
    random_ = random.Random(api.key)
    for version in api.versions:
        whole = codec.encode_request(
            api, version, 1, None, oracle.arbitrary(message(api, version, "request"), random_)
        )[4:]
        for length in range(0, len(whole), max(1, len(whole) // 60)):
            with pytest.raises((MalformedFrame, UnsupportedVersion)):
                decode(whole[:length])


def test_the_error_names_the_message_the_field_and_the_place() -> None:
    frame = codec.encode_request(Api.HEARTBEAT, 4, 1, None, {"group_id": "g", "generation_id": 3, "member_id": "mm"})
    with pytest.raises(MalformedFrame, match=r"HeartbeatRequest\.member_id at byte 17"):
        codec.decode_request(frame[4:23])
    with pytest.raises(MalformedFrame, match=r"HeartbeatRequest\.group_id .*null"):
        codec.decode_request(bytes(frames.start_request(Api.HEARTBEAT, 4, 1, None)[4:]) + b"\0")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x03\xff\xfe", "not UTF-8"),
        (b"\xff\xff\xff\xff\x7f", "32 bits"),
        (b"\xff\xff\xff\xff\xff\x01", "32 bits"),
        (b"\x0aabc", "a string of 9 bytes and 3 left"),
    ],
)
def test_each_way_to_be_wrong_is_told(content: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        codec.decode_request(bytes(frames.start_request(Api.HEARTBEAT, 4, 1, None)[4:]) + content)


def test_a_tag_that_lies_about_its_size_is_malformed() -> None:
    frame = codec.encode_response(Api.API_VERSIONS, 3, 1, {"finalized_features_epoch": 5})[4:]
    tag = frame.index(b"\x01\x08" + struct.pack(">q", 5))
    longer = frame[:tag] + b"\x01\x09" + frame[tag + 2 :] + b"\0"
    with pytest.raises(MalformedFrame, match="tag 1 says 9 bytes and has 8"):
        codec.decode_response(Api.API_VERSIONS, 3, longer)


@pytest.mark.parametrize("header", [b"", b"\0", struct.pack(">hhih", 12, 4, 1, 5) + b"abc"])
def test_a_request_without_a_whole_header_is_malformed(header: bytes) -> None:
    with pytest.raises(MalformedFrame):
        frames.read_request_header(header)


@pytest.mark.parametrize("length", [-2, -(2**15)])
def test_a_client_id_of_negative_length_is_malformed(length: int) -> None:
    with pytest.raises(MalformedFrame):
        frames.read_request_header(struct.pack(">hhih", 12, 3, 1, length))


def test_a_response_header_must_be_whole() -> None:
    with pytest.raises(MalformedFrame):
        frames.correlation_of(b"\0\0\0")
    with pytest.raises(MalformedFrame):
        frames.read_response_header(b"\0\0\0\1", Api.HEARTBEAT, 4)
    with pytest.raises(MalformedFrame):
        frames.read_response_header(b"\0\0\0\1" + b"\x01\x05\x7f", Api.HEARTBEAT, 4)
