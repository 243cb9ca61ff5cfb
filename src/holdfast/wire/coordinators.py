"""FindCoordinator: which broker looks after a group, asked and answered, versions 0 to 6.

Version notes: 1 a key type and a message · 3 compact · 4 several keys at once (KIP-699) · 5 and 6 for transactions and
share groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model import ErrorCode
from holdfast.wire.codec import RequestFrame, error_code

Body = dict[str, Any]

GROUP_KEY = 0
"""The key type for groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """Which broker looks after a group, or why nobody can say."""

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
