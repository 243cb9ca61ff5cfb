"""Fetch answers as a test wants them: the embedded broker makes them, and a function changes them on their way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.apis import fetch
from holdfast.records.batch import HEADER_BYTES
from holdfast.wire.fetch import FetchedPartition, FetchResponse

Change = Callable[[FetchResponse], FetchResponse]


class Answers:
    """What becomes of Fetch answers: the next ones each by a change of its own, then all by `always`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self._next: list[Change] = []
        self._always: Change | None = None
        real = fetch.encode_fetch_response

        def encode(version: int, correlation_id: int, response: FetchResponse) -> Any:
            self.seen += 1
            change = self._next.pop(0) if self._next else self._always
            return real(version, correlation_id, response if change is None else change(response))

        monkeypatch.setattr(fetch, "encode_fetch_response", encode)

    def next(self, *changes: Change) -> None:
        self._next += changes

    def always(self, change: Change | None) -> None:
        self._always = change


def throttled(ms: int) -> Change:
    """As Kafka answers above a quota: no topics, no error, and how long to wait."""
    return lambda _response: FetchResponse(throttle_time_ms=ms)


def refused(code: int) -> Change:
    """As Kafka refuses a whole request from version 13 on: no partition is named."""
    return lambda _response: FetchResponse(error=code)


def left_out(_response: FetchResponse) -> FetchResponse:
    return FetchResponse()


def emptied(response: FetchResponse) -> FetchResponse:
    """Without records, and with the high watermark as it is."""
    return each(response, lambda one: replace(one, records=()))


def damaged(response: FetchResponse) -> FetchResponse:
    """A byte of the first batch is another, so its checksum is wrong."""

    def broken(one: FetchedPartition) -> FetchedPartition:
        if not one.records:
            return one
        data = bytearray(b"".join(bytes(part) for part in one.records))  # type: ignore[arg-type]
        data[HEADER_BYTES] ^= 1
        return replace(one, records=(bytes(data),))

    return each(response, broken)


def each(response: FetchResponse, change: Callable[[FetchedPartition], FetchedPartition]) -> FetchResponse:
    topics = tuple(replace(topic, partitions=tuple(map(change, topic.partitions))) for topic in response.topics)
    return replace(response, topics=topics)
