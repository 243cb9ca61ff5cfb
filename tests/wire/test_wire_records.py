"""Fetch and Produce, written by hand, against kio in every version."""

from __future__ import annotations

import random
from typing import Any

import pytest
import wire_oracle as oracle

from holdfast.wire import codec, frames
from holdfast.wire import fetch as f
from holdfast.wire import produce as w
from holdfast.wire.api import Api
from holdfast.wire.cursor import FileSlice, join
from holdfast.wire.errors import MalformedFrame
from holdfast.wire.primitives import Source
from holdfast.wire.schema import message

HEADER_BYTES = {True: 5, False: 4}
"""A response's header with and without tags."""


def samples(api: Api, version: int, kind: str, count: int = 40) -> list[Any]:
    random_ = random.Random(f"{api.key}/{version}/{kind}")
    return [oracle.arbitrary(message(api, version, kind), random_) for _ in range(count)]


def topic_of(topic: Any) -> tuple[str, Any]:
    return getattr(topic, "topic", getattr(topic, "name", "")), getattr(topic, "topic_id", None)


def joined(parts: tuple[Any, ...]) -> bytes:
    return b"".join(bytes(part) for part in parts)


@pytest.mark.parametrize("version", Api.FETCH.versions)
def test_a_fetch_request_is_what_kio_writes_and_reads(version: int) -> None:
    for theirs in samples(Api.FETCH, version, "request"):
        frame = codec.encode_request(Api.FETCH, version, 3, "me", theirs)[4:]
        header = frames.read_request_header(frame)
        read = f.decode_fetch_request(frame, header)
        again = f.decode_fetch_request(
            encoded := f.encode_fetch_request(version, 3, "me", read)[4:], frames.read_request_header(encoded)
        )
        assert again == read
        mine = codec.decode_request(encoded).body
        # What we leave out, on purpose: the cluster id, a replica's epoch, directory ids and high watermarks.
        for name in ("max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch", "rack_id"):
            assert getattr(mine, name, None) == getattr(theirs, name, None)
        assert [topic_of(topic) for topic in mine.topics] == [topic_of(topic) for topic in theirs.topics]
        for our_topic, their_topic in zip(mine.topics, theirs.topics, strict=True):
            for our, their in zip(our_topic.partitions, their_topic.partitions, strict=True):
                skipped = ("replica_directory_id", "high_watermark")
                assert {k: v for k, v in our._asdict().items() if k not in skipped} == {
                    k: v for k, v in their._asdict().items() if k not in skipped
                }
        assert getattr(mine, "forgotten_topics_data", ()) == getattr(theirs, "forgotten_topics_data", ())
        if version < 15:
            assert mine.replica_id == theirs.replica_id
        else:
            assert mine.replica_state.replica_id == theirs.replica_state.replica_id


@pytest.mark.parametrize("version", Api.FETCH.versions)
def test_a_fetch_response_is_what_kio_writes_and_reads(version: int) -> None:
    for theirs in samples(Api.FETCH, version, "response"):
        frame = codec.encode_response(Api.FETCH, version, 3, theirs)[4:]
        read = f.decode_fetch_response(version, frame)
        parts = f.encode_fetch_response(version, 3, read)
        again = join(parts)
        assert frames.frame_size(again) == len(again) - 4
        mine = codec.decode_response(Api.FETCH, version, again[4:]).body
        assert (mine.throttle_time_ms, len(mine.responses)) == (theirs.throttle_time_ms, len(theirs.responses))
        assert getattr(mine, "session_id", 0) == getattr(theirs, "session_id", 0)
        for our_topic, their_topic in zip(mine.responses, theirs.responses, strict=True):
            assert topic_of(our_topic) == topic_of(their_topic)
            for our, their in zip(our_topic.partitions, their_topic.partitions, strict=True):
                skipped = ("diverging_epoch", "snapshot_id", "records")
                assert {k: v for k, v in our._asdict().items() if k not in skipped} == {
                    k: v for k, v in their._asdict().items() if k not in skipped
                }
                assert (our.records or b"") == (their.records or b"")


@pytest.mark.parametrize("version", Api.FETCH.versions)
def test_a_fetch_response_without_foreign_tags_has_kios_very_bytes(version: int) -> None:
    response = f.FetchResponse(
        error=0,
        session_id=7,
        throttle_time_ms=5,
        topics=(
            f.FetchedTopic(
                topic="orders",
                topic_id=oracle.UUID(int=77),
                partitions=(
                    f.FetchedPartition(partition=0, high_watermark=9, records=(b"abc", b"", memoryview(b"defg"))),
                    f.FetchedPartition(partition=1, error=6, current_leader=(3, 4), aborted=((1, 2), (3, 4))),
                    f.FetchedPartition(partition=2, aborted=(), records=(), diverged=(2, 60)),
                ),
            ),
        ),
    )
    encoded = join(f.encode_fetch_response(version, 3, response))
    part = message(Api.FETCH, version, "response")
    body = encoded[4 + HEADER_BYTES[Api.FETCH.flexible(version)] :]
    value, end = part.read(Source(body), 0)
    assert end == len(body)
    entity = oracle.kio_type(Api.FETCH, version, "response")
    assert oracle.kio_bytes(oracle.to_kio(entity, part, value)) == body
    assert value.responses[0].partitions[0].records == b"abcdefg"


def test_records_are_views_of_the_frame_and_not_copies() -> None:
    records = bytes(1_000)
    topic = f.FetchedTopic(topic="t", partitions=(f.FetchedPartition(partition=0, records=(records,)),))
    frame = join(f.encode_fetch_response(11, 1, f.FetchResponse(topics=(topic,))))[4:]
    (view,) = f.decode_fetch_response(11, frame).topics[0].partitions[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame
    request = w.ProduceRequest(
        topics=(w.ProduceTopic(topic="t", partitions=(w.ProducePartition(partition=0, records=records),)),)
    )
    parts = w.encode_produce_request(8, 1, None, request)
    assert any(part is records for part in parts)
    frame = join(parts)[4:]
    sent = w.decode_produce_request(frame, frames.read_request_header(frame)).topics[0].partitions[0].records
    assert isinstance(sent, memoryview)
    assert sent.obj is frame


def test_a_fetch_response_carries_slices_of_files_through() -> None:
    slice_ = FileSlice(5, 100, 4_096)
    topic = f.FetchedTopic(topic="t", partitions=(f.FetchedPartition(partition=0, records=(slice_, b"tail")),))
    parts = f.encode_fetch_response(12, 1, f.FetchResponse(topics=(topic,)))
    assert slice_ in parts
    assert frames.frame_size(join(parts[:1])) == sum(len(part) for part in parts) - 4
    with pytest.raises(AssertionError):
        join(parts)


@pytest.mark.parametrize("version", Api.PRODUCE.versions)
def test_a_produce_request_is_what_kio_writes_and_reads(version: int) -> None:
    for theirs in samples(Api.PRODUCE, version, "request"):
        frame = codec.encode_request(Api.PRODUCE, version, 3, "me", theirs)
        read = w.decode_produce_request(frame[4:], frames.read_request_header(frame[4:]))
        assert join(w.encode_produce_request(version, 3, "me", read)) == frame
        assert (read.transactional_id, read.acks, read.timeout_ms) == (
            theirs.transactional_id,
            theirs.acks,
            theirs.timeout_ms,
        )


@pytest.mark.parametrize("version", Api.PRODUCE.versions)
def test_a_produce_response_is_what_kio_writes_and_reads(version: int) -> None:
    for theirs in samples(Api.PRODUCE, version, "response"):
        if getattr(theirs, "node_endpoints", ()):
            theirs = theirs._replace(node_endpoints=())  # told to producers only, which is not our trade
        frame = codec.encode_response(Api.PRODUCE, version, 3, theirs)
        read = w.decode_produce_response(version, frame[4:])
        assert w.encode_produce_response(version, 3, read) == frame


def test_a_produce_request_may_hold_null_records_for_the_broker_to_refuse() -> None:
    request = w.ProduceRequest(
        topics=(w.ProduceTopic(topic="t", partitions=(w.ProducePartition(partition=0, records=None),)),)
    )
    frame = join(w.encode_produce_request(9, 1, None, request))[4:]
    assert w.decode_produce_request(frame, frames.read_request_header(frame)) == request


@pytest.mark.parametrize("version", [7, 12])
def test_a_truncated_fetch_response_is_malformed_at_every_length(version: int) -> None:
    topic = f.FetchedTopic(topic="t", partitions=(f.FetchedPartition(partition=0, aborted=((1, 2),), records=(b"r",)),))
    frame = join(f.encode_fetch_response(version, 1, f.FetchResponse(topics=(topic,))))[4:]
    for length in range(len(frame)):
        with pytest.raises(MalformedFrame):
            f.decode_fetch_response(version, frame[:length])
