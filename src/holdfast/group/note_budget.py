"""Keeps all notes of a plan below 128 KB together, whatever the group's size.

Positions have priority, because members were promised that theirs are passed on (`LeaderNote.room`). Then come the
leader's note to itself, flags for everybody, and peers. What does not fit is left out. Members then behave as under a
leader without notes: they ask the coordinator for offsets, and learn of a round on their next heartbeat.

If every note can list all peers, which works up to about 60 members, the notes are JSON. In larger groups they are
short notes with a few peers each, and pokes are passed on from member to member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.group.short_notes import (
    SHORT_BYTES,
    TOKEN_BYTES,
    encode_short_note,
    packed_endpoint,
    short_token,
)
from holdfast.group.user_data import (
    MAX_PEERS,
    MAX_ROOM_BYTES,
    Endpoint,
    LeaderNote,
    Positions,
    as_json,
    as_many_as_fit,
    encode_leader_note,
    position_bytes,
)

NOTES_BYTES = 128_000
"""Limit for all notes of one plan. Kafka limits the record of a whole group to 1 MB; the rest of that is for the
members' own bytes."""

POSITIONS_BYTES = 80_000
"""How much of it positions may take: enough for about a thousand that change hands in one round."""

PLANNED_FOR_BYTES = 16_000
"""How much of it the leader's note to itself may take: about 500 topics. With more it is left out, and a static leader
that comes back asks for a round."""

FAN_OUT = (3, 2)
"""How many peers each member has where pokes are passed on: three if they fit. With three, two members may miss their
pokes and all others are still reached. One peer each would make a chain that breaks at any member."""


def room_for_each(members: int, budget: int = NOTES_BYTES) -> int:
    """How many bytes of positions each member may hand over, so that the next leader can pass on all of them. A smaller
    budget means less room for positions, because the rest of a note does not shrink."""
    room = min(POSITIONS_BYTES, max(0, budget - (NOTES_BYTES - POSITIONS_BYTES)))
    return min(MAX_ROOM_BYTES, room // max(1, members))


def fair_positions(positions: Mapping[str, Positions]) -> dict[str, Positions]:
    """As many positions as fit. All of them, if no member offered more than the room it was given."""
    left = POSITIONS_BYTES
    fair: dict[str, Positions] = {}
    for member in sorted(positions):
        kept = as_many_as_fit(positions[member], left)
        if kept:
            fair[member] = kept
            left -= sum(map(position_bytes, kept))
    return fair


def affordable_counts(planned_for: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """All counts if they fit, otherwise none: from a part one could not tell which topics are missing."""
    if planned_for is None or len(as_json(planned_for)) > PLANNED_FOR_BYTES:
        return None
    return planned_for


def write_notes(
    common: LeaderNote,
    endpoints: Mapping[str, Endpoint | None],
    positions: Mapping[str, Positions],
    planned_for: Mapping[str, Mapping[str, int]],
    *,
    budget: int = NOTES_BYTES,
    always_short: bool = False,
) -> dict[str, bytes]:
    """The note for every member of `endpoints`. `common` is what all notes contain, without peers. With `always_short`
    the notes are short ones, whatever the group's size."""
    fair = fair_positions(positions)
    own = {
        member: replace(common, positions=fair.get(member, {}), planned_for=affordable_counts(planned_for.get(member)))
        for member in sorted(endpoints.keys() & (fair.keys() | planned_for.keys()))
    }
    peers = sorted({at for at in endpoints.values() if at is not None}, key=lambda peer: (peer.host, peer.port))
    if len(peers) <= MAX_PEERS and not always_short:
        written = _full(common, own, endpoints, tuple(peers))
        if sum(map(len, written.values())) <= budget:
            return written
    return _short(common, own, endpoints, peers, budget)


def _full(
    common: LeaderNote, own: Mapping[str, LeaderNote], endpoints: Mapping[str, object], peers: tuple[Endpoint, ...]
) -> dict[str, bytes]:
    written = dict.fromkeys(endpoints, encode_leader_note(replace(common, peers=peers)))
    written.update({member: encode_leader_note(replace(note, peers=peers)) for member, note in own.items()})
    return written


def _short(
    common: LeaderNote,
    own: Mapping[str, LeaderNote],
    endpoints: Mapping[str, Endpoint | None],
    peers: Sequence[Endpoint],
    budget: int,
) -> dict[str, bytes]:
    bare = {member: encode_short_note(note) for member, note in own.items()}
    left = budget - sum(len(note) - SHORT_BYTES for note in bare.values()) - SHORT_BYTES * len(endpoints)
    if left < 0:  # no room even for everybody's flags: only notes with content of their own, as many as fit
        return _up_to(budget, bare)
    fan_out = _affordable_fan_out(endpoints, peers, left) if short_token(common.token) is not None else 0
    if fan_out == 0:
        return {**dict.fromkeys(endpoints, encode_short_note(common)), **bare}
    place = {peer: number for number, peer in enumerate(peers)}
    return {
        member: encode_short_note(
            replace(own.get(member, common), peers=() if at is None else successors(place[at], peers, fan_out))
        )
        for member, at in endpoints.items()
    }


def successors(place: int, peers: Sequence[Endpoint], fan_out: int) -> tuple[Endpoint, ...]:
    """Whom the member at this place pokes: its successors in a generalised de Bruijn graph. From any member everybody
    is reached in log(members) / log(fan_out) steps, rounded up (Imase and Itoh, 1981)."""
    numbers = {(place * fan_out + step) % len(peers) for step in range(fan_out)} - {place}
    return tuple(peers[number] for number in sorted(numbers))


def _affordable_fan_out(endpoints: Mapping[str, Endpoint | None], peers: Sequence[Endpoint], left: int) -> int:
    longest = max((len(packed_endpoint(peer)) for peer in peers), default=0)
    for fan_out in FAN_OUT:
        if len(peers) > fan_out and len(endpoints) * (TOKEN_BYTES + 1 + fan_out * longest) <= left:
            return fan_out
    return 0


def _up_to(budget: int, notes: Mapping[str, bytes]) -> dict[str, bytes]:
    written: dict[str, bytes] = {}
    for member in sorted(notes):
        budget -= len(notes[member])
        if budget < 0:
            break
        written[member] = notes[member]
    return written
