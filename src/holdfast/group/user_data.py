"""What holdfast's members tell each other inside Kafka's own messages.

In a subscription the first four bytes stay an int32 generation, which Java's cooperative-sticky reads; then come our
magic, a version byte and a JSON object. In an assignment: magic, version, JSON; in large groups the short form of
`short_notes`. Java and librdkafka ignore our notes, and we ignore user data without our magic. Where a program's own
assignor plans, our note goes behind its bytes (`model.attached`), and the assignor never sees it.

Notes are untrusted input. An unknown field is ignored, because a newer version may have written it. If a known field
has an impossible value, the whole note is ignored, and `examine_…` gives the reason. The `examine_…` and `read_…_note`
functions never raise.

Every size has a bound: Kafka keeps a group, with all subscriptions and assignments, in one record of at most a
megabyte, and refuses a round that would make a larger one.
"""

from __future__ import annotations

import ipaddress
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.model.attached import MAGIC, attach, detach

VERSION = 1
GENERATION = struct.Struct(">i")

MAX_NOTE_BYTES = 256 * 1024
"""A longer note is not parsed. Ours are not a tenth as long."""

MAX_ROOM_BYTES = 16 * 1024
"""Limit for the positions in one join, counted by `position_bytes`: about 190. The next owners ask the coordinator for
the others."""

MAX_PEERS = 128
"""How many endpoints of one assignment are read."""

MAX_ASSIGNORS = 16
"""How many assignors one note names: a member in the middle of a migration lists two."""

MAX_TOKEN = 64
MAX_PARTITION = 2**31 - 1
MAX_EPOCH = 2**31 - 1
MAX_VERSION = 2**31 - 1
MAX_OFFSET = 2**63 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_POSITION_BYTES = 64
"""The longest a position can be in JSON, without its topic's name: numbers, quotes, brackets, and the surrounding
object of a single one."""


Positions = Mapping[TopicPartition, OffsetEntry]
"""Where the next owner continues, each with the leader epoch of the record before it. Notes carry no metadata."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a poke reaches a member. An IP address, because a name would need a look-up."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberNote:
    """From a member to the leader, in its subscription."""

    draining: bool = False
    endpoint: Endpoint | None = None
    positions: Positions = field(default_factory=dict)
    assignors: tuple[str, ...] = ()
    """The assignors it lists, in its order. During a migration nothing else tells an operator."""
    version: int = 0
    """Of the assignor that this subscription is for, where it is the program's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderNote:
    """From the leader to a member, in its assignment."""

    withheld: bool = False
    """The mark: partitions are withheld this round, so everybody should rejoin at once."""
    knows_drain: bool = True
    """Whether the leader plans the partitions of draining members away."""
    peers: tuple[Endpoint, ...] = ()
    passed_on: bool = False
    """Whether the peers are only some of the members: then a poke must be passed on to reach all of them."""
    token: str = ""
    """What a poke must carry in this generation."""
    positions: Positions = field(default_factory=dict)
    all_read: bool = False
    """Whether every member of this round reads notes, so that positions reach the partitions' next owners."""
    read_on: bool = False
    """Whether a member may go on reading partitions that this round takes from it, until the others have joined the
    next round: nobody gets them before it has joined too. Only short notes carry this."""
    room: int = MAX_ROOM_BYTES
    """How many bytes of positions, counted by `position_bytes`, the next join may carry and be sure that the leader
    passes them on."""
    planned_for: Mapping[str, int] | None = None
    """For the leader itself: the number of partitions of each topic when it planned. A static leader that comes back is
    told to skip planning, and checks by this whether the plan is still up to date."""


def position_bytes(partition: TopicPartition) -> int:
    """The size that one position counts for in any note: at least the size of its JSON."""
    return len(partition.topic) + _POSITION_BYTES


def fit_in(partitions: Iterable[TopicPartition], room: int) -> bool:
    """Whether one join can carry the positions of all these."""
    return sum(map(position_bytes, partitions)) <= room


def as_many_as_fit(positions: Positions, room: int) -> dict[TopicPartition, OffsetEntry]:
    """The first of them, in order, up to what fits."""
    kept: dict[TopicPartition, OffsetEntry] = {}
    for partition in sorted(positions):
        room -= position_bytes(partition)
        if room < 0:
            break
        kept[partition] = positions[partition]
    return kept


def append_note(user_data: bytes | None, note: MemberNote, generation: int) -> bytes | None:
    """A built-in assignor's user data with our note after it, if a note can be added.

    It can if the assignor sends nothing, or just a generation. Anything longer is a format that Java reads.
    """
    if user_data is not None and len(user_data) != GENERATION.size:
        return user_data
    return (user_data if user_data is not None else GENERATION.pack(generation)) + encode_member_note(note)


def attach_note(user_data: bytes | None, note: MemberNote) -> bytes:
    """The user data of a program's own assignor, whatever it is, with our note behind it."""
    return attach(user_data, encode_member_note(note))


def encode_member_note(note: MemberNote) -> bytes:
    body: dict[str, object] = {}
    if note.draining:
        body["drain"] = 1
    if note.endpoint is not None:
        body["at"] = [note.endpoint.host, note.endpoint.port]
    if note.positions:
        body |= positions_body(as_many_as_fit(note.positions, MAX_ROOM_BYTES))
    if note.assignors:
        body["as"] = list(note.assignors[:MAX_ASSIGNORS])
    if note.version:
        body["av"] = note.version
    return _pack(body)


def encode_leader_note(note: LeaderNote) -> bytes:
    body = leader_body(note)
    if note.peers:
        body["peers"] = [[peer.host, peer.port] for peer in note.peers[:MAX_PEERS]]
    if note.token:
        body["token"] = note.token
    if note.withheld:
        body["wait"] = 1
    if note.knows_drain:
        body["drains"] = 1
    if note.all_read:
        body["reach"] = 1
    if note.room != MAX_ROOM_BYTES:
        body["room"] = note.room
    return _pack(body)


def leader_body(note: LeaderNote) -> dict[str, object]:
    """The part of a leader's note that concerns one member only."""
    body: dict[str, object] = {}
    if note.positions:
        body |= positions_body(note.positions)
    if note.planned_for is not None:
        body["for"] = dict(sorted(note.planned_for.items()))
    return body


def positions_body(positions: Positions) -> dict[str, object]:
    """Offsets by topic; and the epochs of all, in the same order, in a separate field that older versions ignore."""
    offsets: dict[str, list[list[int]]] = {}
    epochs: list[int] = []
    for partition in sorted(positions):
        entry = positions[partition]
        offsets.setdefault(partition.topic, []).append([partition.partition, entry.offset])
        epochs.append(entry.leader_epoch)
    return {"pos": offsets, "ep": epochs} if any(epoch >= 0 for epoch in epochs) else {"pos": offsets}


def as_json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


def _pack(body: Mapping[str, object]) -> bytes:
    return MAGIC + bytes([VERSION]) + as_json(body)


# Reading


class Unreadable(Exception):
    """This can't be a valid note. Never raised outside this package."""


def examine_member_note(user_data: bytes | None) -> tuple[MemberNote | None, str | None]:
    """The note in a subscription, or None if there is none; and the reason if a note of ours can't be read."""
    found = _member_note_in(user_data)
    if found is None:
        return None, None
    try:
        body = read_json(found[len(MAGIC) + 1 :])
        return (
            MemberNote(
                draining=_flag(body, "drain"),
                endpoint=None if "at" not in body else read_endpoint(body["at"]),
                positions=read_positions(body),
                assignors=_names(body.get("as")),
                version=_number(body.get("av", 0), "a version", MAX_VERSION),
            ),
            None,
        )
    except Unreadable as error:
        return None, str(error)


def _member_note_in(user_data: bytes | None) -> bytes | None:
    """The bytes from our magic on: behind an assignor's own bytes, or else behind a generation."""
    note = detach(user_data)[1]
    if note is None and user_data is not None:
        note = user_data[GENERATION.size :]
    return note if note is not None and is_ours(note) else None


def read_member_note(user_data: bytes | None) -> MemberNote | None:
    """The note in a subscription, or None when a foreign client sent it."""
    return examine_member_note(user_data)[0]


def json_leader_note(data: bytes) -> LeaderNote:
    """A leader's note, from what follows magic and version."""
    body = read_json(data)
    peers, token = body.get("peers", []), body.get("token", "")
    if not isinstance(peers, list):
        raise Unreadable("its peers are not a list")
    everybody = _flag(body, "all")  # the flag of older leaders without `room`, which pass on all positions
    return LeaderNote(
        withheld=_flag(body, "wait"),
        knows_drain=_flag(body, "drains"),
        peers=tuple(read_endpoint(raw) for raw in peers[:MAX_PEERS]),
        token=_token(token),
        positions=read_positions(body),
        all_read=everybody or _flag(body, "reach"),
        room=_number(body.get("room", MAX_ROOM_BYTES), "room", MAX_ROOM_BYTES),
        planned_for=read_counts(body.get("for")),
    )


def is_ours(data: bytes) -> bool:
    """Whether our magic opens it, and a version follows."""
    return data[: len(MAGIC)] == MAGIC and len(data) > len(MAGIC)


def read_json(data: bytes) -> dict[str, object]:
    if len(data) > MAX_NOTE_BYTES:
        raise Unreadable(f"it has {len(data)} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(body, dict):
        raise Unreadable("it is not a JSON object")
    return body


def read_positions(body: Mapping[str, object]) -> Positions:
    offsets = _read_offsets(body.get("pos"))
    epochs = body.get("ep")
    if epochs is None:
        return {partition: OffsetEntry(offset) for partition, offset in offsets}
    if not isinstance(epochs, list) or len(epochs) != len(offsets):
        raise Unreadable("its epochs are not those of its positions")
    return {
        partition: OffsetEntry(offset, -1 if epoch == -1 else _number(epoch, "an epoch", MAX_EPOCH))
        for (partition, offset), epoch in zip(offsets, epochs, strict=True)
    }


def _read_offsets(raw: object) -> list[tuple[TopicPartition, int]]:
    """In the order of the JSON text, which is also the order of their epochs."""
    offsets: list[tuple[TopicPartition, int]] = []
    if raw is None:
        return offsets
    if not isinstance(raw, dict):
        raise Unreadable("its positions are not an object")
    for topic, pairs in raw.items():
        name = _topic(topic)
        if not isinstance(pairs, list):
            raise Unreadable("its positions are not lists")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise Unreadable("a position is not a pair")
            partition = TopicPartition(name, _number(pair[0], "a partition", MAX_PARTITION))
            offsets.append((partition, _number(pair[1], "an offset", MAX_OFFSET)))
    return offsets


def read_counts(raw: object) -> dict[str, int] | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise Unreadable("its counts are not an object")
    return {_topic(topic): _number(count, "a count", MAX_PARTITION) for topic, count in raw.items()}


def read_endpoint(raw: object) -> Endpoint:
    if not isinstance(raw, list) or len(raw) != 2 or not isinstance(raw[0], str):
        raise Unreadable("an endpoint is not an address and a port")
    if _number(raw[1], "a port", 65_535) == 0 or not can_be_poked(raw[0]):
        raise Unreadable("an endpoint is not the IP address and port of one host")
    return Endpoint(raw[0], raw[1])


@lru_cache(maxsize=4_096)
def can_be_poked(host: str) -> bool:
    """Whether this is the IP address of a single host. Looking up a name would block the loop that pokes it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    many = address.is_multicast or address.is_unspecified or host == "255.255.255.255"
    return not many and "%" not in host


def _flag(body: Mapping[str, object], key: str) -> bool:
    value = body.get(key, 0)
    if value is not True and value is not False and value not in (0, 1):
        raise Unreadable(f"{key!r} is neither 0 nor 1")
    return bool(value)


def _number(raw: object, what: str, highest: int) -> int:
    if type(raw) is not int or not 0 <= raw <= highest:
        raise Unreadable(f"{what} is not a number from 0 to {highest}")
    return raw


def can_be_topic(name: str) -> bool:
    """Whether Kafka allows this name for a topic. A subscription may contain any text."""
    return _TOPIC.fullmatch(name) is not None


def _topic(raw: object) -> str:
    if not isinstance(raw, str) or not can_be_topic(raw):
        raise Unreadable("a name that no topic can have")
    return raw


def _token(raw: object) -> str:
    if not isinstance(raw, str) or len(raw) > MAX_TOKEN or not raw.isascii() or not (raw == "" or raw.isprintable()):
        raise Unreadable("its token is not a short ASCII text")
    return raw


def _names(raw: object) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(name, str) and 0 < len(name) <= 255 for name in raw):
        raise Unreadable("its assignors are not names")
    return tuple(raw[:MAX_ASSIGNORS])
