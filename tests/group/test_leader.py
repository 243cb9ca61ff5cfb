"""The leader's notes: the mark, who drains, where pokes go, and positions that change hands."""

from __future__ import annotations

from holdfast.assign import by_name
from holdfast.group.leader import plan, subscribed_topics
from holdfast.group.user_data import (
    MAX_PEERS,
    Endpoint,
    LeaderNote,
    MemberNote,
    append_note,
    encode_leader_note,
    read_leader_note,
    read_member_note,
)
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, encode_subscription

COOPERATIVE = by_name("cooperative-sticky")
TWELVE = ClusterView({"orders": TopicView(12)})


def member(
    name: str, owned: range = range(0), generation: int = 3, note: MemberNote | None = None, foreign: bool = False
) -> JoinedMember:
    own = COOPERATIVE.subscription_user_data(frozenset({"orders"}), frozenset(), generation)
    subscription = Subscription(
        topics=("orders",),
        owned=frozenset(TopicPartition("orders", p) for p in owned),
        generation=generation,
        user_data=own if foreign else append_note(own, note or MemberNote(), generation),
    )
    return JoinedMember(member_id=name, metadata=encode_subscription(subscription))


def note_for(planned: object, name: str) -> LeaderNote | None:
    return read_leader_note(decode_assignment(planned.assignments[name]).user_data)


def test_a_plan_that_withholds_is_marked_for_everybody_who_can_read_it() -> None:
    planned = plan(
        COOPERATIVE,
        TWELVE,
        [member("a", range(6)), member("b", range(6, 12)), member("c", generation=-1), member("j", foreign=True)],
    )
    assert [note_for(planned, name).withheld for name in "abc"] == [True, True, True]
    assert note_for(planned, "j") is None, "Java could not read it"


def test_a_plan_that_gives_everything_at_once_is_not_marked() -> None:
    planned = plan(COOPERATIVE, TWELVE, [member("a", range(6)), member("b")])
    note = note_for(planned, "a")
    assert note is not None
    assert not note.withheld
    assert note.knows_drain


def test_a_draining_member_is_planned_nothing_and_its_partitions_are_withheld_until_revoked() -> None:
    planned = plan(
        COOPERATIVE, TWELVE, [member("a", range(6), note=MemberNote(draining=True)), member("b", range(6, 12))]
    )
    assert planned.draining == {"a"}
    assert planned.round.assignment["a"] == frozenset()
    assert len(planned.round.assignment["b"]) == 6
    assert len(planned.round.target["b"]) == 12


def test_a_draining_member_of_a_mixed_group_is_left_to_choose_its_moment() -> None:
    """Symptom: in a group with one Java member a drained partition stood still for 3 s. Cause: it was planned away and
    revoked at once, but the round that gives it to another waited for Java's next heartbeat. Invariant: a leader plans
    a draining member's partitions away only if everybody follows the mark."""
    members = [member("a", range(6), note=MemberNote(draining=True)), member("j", range(6, 12), foreign=True)]
    planned = plan(COOPERATIVE, TWELVE, members)
    assert planned.draining == frozenset()
    assert len(planned.round.assignment["a"]) == 6, "it works on"
    assert not note_for(planned, "a").knows_drain, "and leaves just before the others' heartbeat"


def test_a_foreign_leader_does_not_know_the_flag() -> None:
    members = [member("a", range(6), note=MemberNote(draining=True)), member("b", range(6, 12))]
    planned = plan(COOPERATIVE, TWELVE, members, marks=False)
    assert len(planned.round.assignment["a"]) == 6
    assert note_for(planned, "a") is None


def test_final_positions_go_to_whoever_newly_gets_the_partition_and_to_nobody_else() -> None:
    handed = MemberNote(positions={TopicPartition("orders", 0): 70, TopicPartition("orders", 1): 71})
    members = [member("a", range(2, 6), note=handed), member("b", range(6, 12)), member("c", generation=-1)]
    planned = plan(COOPERATIVE, TWELVE, members, generation=4)
    for name in "abc":
        gained = planned.round.assignment[name] & {TopicPartition("orders", 0), TopicPartition("orders", 1)}
        note = note_for(planned, name)
        assert note is not None
        assert set(note.positions) == gained
    assert note_for(planned, "c").positions == {TopicPartition("orders", 0): 70, TopicPartition("orders", 1): 71}


def test_members_hear_whether_everybody_reads_positions() -> None:
    """Symptom: a Java member did again what a holdfast member had done before it. Cause: the revoker trusted its
    positions to travel in its join and did not wait for its commit, which the join overtook. Invariant: it does so only
    where the leader says that everybody reads positions."""
    ours = plan(COOPERATIVE, TWELVE, [member("a", range(6)), member("b", range(6, 12))])
    mixed = plan(COOPERATIVE, TWELVE, [member("a", range(6)), member("j", range(6, 12), foreign=True)])
    assert note_for(ours, "a").all_read
    assert not note_for(mixed, "a").all_read


def test_a_position_of_a_partition_that_somebody_claims_is_not_handed_on() -> None:
    handed = MemberNote(positions={TopicPartition("orders", 7): 1})
    planned = plan(COOPERATIVE, TWELVE, [member("a", range(6), note=handed), member("b", range(6, 12))], generation=4)
    assert all(note_for(planned, name).positions == {} for name in "ab")


def test_positions_from_before_the_last_round_are_not_handed_on() -> None:
    """Positions out of date rewind the group (I3), and a leader could spread them: the answer to a join that carries
    them is lost, the round goes ahead, another member takes the partition, goes on and dies. The join is sent
    again with the same positions: they must not reach the next owner. Only the round right after the revoke counts.
    """
    handed = MemberNote(positions={TopicPartition("orders", 0): 70})
    members = [member("a", range(2, 6), note=handed), member("b", range(6, 12))]
    assert any(note_for(plan(COOPERATIVE, TWELVE, members, generation=4), name).positions for name in "ab")
    for generation in (3, 5, 9, -1):
        planned = plan(COOPERATIVE, TWELVE, members, generation=generation)
        assert not any(note_for(planned, name).positions for name in "ab")


def test_two_members_that_hand_over_one_partition_contradict_each_other() -> None:
    one = MemberNote(positions={TopicPartition("orders", 0): 70})
    other = MemberNote(positions={TopicPartition("orders", 0): 12})
    members = [member("a", range(1, 6), note=one), member("b", range(6, 12), note=other)]
    planned = plan(COOPERATIVE, TWELVE, members, generation=4)
    assert all(note_for(planned, name).positions == {} for name in "ab")


def test_everybody_hears_where_pokes_reach_the_others() -> None:
    at_a, at_b = Endpoint("127.0.0.1", 4001), Endpoint("127.0.0.1", 4002)
    members = [member("a", note=MemberNote(endpoint=at_a)), member("b", note=MemberNote(endpoint=at_b))]
    planned = plan(COOPERATIVE, TWELVE, members, token="t9")
    note = note_for(planned, "a")
    assert note is not None
    assert note.peers == (at_a, at_b)
    assert note.token == "t9"


def test_the_peers_of_a_large_group_are_bounded() -> None:
    many = LeaderNote(peers=tuple(Endpoint("10.0.0.1", port) for port in range(1, 1_000)))
    read = read_leader_note(encode_leader_note(many))
    assert read is not None
    assert len(read.peers) == MAX_PEERS


def test_strange_user_data_reads_as_nothing() -> None:
    """Foreign user data is not empty, and a hostile member may send anything behind our magic."""
    for data in (
        None,
        b"",
        b"\x00\x00\x00\x07",
        b"\x00\x00\x00\x07hdft",
        b"\x00\x00\x00\x07hdft\x01[1]",
        b"\x00\x00\x00\x07hdft\x01{",
        b"\x00\x00\x00\x07hdft\x01" + b"[" * 100_000,
        b"\x00\x00\x00\x07hdft\x01\xff\xfe",
    ):
        assert read_member_note(data) is None
    odd = b'\x00\x00\x00\x07hdft\x01{"at":["h",99999999],"pos":{"t":[[1],[true,2],[-1,2],["x",1],[3,4]]},"drain":"yes"}'
    note = read_member_note(odd)
    assert note is not None
    assert note == MemberNote(positions={TopicPartition("t", 3): 4})


def test_an_assignors_own_user_data_is_left_alone() -> None:
    """A custom assignor's bytes are its own; our note rides only where there is room."""
    assert append_note(b"somebody's own format", MemberNote(draining=True), 3) == b"somebody's own format"


def test_every_topic_that_somebody_wants_is_looked_up_before_planning() -> None:
    assert subscribed_topics([member("a"), member("b")]) == {"orders"}


def test_a_plan_says_what_it_was_made_for_topics_that_do_not_exist_yet_included() -> None:
    """Symptom: a topic created after the last round was never processed. Cause: the leader, not subscribed
    to it itself, watched only topics that it had seen; the members that waited for it were not heard. Invariant I4.
    """
    subscription = Subscription(topics=("late", "orders"))
    members = [member("a"), JoinedMember(member_id="b", metadata=encode_subscription(subscription))]
    planned = plan(COOPERATIVE, TWELVE, members, leader="a")
    assert planned.planned_for == {"late": 0, "orders": 12}
    assert note_for(planned, "a").planned_for == {"late": 0, "orders": 12}
