"""What holdfast's members tell each other inside Kafka's own messages.

Subscriptions: the first four bytes stay an int32 generation, which Java's cooperative-sticky reads; then our magic, a
version byte and a JSON object. Assignments: magic, version, JSON. Java and librdkafka ignore both; user data without
our magic is somebody else's and ignored by us. What arrives is a stranger's word: anything malformed reads as nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import TopicPartition, by_topic

MAGIC = b"hdft"
VERSION = 1
GENERATION = struct.Struct(">i")

MAX_HANDED_OVER = 1_000
"""Positions in one join: more would bloat every member's metadata; the rest are read from the coordinator as ever."""

MAX_PEERS = 128
"""Endpoints in one assignment. With n members the plan carries n times as many: 128 keeps it below 1 MB."""

MAX_ASSIGNORS = 16
"""Names in one note: a member in the middle of a migration lists two."""

MAX_PLANNED_FOR = 10_000
"""Topics that a leader's note to itself counts: about 300 KB, once in a plan. Changes to topics beyond it are noticed
by whoever leads the next round."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a poke reaches a member."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberNote:
    """From a member to the leader, in its subscription."""

    draining: bool = False
    endpoint: Endpoint | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    assignors: tuple[str, ...] = ()
    """Which assignors it lists, in its order: nobody else tells an operator in the middle of a migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderNote:
    """From the leader to a member, in its assignment."""

    withheld: bool = False
    """The mark: partitions are kept back this round, so rejoin at once."""
    knows_drain: bool = True
    """Whether the leader plans the partitions of draining members away."""
    peers: tuple[Endpoint, ...] = ()
    token: str = ""
    """What a poke must carry in this generation."""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    all_read: bool = False
    """Whether every member of this round reads notes, so that positions reach whoever a partition goes to."""
    planned_for: Mapping[str, int] | None = None
    """For the leader itself: the partitions of each topic as it saw them when it planned. A static leader that returns
    is told to skip planning, and sees by this whether the plan is still up to date."""


def append_note(user_data: bytes | None, note: MemberNote, generation: int) -> bytes | None:
    """The assignor's own user data with our note behind it, where there is room for one.

    There is when the assignor sends nothing or just a generation; anything longer is an assignor's own format.
    """
    if user_data is not None and len(user_data) != GENERATION.size:
        return user_data
    head = user_data if user_data is not None else GENERATION.pack(generation)
    body: dict[str, object] = {}
    if note.draining:
        body["drain"] = 1
    if note.endpoint is not None:
        body["at"] = [note.endpoint.host, note.endpoint.port]
    if note.positions:
        body["pos"] = _encode_positions(note.positions)
    if note.assignors:
        body["as"] = list(note.assignors[:MAX_ASSIGNORS])
    return head + _pack(body)


def read_member_note(user_data: bytes | None) -> MemberNote | None:
    """The note in a subscription, or None when a foreign client sent it."""
    if user_data is None or len(user_data) < GENERATION.size:
        return None
    body = _unpack(user_data[GENERATION.size :])
    if body is None:
        return None
    return MemberNote(
        draining=body.get("drain") == 1,
        endpoint=_read_endpoint(body.get("at")),
        positions=_read_positions(body.get("pos")),
        assignors=_read_names(body.get("as")),
    )


def encode_leader_note(note: LeaderNote) -> bytes:
    body: dict[str, object] = {}
    if note.withheld:
        body["wait"] = 1
    if note.knows_drain:
        body["drains"] = 1
    if note.peers:
        body["peers"] = [[peer.host, peer.port] for peer in note.peers[:MAX_PEERS]]
    if note.token:
        body["token"] = note.token
    if note.positions:
        body["pos"] = _encode_positions(note.positions)
    if note.all_read:
        body["all"] = 1
    if note.planned_for is not None:
        body["for"] = dict(sorted(note.planned_for.items())[:MAX_PLANNED_FOR])
    return _pack(body)


def read_leader_note(user_data: bytes | None) -> LeaderNote | None:
    """The note in an assignment, or None under a foreign leader."""
    body = _unpack(user_data or b"")
    if body is None:
        return None
    peers = body.get("peers")
    token = body.get("token")
    return LeaderNote(
        withheld=body.get("wait") == 1,
        knows_drain=body.get("drains") == 1,
        peers=tuple(
            endpoint
            for raw in (peers if isinstance(peers, list) else [])[:MAX_PEERS]
            if (endpoint := _read_endpoint(raw)) is not None
        ),
        token=token if isinstance(token, str) else "",
        positions=_read_positions(body.get("pos")),
        all_read=body.get("all") == 1,
        planned_for=_read_counts(body.get("for")),
    )


def _pack(body: dict[str, object]) -> bytes:
    return MAGIC + bytes([VERSION]) + json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


def _unpack(data: bytes) -> dict[str, object] | None:
    head = len(MAGIC)
    if data[:head] != MAGIC or len(data) <= head:
        return None
    try:
        body = json.loads(data[head + 1 :])
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _encode_positions(positions: Mapping[TopicPartition, int]) -> dict[str, list[list[int]]]:
    chosen = sorted(positions)[:MAX_HANDED_OVER]
    return {
        topic: [[number, positions[TopicPartition(topic, number)]] for number in numbers]
        for topic, numbers in by_topic(chosen).items()
    }


def _read_positions(raw: object) -> dict[TopicPartition, int]:
    positions: dict[TopicPartition, int] = {}
    if not isinstance(raw, dict):
        return positions
    for topic, pairs in raw.items():
        for pair in pairs if isinstance(pairs, list) else ():
            if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair):
                positions[TopicPartition(topic, pair[0])] = pair[1]
            if len(positions) >= MAX_HANDED_OVER:
                return positions
    return positions


def _read_names(raw: object) -> tuple[str, ...]:
    found = raw[:MAX_ASSIGNORS] if isinstance(raw, list) else []
    return tuple(name for name in found if isinstance(name, str) and 0 < len(name) <= 255)


def _read_counts(raw: object) -> dict[str, int] | None:
    if not isinstance(raw, dict):
        return None
    return {topic: count for topic, count in raw.items() if type(count) is int and count >= 0}


def _read_endpoint(raw: object) -> Endpoint | None:
    if not (isinstance(raw, list) and len(raw) == 2):
        return None
    host, port = raw
    if isinstance(host, str) and 0 < len(host) <= 255 and type(port) is int and 0 < port < 65_536:
        return Endpoint(host, port)
    return None
