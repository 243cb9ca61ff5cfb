"""Pokes in groups too large for everybody to know everybody: passed on, each once, and trusted for nothing."""

from __future__ import annotations

import pytest
from driven import Driven, tps

from holdfast.group.member import Close, Enforce, LeaveAnswered, Phase, Poke, Poked, SyncAnswered, Tick
from holdfast.group.messages import HeartbeatRequest, LeaveAnswer, SyncAnswer
from holdfast.group.short_notes import encode_short_note
from holdfast.group.user_data import Endpoint, LeaderNote
from holdfast.model import Assignment, ErrorCode
from holdfast.model.consumer_protocol import encode_assignment

ME, ONE, TWO = Endpoint("10.0.0.1", 5001), Endpoint("10.0.0.2", 5002), Endpoint("10.0.0.3", 5003)
TOKEN = "0011223344556677"


def stable_in_a_large_group(*, withheld: bool = False, generation: int = 1) -> Driven:
    member = Driven(settings={"endpoint": ME}).subscribe().answer_join(generation=generation)
    return sync(member, LeaderNote(peers=(ONE, TWO), token=TOKEN, withheld=withheld)).notified()


def sync(member: Driven, note: LeaderNote, *names: str) -> Driven:
    given = Assignment(partitions=tps(*(names or ("orders-0",))), user_data=encode_short_note(note))
    return member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=encode_assignment(given))))


def said(member: Driven) -> list[bytes]:
    return [datagram for poke in member.effects(Poke) for datagram in poke.datagrams()]


def test_an_empty_datagram_is_no_poke_before_there_is_a_token() -> None:
    """Symptom: an empty datagram made every member that had no token yet ask its coordinator. Cause: no token was
    compared with no token. Rule: where there is no token there are no pokes."""
    member = Driven().stable_with("orders-0", note=LeaderNote())
    member.feed(Poked(""), after_ms=100)
    assert member.last == ()
    member.feed(Poked(" k"), after_ms=100)
    assert member.last == ()


def test_a_poke_is_passed_on_once_and_makes_the_member_ask() -> None:
    member = stable_in_a_large_group()
    member.feed(Poked(f"{TOKEN} a"), after_ms=100)
    assert member.effects(Poke) == [Poke((ONE, TWO), TOKEN, known=True, words=("a",))]
    assert member.requests(HeartbeatRequest)
    member.answer_heartbeat().feed(Poked(f"{TOKEN} a"), after_ms=100)
    assert member.effects(Poke) == [], "it comes back from whoever passed it on to us: it ends here"
    assert member.requests(HeartbeatRequest)
    member.feed(Poked(f"{TOKEN} b"), after_ms=1)
    assert said(member) == [f"{TOKEN} b".encode()], "another one goes on, though we have asked just now"


def test_what_a_stranger_sends_is_not_passed_on() -> None:
    member = stable_in_a_large_group()
    for text in ("", "nonsense", f"{TOKEN} nonsense", f"{TOKEN}  a", f"wrong {TOKEN}", f"{TOKEN} " + "k" * 200):
        member.feed(Poked(text), after_ms=100)
        assert member.effects(Poke) == []


def test_a_generation_costs_a_member_three_datagrams_to_each_peer_whoever_pokes() -> None:
    """No storm: every way in which pokes can arise, and all that arrive again and again."""
    member = stable_in_a_large_group()
    sent = 0
    for _ in range(50):
        for word in ("a", "b", "k", "", "x"):
            member.feed(Poked(f"{TOKEN} {word}".strip()), after_ms=20)
            sent += len(said(member))
            if member.state.requests.heartbeat is not None:
                member.answer_heartbeat()
    member.feed(Enforce("asked"))
    sent += len(said(member))
    assert sent <= 3


def test_a_watchdogs_bare_token_is_passed_on_as_something_sure() -> None:
    member = stable_in_a_large_group()
    member.feed(Poked(TOKEN), after_ms=100)
    assert said(member) == [f"{TOKEN} k".encode()]
    member.answer_heartbeat().feed(Poked(f"{TOKEN} k"), after_ms=100)
    assert said(member) == []


def test_a_member_that_hears_of_a_round_by_itself_tells_its_peers_unless_they_know() -> None:
    """All members of a group ask at about the same time, and all hear of the round: one flood is enough."""
    first = stable_in_a_large_group()
    first.feed(Poked("no")).feed(Enforce("asked"))
    assert said(first) == [f"{TOKEN} a".encode(), f"{TOKEN} b".encode()], "it is on its way, so it is told twice"
    alone = stable_in_a_large_group()
    beat(alone).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert said(alone) == [f"{TOKEN} k".encode()], "the coordinator knows: once"
    told = stable_in_a_large_group()
    told.feed(Poked(f"{TOKEN} a"), after_ms=100).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert told.phase is Phase.JOINING
    assert said(told) == [], "it came to us from others and went on through us"


def test_pokes_are_passed_on_while_a_round_is_under_way() -> None:
    """Whoever revokes slowly, or joins already, must not cut the others off."""
    member = stable_in_a_large_group()
    member.feed(Enforce("asked"))
    assert member.phase is Phase.JOINING
    member.feed(Poked(f"{TOKEN} k"), after_ms=100)
    assert said(member) == [f"{TOKEN} k".encode()]
    assert member.requests(HeartbeatRequest) == [], "but there is nothing to ask"


def test_in_a_marked_round_of_a_large_group_nobody_pokes() -> None:
    member = stable_in_a_large_group(withheld=True)
    assert member.phase is Phase.JOINING
    assert said(member) == []
    member.answer_join(generation=2)
    sync(member, LeaderNote(peers=(ONE, TWO), token=TOKEN, withheld=True), "orders-1").notified()
    assert member.phase is Phase.JOINING, "it revoked something"
    assert said(member) == []


def test_a_new_generation_begins_anew() -> None:
    member = stable_in_a_large_group()
    member.feed(Poked(f"{TOKEN} k"), after_ms=100).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    later = "ff11223344556677"
    member.answer_join(generation=2)
    sync(member, LeaderNote(peers=(ONE, TWO), token=later)).notified()
    member.feed(Poked(f"{TOKEN} k"), after_ms=100)
    assert said(member) == [], "an old token says nothing"
    member.feed(Poked(f"{later} k"), after_ms=100)
    assert said(member) == [f"{later} k".encode()]


def test_a_member_that_left_pokes_once() -> None:
    member = stable_in_a_large_group()
    member.feed(Close("bye")).notified()
    member.feed(LeaveAnswered(member.pending, LeaveAnswer()))
    assert said(member) == [f"{TOKEN} k".encode()]


def beat(member: Driven) -> Driven:
    deadline = member.deadline
    assert deadline is not None
    return member.feed(Tick(), after_ms=max(0.0, deadline - member.now))


# Rounds that never end


@pytest.mark.parametrize("names", [("orders-0",), ("orders-0", "orders-1")])
def test_a_leader_that_marks_for_ever_is_followed_a_few_times_and_then_no_more(names: tuple[str, ...]) -> None:
    member = Driven().subscribe().answer_join()
    rounds = 1
    while member.answer_sync(*names, note=LeaderNote(withheld=True)).notified().phase is Phase.JOINING:
        rounds += 1
        assert rounds < 20
        member.answer_join(generation=rounds)
    assert rounds == 9
    assert member.phase is Phase.STABLE
    assert member.state.rejoin is None
    beat(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.phase is Phase.JOINING, "from now on as under any other leader"
    member.answer_join(generation=50).answer_sync(*names, note=LeaderNote()).notified()
    assert member.state.round.in_a_row == 0, "a round that settles forgives"


def test_a_leader_that_takes_and_gives_in_turns_has_a_round_per_heartbeat_at_most() -> None:
    """Symptom: a leader that never settles kept its group in rounds without a pause. Cause: whoever revokes must
    rejoin, and did so at once, for ever. Rule: after eight such rounds in a row the rejoin waits for a heartbeat's
    turn. It still comes: others may wait for what was revoked."""
    member = Driven().subscribe().answer_join()
    generation, at_once = 1, 0
    for turn in range(12):
        member.answer_sync(f"orders-{turn % 2}", note=LeaderNote(withheld=True)).notified()
        generation += 1
        if member.phase is Phase.JOINING:
            at_once += 1
        else:
            assert member.phase is Phase.STABLE
            asked = member.now
            while member.phase is Phase.STABLE:
                beat(member)
                if member.state.requests.heartbeat is not None:
                    member.answer_heartbeat()
            assert member.now - asked == member.state.config.heartbeat_interval_ms
        member.answer_join(generation=generation)
    assert at_once == 8


def test_a_leader_that_gives_what_nobody_asked_for_does_not_spin_the_group() -> None:
    """An assignment with topics that we don't subscribe to is of an older subscription, or of a leader that is wrong
    for ever: then its rounds are a heartbeat apart."""
    member = Driven().subscribe("orders").answer_join()
    for generation in range(2, 20):
        member.answer_sync("others-1", note=LeaderNote())
        if member.phase is not Phase.JOINING:
            break
        member.answer_join(generation=generation)
    assert member.phase is Phase.STABLE
    assert generation == 10
    assert member.state.owed is not None
    assert member.state.owed.look_at == member.now + member.state.config.heartbeat_interval_ms
