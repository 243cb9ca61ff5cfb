"""FindCoordinator, versions 0 to 6, for client and broker; and the head of a group's description (DescribeGroups).

Version notes: 1 a key type and a message · 3 compact · 4 several keys at once (KIP-699) · 5 and 6 for transactions and
share groups. DescribeGroups: 1 throttling · 5 compact · 6 a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model import ErrorCode
from holdfast.wire import frames
from holdfast.wire.api import Api
from holdfast.wire.codec import RequestFrame, error_code
from holdfast.wire.cursor import Cursor

Body = dict[str, Any]

GROUP_KEY = 0
TRANSACTION_KEY = 1
"""Key types: whether a group's coordinator is asked for, or a transaction's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The broker that coordinates a group, or why it is not known."""

    key: str
    error: ErrorCode = ErrorCode.NONE
    node_id: int = -1
    host: str = ""
    port: int = -1
    message: str | None = None


def find_coordinator_body(group: str, version: int) -> Body:
    if version >= 4:
        return {"key_type": GROUP_KEY, "coordinator_keys": [group]}
    return {"key": group, "key_type": GROUP_KEY}


def coordinator_of(group: str, version: int, body: Any) -> Coordinator:
    """The client's side: what the answer says about this group."""
    if version >= 4:
        body = next((found for found in body.coordinators if found.key == group), None)
        if body is None:
            return Coordinator(key=group, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    return Coordinator(
        key=group,
        error=error_code(body.error_code),
        node_id=body.node_id,
        host=body.host,
        port=body.port,
        message=getattr(body, "error_message", None),
    )


def coordinator_keys_of(frame: RequestFrame) -> tuple[int, tuple[str, ...]]:
    """The broker's side: (key type, keys) asked for."""
    if frame.version >= 4:
        return frame.body.key_type, frame.body.coordinator_keys
    return getattr(frame.body, "key_type", GROUP_KEY), (frame.body.key,)


def coordinators_body(found: Sequence[Coordinator], version: int) -> Body:
    entries = [
        {
            "key": coordinator.key,
            "error_code": coordinator.error,
            "error_message": coordinator.message,
            "node_id": coordinator.node_id,
            "host": coordinator.host,
            "port": coordinator.port,
        }
        for coordinator in found
    ]
    if version >= 4:
        return {"coordinators": entries}
    return {name: value for name, value in entries[0].items() if name != "key"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHead:
    """The fields before a group's members in its description."""

    error: ErrorCode
    state: str
    protocol: str
    """The assignor in force; empty in the middle of a round."""
    members: int


def group_head(version: int, frame: bytes | memoryview) -> GroupHead:
    """The head of a DescribeGroups answer about one group, without reading any of the members.

    The description of a thousand members takes 300 KB; their number is in the first hundred bytes.
    """
    _, at = frames.read_response_header(frame, Api.DESCRIBE_GROUPS, version)
    cursor = Cursor(
        frame, at, flexible=Api.DESCRIBE_GROUPS.flexible(version), what=f"DescribeGroups response v{version}"
    )
    if version >= 1:
        cursor.int32()
    if cursor.count(2) != 1:
        raise cursor.malformed("not one group, as asked for")
    error = error_code(cursor.int16())
    if version >= 6:
        cursor.nullable_string()
    cursor.string()  # the group's name
    state = cursor.string()
    cursor.string()  # the protocol's type
    return GroupHead(error=error, state=state, protocol=cursor.string(), members=cursor.count(10))
