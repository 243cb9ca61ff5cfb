"""The leader's part of a round: from what the members sent to what each of them gets, with our notes in it.

`assign` plans (KIP-429 2a–2f). Around that this module reads the members' notes and writes the leader's: who drains,
the mark that partitions are withheld, the endpoints for pokes, and the positions that change hands. If the assignor
fails, every member keeps its partitions (`keeping`), and the positions wait for the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.assign import RoundPlan, plan_round, topics_of
from holdfast.group.keeping import kept_plan
from holdfast.group.messages import OffsetEntry
from holdfast.group.note_budget import NOTES_BYTES, room_for_each, write_notes
from holdfast.group.user_data import (
    Endpoint,
    LeaderNote,
    MemberNote,
    Positions,
    can_be_topic,
    examine_member_note,
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
    at_version,
    is_built_in,
)
from holdfast.model.consumer_protocol import decode_subscription

DRAIN_HINT = b'"drain":1'
"""These bytes are in every draining member's note. Only if they occur are subscriptions decoded a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPlan:
    """What the leader sends with its SyncGroup, and what it knows of the round."""

    assignments: Mapping[str, bytes]
    round: RoundPlan
    draining: frozenset[str]
    planned_for: Mapping[str, int]
    """Partitions of every topic that some member subscribes to, as the plan saw them; 0 for those that don't exist."""
    all_list: frozenset[str] = frozenset()
    """Assignors that every member says it lists. Empty if there is a foreign member: those don't say."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Members whose notes or claims were invalid and therefore ignored, each with the reason."""
    newer: Mapping[str, int] = field(default_factory=dict)
    """Members that have a newer version of the assignor than we, each with its version."""
    generation: int = NO_GENERATION
    handed: Mapping[str, Positions] = field(default_factory=dict)
    """The positions that each member is handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """What the leader sends if its assignor failed, and what it must remember of the round: see `keep`."""

    assignments: Mapping[str, bytes]
    generation: int
    waiting: Positions
    """The positions of partitions that nobody held when this round began. It gave them to nobody."""


class _Heard(NamedTuple):
    """What a member said when it joined, as far as it matters for positions. Only of members that send notes."""

    note: MemberNote
    held_generation: int
    static: bool


def plan(
    assignor: Assignor,
    cluster: ClusterView,
    members: Sequence[JoinedMember],
    *,
    generation: int = NO_GENERATION,
    before: LeaderPlan | KeptPlan | None = None,
    leader: str = "",
    token: str = "",
    marks: bool = True,
    notes_bytes: int = NOTES_BYTES,
    short_notes: bool = False,
) -> LeaderPlan:
    """Plan the round of this generation. Without a generation no positions are handed over.

    `before` is our last plan: what it was to hand over and nobody took is handed over now. `leader` is our
    own member id, `token` what pokes must carry. With `marks` off no notes are written, as by a foreign leader; with
    `short_notes` they are written as in a large group.
    """
    draining = _draining(members) if marks else frozenset[str]()
    newest = None if generation == NO_GENERATION else generation - 1
    versions = _versions(assignor, members)
    oldest = min(versions.values(), default=assignor.version)
    planned = plan_round(at_version(assignor, oldest), cluster, members, draining=draining, newest_claim=newest)
    planned_for = {
        topic: cluster.topics[topic].partitions if topic in cluster.topics else 0 for topic in sorted(planned.topics)
    }
    doubts = _doubts(planned, generation)
    notes = _notes(planned, doubts)
    all_read = len(notes) == len(members)
    cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols
    handed: Mapping[str, Positions] = {}
    written: Mapping[str, bytes] = {}
    if marks and cooperative:
        heard = {
            name: _Heard(note, planned.held_generation(name), planned.is_static(name)) for name, note in notes.items()
        }
        handed = _positions(planned, _final_positions(heard, before, generation))
    if marks:
        sound = all_read and not doubts and not planned.contested
        flags = _flags(planned, cooperative=cooperative, all_read=all_read, sound=sound, stays=leader not in draining)
        common = replace(flags, token=token, room=room_for_each(len(members), notes_bytes))
        # A member may subscribe to a name that no topic can have. Readers would refuse a note that contains it.
        own = {leader: {topic: count for topic, count in planned_for.items() if can_be_topic(topic)}}
        written = write_notes(
            common,
            _addressees(planned, notes, leader),
            handed,
            own,
            budget=notes_bytes,
            always_short=short_notes,
        )
    return LeaderPlan(
        generation=generation,
        handed=handed,
        assignments=planned.encode(written),
        round=planned,
        draining=draining,
        planned_for=planned_for,
        all_list=_all_list(notes.values()) if all_read else frozenset(),
        doubts=dict(sorted(doubts.items())),
        newer={member: theirs for member, theirs in versions.items() if theirs > assignor.version},
    )


def keep(
    cluster: ClusterView, members: Sequence[JoinedMember], *, generation: int, before: LeaderPlan | KeptPlan | None
) -> KeptPlan:
    """The assignor has failed in the round of this generation: let every member keep its partitions.

    The positions that a plan would have handed over wait for the next one. Their former owners offer them only once.
    Nobody gets these partitions in this round, so nobody can read them meanwhile. `before` is as in `plan`.
    """
    heard: dict[str, _Heard] = {}
    held: set[TopicPartition] = set()
    for member in members:
        try:
            said = decode_subscription(member.metadata)
        except HoldfastError:  # it keeps nothing, and hands nothing over
            continue
        if said.generation < generation:  # other claims are invalid
            held |= said.owned
        note = read_member_note(said.user_data)
        if note is not None:
            heard[member.member_id] = _Heard(note, said.generation, member.instance_id is not None)
    final = _final_positions(heard, before, generation)
    return KeptPlan(
        assignments=kept_plan(members, generation=generation),
        generation=generation,
        # Without a look at the topics this could grow with each round, by partitions that a member has made up.
        waiting={p: final[p] for p in sorted(final) if p not in held and _exists(p, cluster)},
    )


def _exists(partition: TopicPartition, cluster: ClusterView) -> bool:
    topic = cluster.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partitions


def _addressees(planned: RoundPlan, notes: Mapping[str, MemberNote], leader: str) -> dict[str, Endpoint | None]:
    """The members that get a note, each with its endpoint for pokes: those that sent one, and the leader itself."""
    endpoints = {member: note.endpoint for member, note in notes.items()}
    if leader and leader not in planned.assignor_user_data:
        endpoints.setdefault(leader, None)
    return endpoints


def _flags(planned: RoundPlan, *, cooperative: bool, all_read: bool, sound: bool, stays: bool) -> LeaderNote:
    """What every member's note says of this round. In an eager one nothing is withheld or handed over.

    A leader that drains does not promise that positions reach their next owners. It would have to stay for one more
    round to keep that promise (`leaving.drain_after_round`). So members that give something up wait for their commits.
    """
    if not cooperative:
        return LeaderNote(knows_drain=False)
    moving = planned.transferring
    return LeaderNote(withheld=moving, all_read=all_read and stays, knows_drain=all_read, read_on=moving and sound)


def subscribed_topics(members: Sequence[JoinedMember]) -> frozenset[str]:
    """Everything that some member subscribes to, so that the leader can look it up before it plans."""
    return topics_of(members)


def _draining(members: Sequence[JoinedMember]) -> frozenset[str]:
    """The members whose partitions are planned away: those that drain, if every member follows the mark.

    What is revoked in one round is assigned in the next, and that one would wait for a foreign member's heartbeat. So
    with a foreign member in the group nobody is planned away. The note then says `knows_drain=False`, and draining
    members find their own way (`member.aside`, `leaving.drain_after_round`).
    """
    if not any(DRAIN_HINT in member.metadata for member in members):
        return frozenset()
    notes = {member.member_id: _note_of(member) for member in members}
    if None in notes.values():
        return frozenset()
    return frozenset(name for name, note in notes.items() if note is not None and note.draining)


def _versions(assignor: Assignor, members: Sequence[JoinedMember]) -> dict[str, int]:
    """The version of a program's own assignor that each member has. What a foreign member has is not known."""
    if is_built_in(assignor):
        return {}
    notes = {member.member_id: _note_of(member) for member in members}
    return {name: note.version for name, note in sorted(notes.items()) if note is not None}


def _note_of(member: JoinedMember) -> MemberNote | None:
    try:
        return read_member_note(decode_subscription(member.metadata).user_data)
    except HoldfastError:
        return None


def _doubts(planned: RoundPlan, generation: int) -> dict[str, str]:
    """Members whose subscription can't be read, and members that claim partitions of a future generation."""
    doubts = dict.fromkeys(planned.malformed, "its subscription can't be read")
    for member in planned.ahead:
        doubts[member] = f"it says that it holds partitions of a generation after {generation - 1}"
    return doubts


def _all_list(notes: Iterable[MemberNote]) -> frozenset[str]:
    lists = [frozenset(note.assignors) for note in notes]
    return frozenset.intersection(*lists) if lists else frozenset()


def _notes(planned: RoundPlan, doubts: dict[str, str]) -> dict[str, MemberNote]:
    """The members' notes. One that can't be read is left out, and added to `doubts`."""
    notes: dict[str, MemberNote] = {}
    for member in planned.members:
        note, fault = examine_member_note(planned.user_data(member))
        if note is not None:
            notes[member] = note
        elif fault is not None:
            doubts.setdefault(member, f"its note can't be read: {fault}")
    return notes


def _final_positions(
    heard: Mapping[str, _Heard], before: LeaderPlan | KeptPlan | None, generation: int
) -> dict[TopicPartition, OffsetEntry]:
    """Where the next owners of partitions that were given up have to go on.

    If two members hand over the same partition, both offers are ignored, and the committed offset decides.
    """
    offered: dict[TopicPartition, OffsetEntry] = {}
    doubted: set[TopicPartition] = set()
    for offer in (*_offers(heard, generation), *_untaken(heard, before, generation)):
        for partition, offset in offer.items():
            if partition in offered:
                doubted.add(partition)
            offered[partition] = offset
    return {partition: offset for partition, offset in offered.items() if partition not in doubted}


def _offers(heard: Mapping[str, _Heard], generation: int) -> list[Positions]:
    """The positions that members offer, from those that took part in the previous round only.

    An older offer may have been used already. The owner of that round has gone beyond it, and the next one would go
    back.
    """
    return [
        member.note.positions
        for member in heard.values()
        if member.note.positions and member.held_generation == generation - 1
    ]


def _untaken(heard: Mapping[str, _Heard], before: LeaderPlan | KeptPlan | None, generation: int) -> list[Positions]:
    """Positions that the previous round was to hand over and did not, because another round cut it before all members
    had its result, or because the assignor failed. Their former owner offers them only once.

    If it failed, nobody has read these partitions since: nobody got them, whether or not the round was cut.

    If it was cut, only for members that still hold the same generation as then: nobody has read these partitions since.
    A newcomer holds none, then as now. If one held a generation then and holds none now, it may have read them and
    restarted, and one of a future generation is wrong. A static member that was too slow for this round is in it all
    the same, with what it said when it joined the last one. So of static ones it is not known whether they have got the
    result.
    """
    if before is None or before.generation != generation - 1:
        return []
    if isinstance(before, KeptPlan):
        return [before.waiting]
    known = [name for name in before.handed if name in heard and not heard[name].static]
    held = {name: heard[name].held_generation for name in known}
    return [
        before.handed[name]
        for name, now in held.items()
        if now < before.generation and now == before.round.held_generation(name)
    ]


def _positions(
    planned: RoundPlan, final: Mapping[TopicPartition, OffsetEntry]
) -> dict[str, dict[TopicPartition, OffsetEntry]]:
    """Which member gets which final positions: only of partitions that this round assigns and that nobody claims."""
    handed: dict[str, dict[TopicPartition, OffsetEntry]] = {}
    for partition in sorted(final):
        taker = planned.taker(partition)
        if taker is not None:
            handed.setdefault(taker, {})[partition] = final[partition]
    return handed
