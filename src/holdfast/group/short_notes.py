"""The short form of a leader's note, for large groups, where every note counts.

    magic · version 2 · flags · room uint16 · [token 8 bytes · count uint8 · {length uint8, address, port uint16}]
    · JSON?

The part in brackets is there if the flag HAS_PEERS is set. The JSON at the end has what concerns one member only:
positions, and the leader's note to itself. A holdfast that does not know version 2 finds no note, and heartbeats
quickly instead. `read_on` exists in this form only.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

from holdfast.group.user_data import (
    MAX_ROOM_BYTES,
    Endpoint,
    LeaderNote,
    Unreadable,
    as_json,
    can_be_poked,
    is_ours,
    json_leader_note,
    leader_body,
    read_counts,
    read_json,
    read_positions,
)
from holdfast.model.attached import MAGIC, detach

SHORT_VERSION = 2
WITHHELD, KNOWS_DRAIN, ALL_READ, HAS_PEERS, READ_ON = 1, 2, 4, 8, 16
TOKEN_BYTES = 8

_HEAD = struct.Struct(">BH")
_PORT = struct.Struct(">H")

SHORT_BYTES = len(MAGIC) + 1 + _HEAD.size
"""Size of a short note with flags and room only."""


def encode_short_note(note: LeaderNote) -> bytes:
    """Peers are left out unless the token is 16 hexadecimal digits."""
    token = short_token(note.token)
    peers = note.peers if token is not None else ()
    flags = (
        (WITHHELD if note.withheld else 0)
        | (KNOWS_DRAIN if note.knows_drain else 0)
        | (ALL_READ if note.all_read else 0)
        | (HAS_PEERS if peers else 0)
        | (READ_ON if note.read_on else 0)
    )
    parts = [MAGIC, bytes([SHORT_VERSION]), _HEAD.pack(flags, min(note.room, MAX_ROOM_BYTES))]
    if peers and token is not None:
        parts += [token, bytes([len(peers)]), *map(packed_endpoint, peers)]
    body = leader_body(note)
    return b"".join([*parts, as_json(body)] if body else parts)


def short_token(token: str) -> bytes | None:
    try:
        packed = bytes.fromhex(token)
    except ValueError:
        return None
    return packed if len(packed) == TOKEN_BYTES and packed.hex() == token else None


@lru_cache(maxsize=4_096)
def packed_endpoint(endpoint: Endpoint) -> bytes:
    """Cached: every member is a peer of three others, in every round."""
    address = ipaddress.ip_address(endpoint.host).packed
    return bytes([len(address)]) + address + _PORT.pack(endpoint.port)


def examine_leader_note(user_data: bytes | None) -> tuple[LeaderNote | None, str | None]:
    """The note in an assignment, or None under a foreign leader; and the reason if a note of ours can't be read."""
    note = detach(user_data)[1] or user_data
    if note is None or not is_ours(note):
        return None, None
    version, rest = note[len(MAGIC)], note[len(MAGIC) + 1 :]
    try:
        return (_short_leader_note(rest) if version == SHORT_VERSION else json_leader_note(rest)), None
    except Unreadable as error:
        return None, str(error)


def without_note(user_data: bytes | None) -> bytes | None:
    """What the leader's assignor wanted to say, and nothing of ours."""
    own, _ = detach(user_data)
    return None if own is None or is_ours(own) else own


def read_leader_note(user_data: bytes | None) -> LeaderNote | None:
    """The note in an assignment, or None under a foreign leader."""
    return examine_leader_note(user_data)[0]


def _short_leader_note(data: bytes) -> LeaderNote:
    if len(data) < _HEAD.size:
        raise Unreadable("it ends too early")
    flags, room = _HEAD.unpack_from(data)
    at = _HEAD.size
    token = ""
    peers: tuple[Endpoint, ...] = ()
    if flags & HAS_PEERS:
        token, peers, at = _peers(data, at)
    body = read_json(data[at:]) if at < len(data) else {}
    return LeaderNote(
        withheld=bool(flags & WITHHELD),
        knows_drain=bool(flags & KNOWS_DRAIN),
        all_read=bool(flags & ALL_READ),
        read_on=bool(flags & READ_ON),
        room=min(room, MAX_ROOM_BYTES),
        token=token,
        peers=peers,
        passed_on=bool(peers),
        positions=read_positions(body),
        planned_for=read_counts(body.get("for")),
    )


def _peers(data: bytes, at: int) -> tuple[str, tuple[Endpoint, ...], int]:
    token = data[at : at + TOKEN_BYTES]
    at += TOKEN_BYTES
    count = data[at] if at < len(data) else 0
    at += 1
    peers = []
    for _ in range(count):
        length = data[at] if at < len(data) else 0
        packed, port = data[at + 1 : at + 1 + length], data[at + 1 + length : at + 3 + length]
        at += 3 + length
        if len(port) != _PORT.size or length not in (4, 16):
            raise Unreadable("it ends inside an endpoint")
        endpoint = Endpoint(str(ipaddress.ip_address(packed)), _PORT.unpack(port)[0])
        if not can_be_poked(endpoint.host) or endpoint.port == 0:
            raise Unreadable("an endpoint is not the IP address and port of one host")
        peers.append(endpoint)
    if len(token) != TOKEN_BYTES or not peers:
        raise Unreadable("it ends inside its peers")
    return token.hex(), tuple(peers), at
