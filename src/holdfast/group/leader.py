"""The leader's part of a round: from what the members sent to what each of them gets, with our notes in it.

`assign` plans (KIP-429 2a–2f); this module reads the members' notes before and writes the leader's after: who drains,
the mark that partitions are withheld, where pokes reach the others, and the positions that change hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.assign import RoundPlan, plan_round
from holdfast.group.user_data import (
    MAX_PEERS,
    Endpoint,
    LeaderNote,
    MemberNote,
    encode_leader_note,
    read_member_note,
)
from holdfast.model import (
    NO_GENERATION,
    Assignor,
    ClusterView,
    HoldfastError,
    JoinedMember,
    RebalanceProtocol,
    TopicPartition,
)
from holdfast.model.consumer_protocol import decode_subscription

DRAIN_HINT = b'"drain":1'
"""How a draining member's note looks in its bytes: only where it occurs is the whole subscription read twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPlan:
    """What the leader sends with its SyncGroup, and what it knows of the round."""

    assignments: Mapping[str, bytes]
    round: RoundPlan
    draining: frozenset[str]
    planned_for: Mapping[str, int]
    """Partitions of every topic that some member subscribes to, as the plan saw them; 0 for those that don't exist."""


def plan(
    assignor: Assignor,
    cluster: ClusterView,
    members: Sequence[JoinedMember],
    *,
    generation: int = NO_GENERATION,
    leader: str = "",
    token: str = "",
    marks: bool = True,
) -> LeaderPlan:
    """Plan the round of this generation; without one no positions are handed over.

    `leader` is our own member id, `token` what pokes must carry. With `marks` off we lead as a foreign client would.
    """
    draining = _draining(members) if marks else frozenset[str]()
    planned = plan_round(assignor, cluster, members, draining=draining)
    planned_for = {
        topic: cluster.topics[topic].partitions if topic in cluster.topics else 0 for topic in sorted(planned.topics)
    }

    def result(notes: Mapping[str, bytes]) -> LeaderPlan:
        return LeaderPlan(assignments=planned.encode(notes), round=planned, draining=draining, planned_for=planned_for)

    if not marks:
        return result({})
    if RebalanceProtocol.COOPERATIVE not in assignor.protocols:
        return result({leader: encode_leader_note(LeaderNote(planned_for=planned_for))} if leader else {})
    notes = {
        member.member_id: note
        for member in members
        if (note := read_member_note(planned.user_data(member.member_id))) is not None
    }
    offers = _offers(members, notes, generation)
    all_read = len(notes) == len(members)
    common = LeaderNote(
        withheld=planned.transferring, peers=_peers(notes), token=token, all_read=all_read, knows_drain=all_read
    )
    return result(_leader_notes(common, notes, _positions(planned, offers), {leader: planned_for}))


def subscribed_topics(members: Sequence[JoinedMember]) -> frozenset[str]:
    """Everything that some member subscribes to, so that the leader can look it up before it plans."""
    return plan_round("roundrobin", ClusterView(), members).topics


def _draining(members: Sequence[JoinedMember]) -> frozenset[str]:
    """Whose partitions are planned away: those who drain, if everybody follows the mark.

    What is revoked in one round is given in the next, and that one waits for a foreign member's heartbeat. Where there
    is one, whoever drains is told that we don't know the flag, works on, and leaves just before that heartbeat.
    """
    if not any(DRAIN_HINT in member.metadata for member in members):
        return frozenset()
    notes = {member.member_id: _note_of(member) for member in members}
    if None in notes.values():
        return frozenset()
    return frozenset(name for name, note in notes.items() if note is not None and note.draining)


def _note_of(member: JoinedMember) -> MemberNote | None:
    try:
        return read_member_note(decode_subscription(member.metadata).user_data)
    except HoldfastError:
        return None


def _leader_notes(
    common: LeaderNote,
    notes: Mapping[str, MemberNote],
    positions: Mapping[str, Mapping[TopicPartition, int]],
    planned_for: Mapping[str, Mapping[str, int]],
) -> dict[str, bytes]:
    """The note for every holdfast member; foreign members get none, they could not read it."""
    written = dict.fromkeys(notes, encode_leader_note(common))
    for member in sorted(notes.keys() & (positions.keys() | planned_for.keys())):
        own = replace(common, positions=positions.get(member, {}), planned_for=planned_for.get(member))
        written[member] = encode_leader_note(own)
    return written


def _peers(notes: Mapping[str, MemberNote]) -> tuple[Endpoint, ...]:
    known = {note.endpoint for note in notes.values() if note.endpoint is not None}
    return tuple(sorted(known, key=lambda peer: (peer.host, peer.port))[:MAX_PEERS])


def _offers(
    members: Sequence[JoinedMember], notes: Mapping[str, MemberNote], generation: int
) -> list[Mapping[TopicPartition, int]]:
    """The positions on offer from members that took part in the round before this one.

    An older offer may have been taken already: another round's owner went beyond it, and its successor would go back.
    """
    offers = []
    for member in members:
        note = notes.get(member.member_id)
        if note is None or not note.positions:
            continue
        if decode_subscription(member.metadata).generation == generation - 1:
            offers.append(note.positions)
    return offers


def _positions(
    planned: RoundPlan, offers: Sequence[Mapping[TopicPartition, int]]
) -> dict[str, dict[TopicPartition, int]]:
    """Who gets which final positions: only for partitions that this round really gives and that nobody claims.

    Two members that both hand over one partition contradict each other; then its committed offset decides as ever.
    """
    offered: dict[TopicPartition, int] = {}
    doubted: set[TopicPartition] = set()
    for offer in offers:
        for partition, offset in offer.items():
            if partition in offered:
                doubted.add(partition)
            offered[partition] = offset
    handed: dict[str, dict[TopicPartition, int]] = {}
    for partition in sorted(set(offered) - doubted):
        taker = planned.taker(partition)
        if taker is not None:
            handed.setdefault(taker, {})[partition] = offered[partition]
    return handed
