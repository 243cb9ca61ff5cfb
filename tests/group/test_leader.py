"""The leader's notes: the mark, who drains, where pokes go, and positions that change hands."""

from __future__ import annotations

import pytest

from holdfast.assign import by_name
from holdfast.group.leader import LeaderPlan, keep, plan, subscribed_topics
from holdfast.group.messages import OffsetEntry
from holdfast.group.short_notes import read_leader_note
from holdfast.group.user_data import (
    MAX_PEERS,
    Endpoint,
    LeaderNote,
    MemberNote,
    append_note,
    encode_leader_note,
    read_member_note,
)
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, encode_subscription

COOPERATIVE = by_name("cooperative-sticky")
TWELVE = ClusterView({"orders": TopicView(12)})
FAR = OffsetEntry(1_000)


def member(
    name: str,
    owned: range = range(0),
    generation: int = 3,
    note: MemberNote | None = None,
    foreign: bool = False,
    static: bool = False,
) -> JoinedMember:
    own = COOPERATIVE.subscription_user_data(frozenset({"orders"}), frozenset(), generation)
    subscription = Subscription(
        topics=("orders",),
        owned=frozenset(TopicPartition("orders", p) for p in owned),
        generation=generation,
        user_data=own if foreign else append_note(own, note or MemberNote(), generation),
    )
    instance = f"i-{name}" if static else None
    return JoinedMember(member_id=name, instance_id=instance, metadata=encode_subscription(subscription))


def note_for(planned: LeaderPlan, name: str) -> LeaderNote | None:
    return read_leader_note(decode_assignment(planned.assignments[name]).user_data)


def sent(planned: LeaderPlan, name: str) -> LeaderNote:
    """The note to a member that gets one."""
    note = note_for(planned, name)
    assert note is not None
    return note


def test_a_plan_that_withholds_is_marked_for_everybody_who_can_read_it() -> None:
    planned = plan(
        COOPERATIVE,
        TWELVE,
        [member("a", range(6)), member("b", range(6, 12)), member("c", generation=-1), member("j", foreign=True)],
    )
    assert [sent(planned, name).withheld for name in "abc"] == [True, True, True]
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
    assert not sent(planned, "a").knows_drain, "and leaves just before the others' heartbeat"


def test_a_foreign_leader_does_not_know_the_flag() -> None:
    members = [member("a", range(6), note=MemberNote(draining=True)), member("b", range(6, 12))]
    planned = plan(COOPERATIVE, TWELVE, members, marks=False)
    assert len(planned.round.assignment["a"]) == 6
    assert note_for(planned, "a") is None


def test_final_positions_go_to_whoever_newly_gets_the_partition_and_to_nobody_else() -> None:
    final = {TopicPartition("orders", 0): OffsetEntry(70, 2), TopicPartition("orders", 1): OffsetEntry(71)}
    handed = MemberNote(positions=final)
    members = [member("a", range(2, 6), note=handed), member("b", range(6, 12)), member("c", generation=-1)]
    planned = plan(COOPERATIVE, TWELVE, members, generation=4)
    for name in "abc":
        gained = planned.round.assignment[name] & {TopicPartition("orders", 0), TopicPartition("orders", 1)}
        note = note_for(planned, name)
        assert note is not None
        assert set(note.positions) == gained
    assert sent(planned, "c").positions == final


def test_members_hear_whether_everybody_reads_positions() -> None:
    """Symptom: a Java member did again what a holdfast member had done before it. Cause: the revoker trusted its
    positions to travel in its join and did not wait for its commit, which the join overtook. Invariant: it does so only
    where the leader says that everybody reads positions."""
    ours = plan(COOPERATIVE, TWELVE, [member("a", range(6)), member("b", range(6, 12))])
    mixed = plan(COOPERATIVE, TWELVE, [member("a", range(6)), member("j", range(6, 12), foreign=True)])
    assert sent(ours, "a").all_read
    assert not sent(mixed, "a").all_read


def test_a_position_of_a_partition_that_somebody_claims_is_not_handed_on() -> None:
    handed = MemberNote(positions={TopicPartition("orders", 7): OffsetEntry(1)})
    planned = plan(COOPERATIVE, TWELVE, [member("a", range(6), note=handed), member("b", range(6, 12))], generation=4)
    assert all(sent(planned, name).positions == {} for name in "ab")


def test_positions_from_before_the_last_round_are_not_handed_on() -> None:
    """Positions out of date rewind the group (I3), and a leader could spread them: the answer to a join that carries
    them is lost, the round goes ahead, another member takes the partition, goes on and dies. The join is sent
    again with the same positions: they must not reach the next owner. Only the round right after the revoke counts.
    """
    handed = MemberNote(positions={TopicPartition("orders", 0): OffsetEntry(70)})
    members = [member("a", range(2, 6), note=handed), member("b", range(6, 12))]
    assert any(sent(plan(COOPERATIVE, TWELVE, members, generation=4), name).positions for name in "ab")
    for generation in (3, 5, 9, -1):
        planned = plan(COOPERATIVE, TWELVE, members, generation=generation)
        assert not any(sent(planned, name).positions for name in "ab")


def test_positions_of_a_round_that_was_cut_are_handed_over_by_the_next_one() -> None:
    """Symptom: a commit was refused once, somebody joined in the middle of the round, and what the first owner had done
    was done again. Cause: a revoker offers its positions once, and the members did not hear the result of that round.
    Rule: the leader keeps what it was to hand over for the next round, for members that did not hear of it."""
    final = {TopicPartition("orders", 0): OffsetEntry(70, 2)}
    gave = [member("a", range(1, 6), note=MemberNote(positions=final)), member("b", range(6, 11))]
    cut = plan(COOPERATIVE, TWELVE, gave, generation=4)
    (taker,) = cut.handed
    again = [member("a", range(1, 6)), member("b", range(6, 11)), member("c")]
    following = plan(COOPERATIVE, TWELVE, again, generation=5, before=cut)
    (gets,) = (name for name in "abc" if TopicPartition("orders", 0) in following.round.assignment[name])
    assert sent(following, gets).positions == final
    third = plan(COOPERATIVE, TWELVE, again, generation=6, before=following)
    assert third.handed == following.handed, "and so on, while rounds are cut"
    heard = [member(name, owned, generation=4) for name, owned in (("a", range(1, 6)), ("b", range(6, 11)))]
    restarted = [each if each.member_id != taker else member(taker, generation=-1) for each in again]
    gone = [each for each in again if each.member_id != taker]
    foreign = [each if each.member_id != taker else member(taker, foreign=True) for each in again]
    for others in (heard, restarted, gone, foreign):
        assert not plan(COOPERATIVE, TWELVE, others, generation=5, before=cut).handed, "he may have been further"
    assert not plan(COOPERATIVE, TWELVE, again, generation=7, before=cut).handed, "somebody else led in between"


def test_a_newcomer_is_handed_again_what_a_cut_round_was_to_bring() -> None:
    """Symptom: a round that handed partitions over to a member that had just come was cut twice, by others that came
    after it. It then began at the last commit, although the one before had handed its positions over. Cause: the leader
    took a member without a generation for one that may have restarted, and forgot what it had handed on. Rule: who held
    no generation when it was handed positions, and holds none now, has got no result in between. A process that
    restarts comes under another id."""
    final = {TopicPartition("orders", 0): OffsetEntry(70, 2)}
    newcomer = member("c", generation=-1)
    gave = [member("a", range(1, 6), note=MemberNote(positions=final)), member("b", range(6, 12)), newcomer]
    cut = plan(COOPERATIVE, TWELVE, gave, generation=4)
    assert cut.handed == {"c": final}
    again = [member("a", range(1, 6)), member("b", range(6, 12)), newcomer]
    following = plan(COOPERATIVE, TWELVE, again, generation=5, before=cut)
    assert sent(following, "c").positions == final
    third = plan(COOPERATIVE, TWELVE, again, generation=6, before=following)
    assert sent(third, "c").positions == final, "and so on, while rounds are cut"
    got = [member("a", range(1, 6)), member("b", range(6, 12)), member("c", generation=5)]
    assert not plan(COOPERATIVE, TWELVE, got, generation=6, before=following).handed, "it may have been further"
    restarted = [member("a", range(1, 6)), member("b", range(6, 12)), member("c-2", generation=-1)]
    assert not plan(COOPERATIVE, TWELVE, restarted, generation=6, before=following).handed, "it may be another process"


def test_positions_are_not_handed_over_again_for_a_static_member_that_may_have_got_them() -> None:
    """Symptom: in the simulator's world 12729 a partition's committed offset went back by 1,300. Cause: a static member
    that is too slow for a round stays in it, with what it said when it joined the last one. So it seemed not to have
    heard of that one, and the positions that it had long gone beyond were handed over again."""
    final = {TopicPartition("orders", 0): OffsetEntry(70, 2)}
    for static in (False, True):
        gave = [member("a", range(1, 7), note=MemberNote(positions=final)), member("b", range(7, 11), static=static)]
        got = plan(COOPERATIVE, TWELVE, gave, generation=4)
        assert got.handed.keys() == {"b"}
        # Both say what they said then: "a" has joined again without having heard the result, "b" may not have joined.
        following = plan(COOPERATIVE, TWELVE, [member("a", range(1, 7)), gave[1]], generation=5, before=got)
        assert bool(following.handed) is not static


def test_positions_wait_while_the_assignor_fails() -> None:
    """Symptom: a commit was refused once, the leader's assignor raised in that round, and what the former owner had
    done was done again. Cause: a revoker offers its positions once, and the leader forgot those of a round that it had
    no plan for. Rule: they wait for the next plan. Nobody gets these partitions until then, so nobody can have read
    them."""
    free, others = TopicPartition("orders", 0), TopicPartition("orders", 11)
    final = {free: OffsetEntry(70, 2)}
    offers = [member("a", range(1, 6), note=MemberNote(positions=final)), member("b", range(6, 12))]
    kept = keep(TWELVE, offers, generation=4, before=None)
    assert kept.waiting == final
    assert all(free not in decode_assignment(data).partitions for data in kept.assignments.values())
    for heard in (3, 4):  # whether or not the round was cut
        again = [member("a", range(1, 6), generation=heard), member("b", range(6, 12), generation=heard)]
        third = keep(TWELVE, again, generation=5, before=kept)
        assert third.waiting == final, "and so on, while it fails"
        following = plan(COOPERATIVE, TWELVE, again, generation=6, before=third)
        (gets,) = (name for name in "ab" if free in following.round.assignment[name])
        assert sent(following, gets).positions == final
    claimed = [member("a", range(6), generation=4), member("b", range(6, 12), generation=4)]
    assert not keep(TWELVE, claimed, generation=5, before=kept).waiting, "its owner may be further"
    assert not plan(COOPERATIVE, TWELVE, claimed, generation=5, before=kept).handed
    assert not plan(COOPERATIVE, TWELVE, again, generation=6, before=kept).handed, "somebody else led in between"
    assert not keep(TWELVE, again, generation=6, before=kept).waiting
    both = [offers[0], member("b", range(6, 11), note=MemberNote(positions={free: OffsetEntry(9), others: FAR}))]
    assert keep(TWELVE, both, generation=4, before=None).waiting == {others: FAR}, "two contradict each other"


def test_positions_of_a_cut_round_wait_too_while_the_assignor_fails() -> None:
    """The same for what was offered a round earlier: the leader keeps it while rounds are cut, and forgot it when its
    assignor failed. The rules are those of a cut round: only for members that have not got its result."""
    final = {TopicPartition("orders", 0): OffsetEntry(70, 2)}
    gave = [member("a", range(1, 7), note=MemberNote(positions=final)), member("b", range(7, 11))]
    cut = plan(COOPERATIVE, TWELVE, gave, generation=4)
    assert cut.handed.keys() == {"b"}
    again = [member("a", range(1, 7)), member("b", range(7, 11))]
    kept = keep(TWELVE, again, generation=5, before=cut)
    assert kept.waiting == final
    following = plan(COOPERATIVE, TWELVE, again, generation=6, before=kept)
    assert following.handed == cut.handed
    for other in (
        member("b", range(7, 11), generation=4),
        member("b", generation=-1),
        member("b", range(7, 11), static=True),
        member("b", range(7, 11), foreign=True),
    ):
        assert not keep(TWELVE, [again[0], other], generation=5, before=cut).waiting, "it may have been further"


def test_no_positions_wait_of_partitions_that_do_not_exist() -> None:
    """The assignor may fail for days. What waits must not grow by what a member makes up, nor outlive its topic."""
    made_up = {
        TopicPartition("orders", 12): FAR,
        TopicPartition("unheard-of", 0): FAR,
        TopicPartition("orders", 3): FAR,
    }
    members = [member("a", note=MemberNote(positions=made_up)), member("b", range(6, 12))]
    kept = keep(TWELVE, members, generation=4, before=None)
    assert kept.waiting.keys() == {TopicPartition("orders", 3)}
    gone = ClusterView({"orders": TopicView(3)})
    assert not keep(gone, [member("a"), member("b")], generation=5, before=kept).waiting


def test_two_members_that_hand_over_one_partition_contradict_each_other() -> None:
    one = MemberNote(positions={TopicPartition("orders", 0): OffsetEntry(70)})
    other = MemberNote(positions={TopicPartition("orders", 0): OffsetEntry(12)})
    members = [member("a", range(1, 6), note=one), member("b", range(6, 12), note=other)]
    planned = plan(COOPERATIVE, TWELVE, members, generation=4)
    assert all(sent(planned, name).positions == {} for name in "ab")


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
    assert sent(planned, "a").planned_for == {"late": 0, "orders": 12}


@pytest.mark.parametrize("large", [False, True], ids=["note", "short note"])
def test_a_name_that_no_topic_can_have_does_not_cost_the_leader_its_note(large: bool) -> None:
    """Symptom: one member subscribed to "bad name", and the leader had no peers, no room for positions, did not follow
    its own mark, and warned of itself. Cause: it counted that name in its note to itself, where no such name is read.
    Rule: a leader writes what it can read."""
    topics = ("orders", "bad name", "", "x" * 250)
    own = COOPERATIVE.subscription_user_data(frozenset(topics), frozenset(), 3)
    wrong = Subscription(topics=topics, generation=3, user_data=append_note(own, MemberNote(), 3))
    members = [member("a", range(12)), JoinedMember(member_id="b", metadata=encode_subscription(wrong))]
    budget = 100 if large else 64 * 1024
    planned = plan(COOPERATIVE, TWELVE, members, generation=4, leader="a", notes_bytes=budget)
    note = note_for(planned, "a")
    assert note is not None
    assert note.withheld and note.all_read
    assert note.planned_for == {"orders": 12}
    assert planned.planned_for == dict.fromkeys(topics, 0) | {"orders": 12}
    assert not planned.doubts


def test_members_of_a_large_group_read_on_unless_somebody_claims_what_is_not_his() -> None:
    """Whoever reads on what a round took from him must be the only one who can have it: not where another's claim is
    newer or as new, where a claim was not counted, or where somebody reads no notes."""

    def may(*members: JoinedMember, generation: int = 4) -> bool:
        planned = plan(COOPERATIVE, TWELVE, members, generation=generation, leader="a", token="00" * 8, notes_bytes=100)
        note = note_for(planned, "a")
        assert note is not None
        assert note.withheld
        return note.read_on

    held, newcomer = member("a", range(12)), member("c", generation=-1)
    assert may(held, newcomer)
    assert not may(held, newcomer, member("b", range(1), generation=2)), "an older claim: b has to stop at once"
    assert not may(held, newcomer, member("b", range(1))), "two claims of one generation"
    assert not may(held, newcomer, member("b", range(1), generation=9)), "a claim that can't be true"
    assert not may(held, newcomer, member("j", foreign=True)), "it would wait for that one's heartbeat"
