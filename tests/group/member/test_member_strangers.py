"""Notes from anybody: whatever a member or a leader writes where notes are, the others go on.

Symptoms: an endpoint whose host had a NUL or half a character ended every member that poked it; an offset of 2**70
ended whoever was handed it; a topic that is not UTF-8 ended the leader, and with it the group. Cause: what was read was
believed. Rule: a note with anything in it that can't be true is no note, and it is told once, with the member's name.
"""

from __future__ import annotations

import json
import struct
import sys
from types import FrameType
from typing import Any

import pytest
from driven import Driven
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assign import STRATEGIES, by_name
from holdfast.group import keeping
from holdfast.group.keeping import kept_plan
from holdfast.group.leader import plan
from holdfast.group.member import Emit, Enforce, Planned, Poked, SyncAnswered
from holdfast.group.messages import OffsetEntry, SyncAnswer
from holdfast.group.short_notes import examine_leader_note
from holdfast.group.user_data import LeaderNote, MemberNote, append_note, examine_member_note, read_member_note
from holdfast.model import Assignment, ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, encode_assignment, encode_subscription

TWELVE = ClusterView({"orders": TopicView(12)})
HEAD = struct.pack(">i", 3)

BAD_BODIES: dict[str, object] = {
    "a host with a NUL": {"at": ["10.0.0.1\x00", 9]},
    "a host with half a character": {"at": ["\ud800", 9]},
    "a host by name": {"at": ["localhost", 9]},
    "a host of many": {"at": ["224.0.0.1", 9]},
    "a host of all": {"at": ["255.255.255.255", 9]},
    "no host": {"at": ["0.0.0.0", 9]},
    "a port beyond all": {"at": ["10.0.0.1", 99_999_999]},
    "port 0": {"at": ["10.0.0.1", 0]},
    "a port in words": {"at": ["10.0.0.1", "9"]},
    "an endpoint of one": {"at": ["10.0.0.1"]},
    "an offset beyond 64 bits": {"pos": {"orders": [[0, 2**70]]}},
    "a negative offset": {"pos": {"orders": [[0, -1]]}},
    "an offset that is a truth": {"pos": {"orders": [[0, True]]}},
    "a partition beyond 32 bits": {"pos": {"orders": [[2**31, 5]]}},
    "a topic with half a character": {"pos": {"\udcff": [[0, 5]]}},
    "a topic that can't be one": {"pos": {"or ders": [[0, 5]]}},
    "a topic too long": {"pos": {"o" * 250: [[0, 5]]}},
    "positions in a list": {"pos": [[0, 5]]},
    "a position of three": {"pos": {"orders": [[0, 5, 6]]}},
    "an epoch for nothing": {"pos": {"orders": [[0, 5]]}, "ep": [1, 2]},
    "an epoch in words": {"pos": {"orders": [[0, 5]]}, "ep": ["1"]},
    "an epoch beyond 32 bits": {"pos": {"orders": [[0, 5]]}, "ep": [2**31]},
    "epochs by topic": {"pos": {"orders": [[0, 5]]}, "ep": {"orders": [1]}},
    "a drain in words": {"drain": "yes"},
    "assignors in words": {"as": "range"},
    "an assignor without end": {"as": ["x" * 300]},
    "a list": [1, 2],
}


def raw_member(name: str, user_data: bytes | None, owned: bytes = b"\x00\x00\x00\x00") -> JoinedMember:
    """A subscription to orders with exactly these bytes in it."""
    topics = struct.pack(">hih6s", 3, 1, 6, b"orders")
    said = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return JoinedMember(member_id=name, metadata=topics + said + owned + struct.pack(">ih", 3, -1))


def sound(name: str, *owned: int) -> JoinedMember:
    subscription = Subscription(
        topics=("orders",),
        owned=frozenset(TopicPartition("orders", number) for number in owned),
        generation=3,
        user_data=append_note(HEAD, MemberNote(), 3),
    )
    return JoinedMember(member_id=name, metadata=encode_subscription(subscription))


def everything_is_given_once(assignments: dict[str, bytes], held: frozenset[TopicPartition]) -> bool:
    given = [p for data in assignments.values() for p in decode_assignment(data).partitions]
    return len(given) == len(set(given)) and {TopicPartition("orders", n) for n in range(12)} == {*given} | held


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_note_that_can_not_be_true_is_none_and_its_sender_is_named(body: object) -> None:
    said = HEAD + b"hdft\x01" + json.dumps(body).encode()
    assert read_member_note(said) is None
    planned = plan(by_name("cooperative-sticky"), TWELVE, [sound("a"), raw_member("evil", said)], generation=4)
    assert planned.doubts["evil"].startswith("its note can't be read: ")
    assert list(planned.doubts) == ["evil"]
    assert everything_is_given_once(dict(planned.assignments), frozenset())


def test_a_topic_that_is_not_utf_8_does_not_stop_the_leader() -> None:
    """It stood among the claims of a member that hands positions over, where the leader read the claims once more."""
    claims = struct.pack(">ih2sii", 1, 2, b"\xff\xfe", 1, 0)
    note = append_note(HEAD, MemberNote(positions={TopicPartition("orders", 0): OffsetEntry(7)}), 3)
    planned = plan(
        by_name("cooperative-sticky"), TWELVE, [sound("a", 1, 2), raw_member("evil", note, claims)], generation=4
    )
    assert everything_is_given_once(dict(planned.assignments), frozenset())


def test_a_member_that_subscribes_to_bytes_gets_nothing_and_is_named() -> None:
    evil = JoinedMember(member_id="evil", metadata=struct.pack(">hih2si", 1, 1, 2, b"\xff\xfe", -1) + bytes(4))
    planned = plan(by_name("cooperative-sticky"), TWELVE, [sound("a"), evil], generation=4)
    assert planned.doubts == {"evil": "its subscription can't be read"}
    assert len(decode_assignment(planned.assignments["a"]).partitions) == 12


def test_claims_of_a_generation_that_has_not_been_yet_are_not_counted() -> None:
    """Symptom: a member that claimed everything in generation 2**31-1 was given what others were working on. Cause: the
    newest claim counts, and nobody asked whether it can be true. Rule: in the round of generation 4 nobody can hold
    anything of a generation after 3."""
    liar = Subscription(
        topics=("orders",),
        owned=frozenset(TopicPartition("orders", number) for number in range(12)),
        generation=2**31 - 1,
        user_data=append_note(HEAD, MemberNote(), 3),
    )
    evil = JoinedMember(member_id="evil", metadata=encode_subscription(liar))
    for assignor in ("cooperative-sticky", "sticky"):
        planned = plan(by_name(assignor), TWELVE, [sound("a", *range(12)), evil], generation=4)
        if assignor == "cooperative-sticky":
            assert planned.doubts == {"evil": "it says that it holds partitions of a generation after 3"}
            assert decode_assignment(planned.assignments["evil"]).partitions == frozenset(), "a still holds everything"
            assert len(decode_assignment(planned.assignments["a"]).partitions) == 6


def test_when_an_assignor_fails_a_liar_keeps_nothing_of_others() -> None:
    """The same where the leader has no plan and everybody keeps what he has."""
    liar = Subscription(topics=("orders",), owned=frozenset({TopicPartition("orders", 0)}), generation=2**31 - 1)
    evil = JoinedMember(member_id="evil", metadata=encode_subscription(liar))
    kept = kept_plan([sound("a", 0, 1), evil], generation=4)
    assert len(decode_assignment(kept["a"]).partitions) == 2
    assert decode_assignment(kept["evil"]).partitions == frozenset()


def test_keeping_everything_costs_as_much_as_there_are_partitions_however_many_hold_them() -> None:
    """Symptom: a leader whose assignor failed stood still for seconds in a group of a thousand, and was expelled.
    Cause: for each member all partitions of the group were looked through. Invariant: it grows with the partitions."""

    def lines_run(members: int) -> int:
        each = 4_000 // members
        joined = [sound(f"m{at}", *range(at * each, at * each + each)) for at in range(members)]
        lines = 0

        def count(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return count if frame.f_code.co_filename == keeping.__file__ else None

        before = sys.gettrace()
        sys.settrace(count)
        try:
            kept = kept_plan(joined, generation=4)
        finally:
            sys.settrace(before)
        assert sum(len(decode_assignment(data).partitions) for data in kept.values()) == 4_000
        return lines

    assert lines_run(400) < 3 * lines_run(10)


def test_whoever_says_what_can_not_be_true_is_told_of_once() -> None:
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1", "evil"))
    doubts = {"evil": "its note can't be read: it is not JSON"}
    for generation in (1, 2, 3):
        member.feed(Planned(member.pending, {"m-1": b"", "evil": b""}, {"orders": 1}, doubts=doubts))
        told = [e.record for e in member.effects(Emit) if e.record.step == "note-ignored"]
        assert [(record.culprit, record.cause) for record in told] == ([*doubts.items()] if generation == 1 else [])
        member.answer_sync().notified()
        member.feed(Poked("")).feed(Poked("x"))
        if generation < 3:
            member.feed(Enforce("again")).answer_join(leader="m-1", members=("m-1", "evil"), generation=generation + 1)


def test_a_leaders_note_that_can_not_be_read_is_told_of_with_the_leaders_name_and_nothing_else_happens() -> None:
    member = Driven().subscribe().answer_join(leader="evil")
    note = b'hdft\x01{"peers":[["10.0.0.1\\u0000",9]],"token":"t"}'
    given_ = Assignment(partitions=frozenset({TopicPartition("orders", 0)}), user_data=note)
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=encode_assignment(given_))))
    assert [(e.record.culprit) for e in member.effects(Emit) if e.record.step == "note-ignored"] == ["evil"]
    assert member.state.pokes.peers == ()
    member.notified()
    assert member.state.owned == {TopicPartition("orders", 0)}


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=12)
)
anything = st.recursive(scalars, lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=6), some))
pairs = st.lists(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=3), max_size=3)
bodies = st.dictionaries(
    st.sampled_from(["drain", "at", "pos", "as", "wait", "drains", "peers", "token", "all", "reach", "room", "for"]),
    anything
    | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=4), pairs | st.integers())
    | st.lists(
        st.tuples(st.text(st.characters(exclude_categories=()), max_size=9), st.integers(-9, 99_999)), max_size=3
    ),
)
noise = (
    st.binary(max_size=64)
    | bodies.map(lambda body: b"hdft\x01" + json.dumps(body).encode("utf-8", "surrogatepass"))
    | st.binary(max_size=80).map(lambda data: b"hdft\x02" + data)
)


@given(noise, noise)
def test_no_bytes_of_members_stop_a_leader(one: bytes, two: bytes) -> None:
    members = [sound("a", 0, 1, 2), raw_member("x", HEAD + one), raw_member("y", two), raw_member("z", None, one)]
    for name in STRATEGIES:
        planned = plan(by_name(name), TWELVE, members, generation=4, leader="a", token="00" * 8)
        assert everything_is_given_once(
            dict(planned.assignments), frozenset(TopicPartition("orders", n) for n in (0, 1, 2))
        )
        for data in planned.assignments.values():
            note, fault = examine_leader_note(decode_assignment(data).user_data)
            assert fault is None, "whatever members say, leaders write notes that can be read"
            assert note is None or isinstance(note, LeaderNote)


@given(noise)
def test_no_bytes_of_a_leader_stop_a_member(said: bytes) -> None:
    member = Driven(settings={"endpoint": None}).subscribe().answer_join(leader="evil")
    given_ = Assignment(partitions=frozenset({TopicPartition("orders", 0)}), user_data=said)
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=encode_assignment(given_)))).notified()
    assert member.state.owned == {TopicPartition("orders", 0)}
    note, _ = examine_leader_note(said)
    assert member.state.pokes.token == (note.token if note else "")


@given(noise)
def test_a_note_that_is_read_is_one_that_can_be_written(said: bytes) -> None:
    note, fault = examine_member_note(HEAD + said)
    assert note is None or fault is None
    if note is not None:
        again = append_note(HEAD, note, 3)
        assert again is not None
        assert read_member_note(again) == note
