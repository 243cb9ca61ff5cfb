"""What Fetch and Produce have in common: a topic by name or id, and who leads a partition."""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

from holdfast.wire.cursor import Cursor, Sink

BY_ID_FROM = 13
"""The version from which both name topics by id (KIP-516)."""

_LEADER = struct.Struct(">iix")
"""Broker id, epoch, no tags."""

Leader = tuple[int, int]
"""(broker id, epoch)"""


def write_topic(sink: Sink, version: int, topic: str, topic_id: UUID | None) -> None:
    if version >= BY_ID_FROM:
        sink.uuid(topic_id)
    else:
        sink.string(topic)


def read_topic(cursor: Cursor, version: int) -> tuple[str, UUID | None]:
    return ("", cursor.uuid()) if version >= BY_ID_FROM else (cursor.string(), None)


def leader_tag(number: int, leader: Leader | None) -> tuple[tuple[int, bytes], ...]:
    """For `Sink.tags`; empty without a leader."""
    return () if leader is None else ((number, _LEADER.pack(*leader)),)


def leader_reader(found: list[Leader]) -> Callable[[Cursor], None]:
    """For `Cursor.tags`: adds the leader to what was found."""

    def read(tagged: Cursor) -> None:
        found.append((tagged.int32(), tagged.int32()))
        tagged.tags()

    return read
