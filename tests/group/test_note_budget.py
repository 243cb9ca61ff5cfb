"""Notes in groups of any size: what they may take, who hears what, and that nobody needs them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.assign import by_name
from holdfast.group.leader import LeaderPlan, plan
from holdfast.group.messages import OffsetEntry
from holdfast.group.note_budget import NOTES_BYTES, POSITIONS_BYTES, room_for_each, successors
from holdfast.group.short_notes import encode_short_note, read_leader_note
from holdfast.group.user_data import (
    MAX_ROOM_BYTES,
    Endpoint,
    LeaderNote,
    MemberNote,
    append_note,
    as_many_as_fit,
    encode_leader_note,
    fit_in,
    read_member_note,
)
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, decode_subscription, encode_subscription

COOPERATIVE = by_name("cooperative-sticky")
TOKEN = "00112233445566ff"
SIZES = (3, 60, 100, 340, 1_000, 5_000, 20_000)


def endpoint(number: int, *, v6: bool = False) -> Endpoint:
    return Endpoint(f"2001:db8::{number:x}" if v6 else f"10.1.{number // 256}.{number % 256}", 40_000 + number % 20_000)


def joined(number: int, note: MemberNote, *, owned: frozenset[TopicPartition] = frozenset()) -> JoinedMember:
    own = COOPERATIVE.subscription_user_data(frozenset({"orders"}), owned, 3)
    subscription = Subscription(
        topics=("orders",), owned=owned, generation=3, user_data=append_note(own, note, 3), rack=None
    )
    return JoinedMember(member_id=f"m-{number:05}", metadata=encode_subscription(subscription))


def group(size: int, *, v6: bool = False, positions: bool = False, partitions_each: int = 2) -> list[JoinedMember]:
    """Members that have just revoked everything they had, and hand over as much as they were told that they may."""
    members = []
    for number in range(size):
        had = {
            TopicPartition("orders", number * partitions_each + each): OffsetEntry(2**62 + number, 2**31 - 1)
            for each in range(partitions_each)
        }
        kept = as_many_as_fit(had, room_for_each(size)) if positions else {}
        members.append(joined(number, MemberNote(endpoint=endpoint(number, v6=v6), positions=kept)))
    return members


def led(members: list[JoinedMember], *, partitions: int | None = None, **options: object) -> LeaderPlan:
    view = ClusterView({"orders": TopicView(partitions or 2 * len(members))})
    given: dict[str, object] = {"generation": 4, "leader": "m-00000", "token": TOKEN, **options}
    return plan(COOPERATIVE, view, members, **given)  # type: ignore[arg-type]


def note_bytes(planned: LeaderPlan) -> dict[str, bytes]:
    said = {name: decode_assignment(data).user_data for name, data in planned.assignments.items()}
    return {name: data for name, data in said.items() if data is not None}


def notes(planned: LeaderPlan) -> dict[str, LeaderNote]:
    return {name: note for name, data in note_bytes(planned).items() if (note := read_leader_note(data)) is not None}


@pytest.mark.parametrize("size", SIZES)
def test_the_notes_of_a_group_stay_below_their_bound_whatever_its_size(size: int) -> None:
    """Symptom: 400 members on a real Kafka ended with an empty group and 400 errors. Cause: every member was told of
    up to 128 others, 1.07 MB in all; Kafka keeps a group in one record of at most 1 MB and refuses the round. Rule: all
    notes of a plan together stay below 128 KB, with addresses of any length and with every position on its way."""
    for v6, positions in ((False, False), (True, False), (False, True), (True, True)):
        written = note_bytes(led(group(size, v6=v6, positions=positions)))
        assert sum(map(len, written.values())) <= NOTES_BYTES < 128 * 1024


@pytest.mark.parametrize("size", [3, 60, 100, 340, 1_000, 5_000, 10_000])
def test_every_member_hears_the_mark_and_the_flags(size: int) -> None:
    members = [joined(0, MemberNote(), owned=frozenset(TopicPartition("orders", p) for p in range(2 * size)))]
    members += [joined(number, MemberNote(endpoint=endpoint(number))) for number in range(1, size)]
    heard = notes(led(members))
    assert len(heard) == size
    for note in heard.values():
        assert note.withheld
        assert note.knows_drain
        assert note.all_read
        assert note.room == room_for_each(size)


@pytest.mark.parametrize("size", [3, 60, 66, 100, 340, 1_000, 3_000])
def test_a_poke_from_anybody_reaches_everybody_in_a_few_steps(size: int) -> None:
    """Everybody is told of a few others only, so pokes are passed on: whoever begins, nobody is left out."""
    heard = notes(led(group(size)))
    by_endpoint = {endpoint(number): heard[f"m-{number:05}"].peers for number in range(size)}
    for start in (0, size // 3, size - 1):
        reached, edge, steps = {endpoint(start)}, {endpoint(start)}, 0
        while edge:
            edge = {peer for each in edge for peer in by_endpoint[each]} - reached
            reached |= edge
            steps += bool(edge)
        assert len(reached) == size
        assert steps <= 9
    if size > 66:
        assert all(note.passed_on and 2 <= len(note.peers) <= 3 for note in heard.values())
    if size <= 60:
        assert not any(note.passed_on for note in heard.values()), "everybody is told directly"


def test_a_poke_gets_round_members_that_are_gone() -> None:
    """With three peers each, a tenth of the group that is deaf keeps hardly anybody from hearing of it."""
    size = 1_000
    places = [endpoint(number) for number in range(size)]
    onward = {at: successors(number, places, 3) for number, at in enumerate(places)}
    deaf = {places[number] for number in range(0, size, 10)}
    reached, edge = {places[1]}, {places[1]}
    while edge:
        edge = {peer for each in edge for peer in onward[each]} - reached - deaf
        reached |= edge
    assert len(reached) >= 0.99 * (size - len(deaf))


@pytest.mark.parametrize("size", [3, 40, 400, 1_000])
def test_positions_within_the_room_that_members_were_given_are_all_passed_on(size: int) -> None:
    """A revoker that may trust its positions to arrive does not wait for its commit; so they must, in every group."""
    members = group(size, positions=True, partitions_each=1 if size == 1_000 else 2)
    offered = {
        partition: offset
        for member in members
        for partition, offset in (read_member_note(_user_data(member)) or MemberNote()).positions.items()
    }
    assert offered
    planned = led(members, partitions=2 * size)
    handed = {p: offset for note in notes(planned).values() for p, offset in note.positions.items()}
    assert handed == offered


def _user_data(member: JoinedMember) -> bytes | None:

    return decode_subscription(member.metadata).user_data


def test_a_members_own_bytes_have_a_bound_whatever_it_owns() -> None:
    """Symptom: a member that revoked thousands of partitions joined with hundreds of kilobytes. Rule: what it adds to
    its subscription is bounded, and by what its leader can pass on."""
    had = {TopicPartition("t" * 249, number): OffsetEntry(2**63 - 1, 2**31 - 1) for number in range(50_000)}
    note = MemberNote(endpoint=endpoint(1, v6=True), positions=had, assignors=("a" * 255,) * 100, draining=True)
    said = append_note(None, note, 3)
    assert said is not None
    assert len(said) < MAX_ROOM_BYTES + 16 * 260 + 200
    assert not fit_in(had, MAX_ROOM_BYTES)
    assert read_member_note(said) is not None


def test_what_eager_members_remember_in_their_user_data_has_a_bound_too() -> None:
    """`sticky` writes all it had into its user data, as Java does. Beyond 64 KB the rest is forgotten: those partitions
    may move, and nothing else."""
    sticky = by_name("sticky")
    many = frozenset(TopicPartition("t" * 200, number) for number in range(100_000))
    said = sticky.subscription_user_data(frozenset({"t" * 200}), many, 7)
    assert said is not None
    assert len(said) <= 64 * 1024
    few = frozenset(TopicPartition("orders", number) for number in range(100))
    assert len(sticky.subscription_user_data(frozenset({"orders"}), few, 7) or b"") == 4 + 2 + 6 + 4 + 400 + 4


def test_what_a_plan_was_made_for_is_told_whole_or_not_at_all() -> None:
    """A part of it would look like topics that have gone, and a returning leader would ask for rounds for ever."""
    few = {f"topic-{number}": 3 for number in range(100)}
    many = {f"topic-{number}": 3 for number in range(10_000)}
    for topics, told in ((few, True), (many, False)):
        subscription = Subscription(topics=tuple(topics), generation=3, user_data=append_note(None, MemberNote(), 3))
        members = [JoinedMember(member_id="m-00000", metadata=encode_subscription(subscription))]
        for assignor in (COOPERATIVE, by_name("range")):
            planned = plan(
                assignor, ClusterView({t: TopicView(n) for t, n in topics.items()}), members, leader="m-00000"
            )
            assert planned.planned_for == topics
            assert (notes(planned)["m-00000"].planned_for == topics) is told
            assert sum(map(len, note_bytes(planned).values())) < NOTES_BYTES


def test_a_leader_hears_what_it_planned_for_under_an_assignor_that_leaves_no_room_for_members_notes() -> None:
    """Eager `sticky` fills the user data of joins with what members had, so that they carry no notes. The leader's
    assignment has room, and a static leader that returns needs it to know whether its plan still holds."""
    had = frozenset({TopicPartition("orders", 0)})
    own = by_name("sticky").subscription_user_data(frozenset({"orders"}), had, 3)
    subscription = Subscription(topics=("orders",), generation=3, user_data=own)
    members = [JoinedMember(member_id=name, metadata=encode_subscription(subscription)) for name in ("m-1", "m-2")]
    planned = plan(by_name("sticky"), ClusterView({"orders": TopicView(2)}), members, generation=4, leader="m-1")
    assert {name: note.planned_for for name, note in notes(planned).items()} == {"m-1": {"orders": 2}}


@pytest.mark.parametrize("budget", [0, 30, 100, 1_000])
def test_a_group_is_planned_alike_with_fewer_notes_or_none(budget: int) -> None:
    """No note is needed for a plan to be right: with no room for any, everybody gets the same partitions."""
    members = group(20, positions=True)
    whole, poor = led(members), led(members, notes_bytes=budget)
    assert sum(map(len, note_bytes(poor).values())) <= budget
    for name, data in whole.assignments.items():
        assert decode_assignment(poor.assignments[name]).partitions == decode_assignment(data).partitions


def test_short_notes_say_what_long_ones_say() -> None:
    full = LeaderNote(
        withheld=True,
        knows_drain=False,
        all_read=True,
        room=123,
        token=TOKEN,
        peers=(endpoint(1), endpoint(2, v6=True)),
        positions={TopicPartition("orders", 7): OffsetEntry(2**63 - 1, 5), TopicPartition("pay", 0): OffsetEntry(3)},
        planned_for={"orders": 12},
    )
    assert read_leader_note(encode_leader_note(full)) == full
    assert read_leader_note(encode_short_note(full)) == replace(full, passed_on=True)
    assert read_leader_note(encode_short_note(LeaderNote())) == LeaderNote()


def test_a_short_note_that_is_cut_anywhere_reads_as_nothing_or_as_less() -> None:
    note = LeaderNote(token=TOKEN, peers=(endpoint(1), endpoint(2)), passed_on=True, planned_for={"orders": 1})
    full = encode_short_note(note)
    less = replace(note, planned_for=None)
    assert read_leader_note(full) == note
    assert [stop for stop in range(len(full)) if read_leader_note(full[:stop]) == less] == [
        len(encode_short_note(less))
    ]
    assert all(read_leader_note(full[:stop]) in (None, less) for stop in range(len(full)))


def test_the_whole_of_a_thousand_members_fits_one_record_of_kafkas() -> None:
    """What Kafka writes for a group: of every member its id, client, host, subscription and assignment."""
    size = 1_000
    members = group(size, v6=True, positions=True)
    planned = led(members, partitions=4 * size)
    rest = size * (16 + len("holdfast-aio-") + 49 + 40 + 8)
    record = rest + sum(len(m.metadata) for m in members) + sum(map(len, planned.assignments.values()))
    assert record < 700_000
    assert room_for_each(size) * size <= POSITIONS_BYTES
