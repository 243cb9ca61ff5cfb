"""How the leader's notes share what a group may say: below 128 KB in all, whatever its size.

Positions come first, because members were promised that theirs are passed on (`LeaderNote.room`); then the leader's
note to itself; then flags for everybody; then peers. What does not fit is left out, and then things are as under a
leader that writes no notes: offsets come from the coordinator, and a round is heard of on the next heartbeat.

Where everybody's list of all peers fits, which is up to some 60 members, the notes are JSON. Beyond, they are short
ones with a few peers each, and pokes are passed on from member to member.
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
"""All notes of one plan. Kafka's limit for a whole group's record is 1 MB, of which members' own bytes are the rest."""

POSITIONS_BYTES = 80_000
"""Of those, positions: about a thousand that change hands in one round."""

PLANNED_FOR_BYTES = 16_000
"""Of those, the leader's note to itself: some 500 topics. With more, a static leader that returns asks for a round."""

FAN_OUT = (3, 2)
"""Peers of one member where pokes are passed on: three if they fit, so that two may be deaf and all the others hear.
A single one would make a chain that any of its members breaks."""


def room_for_each(members: int) -> int:
    """How many bytes of positions every member of so many may hand over, so that the next leader can pass on all."""
    return min(MAX_ROOM_BYTES, POSITIONS_BYTES // max(1, members))


def fair_positions(positions: Mapping[str, Positions]) -> dict[str, Positions]:
    """As many as may be told. All, if members offered no more than the room they were given."""
    left = POSITIONS_BYTES
    fair: dict[str, Positions] = {}
    for member in sorted(positions):
        kept = as_many_as_fit(positions[member], left)
        if kept:
            fair[member] = kept
            left -= sum(map(position_bytes, kept))
    return fair


def affordable_counts(planned_for: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """All of it or none: of a part nobody could tell which topics it lacks."""
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
    """The note for every member of `endpoints`. `common` is what all are told, but for peers. With `always_short` a
    group of any size is told what a large one is."""
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
    if left < 0:  # not even flags for everybody: those who are handed positions get them, as far as they go
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
    """Whom the member at this place pokes: a generalised de Bruijn graph, in which everybody is reached from anywhere
    in as many steps as it takes to multiply 1 by the fan-out up to the number of members (Imase and Itoh, 1981)."""
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
