"""Frames: a size, a header, a body.

    request    int32 size · int16 api · int16 version · int32 correlation id · string? client id [· tags] · body
    response   int32 size · int32 correlation id [· tags] · body

Tags follow the header of flexible versions, except in ApiVersions' response, whose header never has them: a client must
be able to read the answer of a broker older than itself (KIP-511).

This module must not know any body.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from holdfast.wire.api import Api
from holdfast.wire.errors import MalformedFrame
from holdfast.wire.primitives import Source, read_uvarint

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""What the embedded broker takes in one frame; Kafka's own socket.request.max.bytes is 100 MiB, for bigger machines."""

MAX_FRAME_BYTES_BEFORE_LOGIN = 64 * 1024
"""Enough for any ApiVersions or SASL message, and the most memory that a client without a login can make us hold."""

TLS_RECORDS = frozenset({b"\x16\x03", b"\x15\x03"})
"""How a TLS handshake and a TLS alert begin: one end speaks TLS, and the other does not."""

SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Where the body starts; for an API we don't know, where it would without tags."""


def frame_size(prefix: bytes | memoryview, *, limit: int = MAX_FRAME_BYTES) -> int:
    """The size that the four bytes before a frame announce."""
    size = int(SIZE.unpack_from(prefix)[0])
    if not 0 <= size <= limit:
        tls = " (it looks like TLS)" if bytes(prefix[:2]) in TLS_RECORDS else ""
        raise MalformedFrame(f"A frame of {size} bytes was announced, and {limit} are allowed{tls}.")
    return size


def read_request_header(frame: bytes | memoryview) -> RequestHeader:
    """The header of a request (without its size), whether or not we know the API and the version."""
    if len(frame) < _REQUEST.size:
        raise MalformedFrame(f"A request of {len(frame)} bytes has no header.")
    api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
    at = _REQUEST.size
    client_id = None
    if length >= 0:
        end = at + length
        if end > len(frame):
            raise MalformedFrame(f"A client id of {length} bytes was announced, and {len(frame) - at} are left.")
        try:
            client_id = str(frame[at:end], "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame("The client id is not UTF-8.") from None
        at = end
    elif length != -1:
        raise MalformedFrame(f"A client id of {length} bytes was announced.")
    api = Api.of(api_key)
    if api is not None and api.flexible(version):
        at = skip_tags(Source(frame), at)
    return RequestHeader(
        api_key=api_key, version=version, correlation_id=correlation_id, client_id=client_id, body_at=at
    )


def read_response_header(frame: bytes | memoryview, api: Api, version: int) -> tuple[int, int]:
    """(correlation id, where the body starts) of a response without its size."""
    correlation_id, at = correlation_of(frame), _CORRELATION.size
    if response_header_has_tags(api, version):
        at = skip_tags(Source(frame), at)
    return correlation_id, at


def correlation_of(frame: bytes | memoryview) -> int:
    """The correlation id of a response, before knowing what it answers."""
    if len(frame) < _CORRELATION.size:
        raise MalformedFrame(f"A response of {len(frame)} bytes has no header.")
    return int(_CORRELATION.unpack_from(frame)[0])


def response_header_has_tags(api: Api, version: int) -> bool:
    return api.flexible(version) and api is not Api.API_VERSIONS


def skip_tags(source: Source, at: int) -> int:
    """Skip the tagged fields: headers have none that we know."""
    try:
        count, at = read_uvarint(source, at)
        source.take(count, at, 2)
        for _ in range(count):
            _, at = read_uvarint(source, at)
            size, at = read_uvarint(source, at)
            at += size
            if at > source.end:
                raise MalformedFrame(f"A tag of {size} bytes ends {at - source.end} bytes after the frame.")
    except IndexError:
        raise MalformedFrame("The bytes end within the tags.") from None
    return at


def start_request(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A request up to its body, with room for the size: append the body, then call `finish`."""
    name = None if client_id is None else client_id.encode()
    out = bytearray(4)
    out += _REQUEST.pack(api.key, version, correlation_id, -1 if name is None else len(name))
    if name is not None:
        out += name
    if api.flexible(version):
        out.append(0)
    return out


def start_response(api: Api, version: int, correlation_id: int) -> bytearray:
    """A response up to its body, with room for the size."""
    out = bytearray(4)
    out += _CORRELATION.pack(correlation_id)
    if response_header_has_tags(api, version):
        out.append(0)
    return out


def finish(out: bytearray, *, more: int = 0) -> bytes:
    """Write the size in front. `more` bytes outside this buffer follow it."""
    SIZE.pack_into(out, 0, len(out) - 4 + more)
    return bytes(out)
