"""Requests and responses as bytes and back.

    encode_request(Api.HEARTBEAT, 4, 7, "me", {"group_id": "g", "generation_id": 3, "member_id": "m"})
    decode_request(frame).body.generation_id

Frames are decoded without their size, and encoded with it. Bodies are described in `schema`. Fetch and Produce have
codecs of their own (`fetch`, `produce`), which don't copy records.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model import ErrorCode
from holdfast.wire import frames
from holdfast.wire.api import Api
from holdfast.wire.errors import UnsupportedVersion
from holdfast.wire.primitives import Source
from holdfast.wire.schema import message
from holdfast.wire.writing import is_long as is_long
from holdfast.wire.writing import write_in_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFrame:
    """A request that was read."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """A named tuple; its fields depend on the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFrame:
    correlation_id: int
    body: Any


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, body: Any) -> bytes:
    out = frames.start_request(api, version, correlation_id, client_id)
    message(api, version, "request").write(out, body)
    return frames.finish(out)


def decode_request(frame: bytes | memoryview) -> RequestFrame:
    """Raises MalformedFrame, or UnsupportedVersion for what we don't offer."""
    header = frames.read_request_header(frame)
    api = known_api(header)
    return RequestFrame(
        api=api,
        version=header.version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=decode_body(frame, header, api),
    )


def known_api(header: frames.RequestHeader) -> Api:
    """The API asked for, if we know it in that version."""
    api = Api.of(header.api_key)
    if api is None or header.version not in api.versions:
        raise UnsupportedVersion(header.api_key, header.version, header.correlation_id, header.client_id)
    return api


def decode_body(frame: bytes | memoryview, header: frames.RequestHeader, api: Api) -> Any:
    """The body of a request whose header was read before."""
    body, _ = message(api, header.version, "request").read(Source(frame), header.body_at)
    return body


def encode_response(api: Api, version: int, correlation_id: int, body: Any) -> bytes:
    out = frames.start_response(api, version, correlation_id)
    message(api, version, "response").write(out, body)
    return frames.finish(out)


def encode_response_steps(
    api: Api, version: int, correlation_id: int, body: Mapping[str, Any]
) -> Generator[None, None, bytes]:
    """The same in steps, for an answer that may be long: yields between the items of its arrays."""
    out = frames.start_response(api, version, correlation_id)
    yield from write_in_steps(message(api, version, "response"), out, body, flexible=api.flexible(version))
    return frames.finish(out)


def decode_response(api: Api, version: int, frame: bytes | memoryview) -> ResponseFrame:
    correlation_id, at = frames.read_response_header(frame, api, version)
    body, _ = message(api, version, "response").read(Source(frame), at)
    return ResponseFrame(correlation_id=correlation_id, body=body)


def preload(*messages: tuple[Api, int]) -> None:
    """Load schemas ahead of their first use."""
    for api, version in messages:
        message(api, version, "request")
        message(api, version, "response")


def error_code(number: int) -> ErrorCode:
    """An error code by number. A code that we don't know keeps its number."""
    found = _CODES.get(number)
    if found is None:
        found = _CODES[number] = ErrorCode(number)  # bounded: the number is an int16
    return found


_CODES = {code.value: code for code in ErrorCode}
