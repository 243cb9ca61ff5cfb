"""What a consumer commits and when, by itself: positions and stored offsets, auto-commits, revokes, what is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from stand_ins import MEMBER, A, B, FakeReader, Plane, config_of

from holdfast.client.member.commits import Offsets
from holdfast.client.member.entries import Entries
from holdfast.client.raised import Raised
from holdfast.client.reading.data_plane import DataPlane
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.steps import (
    CARRIED_MS,
    REVOKE_MS,
    Await,
    Commit,
    Committer,
    HoldBack,
    LetGo,
    Tell,
    steps_around,
)
from holdfast.model import ErrorCode, HoldfastError, Membership, TopicPartition
from holdfast.net.errors import NetError

AT_5, AT_8, AT_9 = OffsetEntry(5), OffsetEntry(8), OffsetEntry(9)
BOTH = frozenset({A, B})


class World:
    """One consumer's offsets. It reads both partitions from 0."""

    def __init__(self, plane: Plane | None = None, *, raises: bool = False, **settings: Any) -> None:
        self.told: list[tuple[int | None, dict[int, int]]] = []
        """What on_commit heard: the error's code, and the offsets."""
        self.plane: Any = plane or Plane()
        self._raises = raises
        self.reader = FakeReader()
        self.data = DataPlane(self.reader, reset="earliest")
        self.data.add({A: 0, B: 0})
        config = config_of(on_commit=self._told, **settings)
        self._committer = Committer.AUTOMATIC if config.auto_commit else Committer.BY_APPLICATION
        self.offsets = Offsets(config, self.data, 0.0, handed=lambda: self.plane.handed)

    def _told(self, error: Any, partitions: list[ck.TopicPartition]) -> None:
        self.told.append((None if error is None else error.code(), {p.partition: p.offset for p in partitions}))
        if self._raises:
            raise LookupError(f"at {partitions[0].offset}")

    def read_up_to(self, **ends: int) -> None:
        """The application got the records before these offsets."""
        for name, end in ends.items():
            self.reader.hand_out((A, B)["ab".index(name)], end - 1)
        self.offsets.touched = True

    def auto_commit(self, now: float = 5_000.0) -> None:
        assert self.offsets.due(now)
        self.offsets.commit_due(self.plane, now, member=True)

    def revoke(
        self, *partitions: TopicPartition, carried: bool = True, inside: Callable[[], Any] = lambda: None
    ) -> Entries:
        """All steps of a revoke; `inside` is on_revoke. Returns where the next owners go on."""
        final: Entries = {}
        state = replace(MEMBER, said=replace(MEMBER.said, positions_reach=carried, room=1_000))
        for step in steps_around(state, mb.Revoked(frozenset(partitions or BOTH)), self._committer):
            match step:
                case HoldBack(named, ahead_of_join):
                    self.offsets.begin_revoke(named, ahead_of_join=ahead_of_join)
                case Commit(named):
                    self.offsets.commit_positions(self.plane, named, member=True)
                case Await():
                    self.offsets.wait_in_revoke(step)
                case Tell():
                    inside()
                case LetGo(named):
                    final = self.offsets.final(named)
                    self.offsets.end_revoke()
        return final

    def sent(self) -> list[dict[TopicPartition, int]]:
        return [one.offsets for one in self.plane.sent]

    def heard(self) -> list[tuple[int | None, dict[int, int]]]:
        self.offsets.report()
        return self.told


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long commits under way were waited for, each time. Nothing waits here."""
    waited: list[float] = []
    monkeypatch.setattr(Offsets, "wait", lambda _, timeout_s: waited.append(timeout_s))
    return waited


def by_hand(**settings: Any) -> World:
    """An application that stores and commits its offsets itself."""
    return World(enable_auto_offset_store=False, enable_auto_commit=False, **settings)


# -- what there is to commit


def test_positions_are_committed_and_before_there_are_any_what_was_handed_over() -> None:
    world = World()
    world.plane.handed = {A: AT_5, B: AT_8}
    world.read_up_to(b=9)
    assert world.offsets.committable([A, B]) == {A: AT_5, B: AT_9}
    assert world.offsets.committable([B]) == {B: AT_9}


def test_an_application_that_stores_its_offsets_commits_these_and_nothing_else() -> None:
    world = by_hand()
    world.read_up_to(a=5, b=9)
    assert world.offsets.committable([A, B]) == {}
    world.offsets.store({B: AT_8})
    assert world.offsets.committable([A, B]) == {B: AT_8}
    world.offsets.store({B: OffsetEntry(ck.OFFSET_INVALID)})
    assert world.offsets.committable([A, B]) == {}, "no offset takes back what was stored"


def test_only_what_is_beyond_the_last_commit_is_new() -> None:
    """A seek back does not undo a commit."""
    world = World(Plane(at_once=True))
    world.read_up_to(a=8)
    world.auto_commit()
    assert world.offsets.uncommitted([A]) == {}
    world.read_up_to(a=5)
    assert world.offsets.uncommitted([A]) == {}
    world.read_up_to(a=9)
    assert world.offsets.uncommitted([A]) == {A: AT_9}


def test_what_is_not_assigned_is_not_stored() -> None:
    """librdkafka 3340: storing an offset of another member's partition rewound the group."""
    world = by_hand()
    world.data.drop([B])
    assert world.offsets.store({A: AT_5, B: AT_9}) == {A: AT_5}
    assert world.offsets.committable([A, B]) == {A: AT_5}
    for stranger, code in ((B, ck.KafkaError._STATE), (TopicPartition("pay", 0), ck.KafkaError._UNKNOWN_PARTITION)):
        with pytest.raises(ck.KafkaException) as refused:
            world.offsets.store({stranger: AT_9})
        assert refused.value.args[0].code() == code


def test_with_automatic_storing_nothing_can_be_stored_by_hand() -> None:
    with pytest.raises(ck.KafkaException, match="must be false"):
        World().offsets.store({A: AT_5})


def test_what_is_forgotten_is_committed_no_more_and_is_new_when_it_comes_back() -> None:
    world = World(Plane(at_once=True))
    world.read_up_to(a=8)
    world.auto_commit()
    world.offsets.forget([A])
    assert world.offsets.uncommitted([A]) == {A: AT_8}, "another member may have set it back meanwhile"


# -- auto-commits


def test_an_auto_commit_comes_after_its_interval_and_only_if_something_was_read() -> None:
    world = World(auto_commit_interval_ms=5_000)
    assert not world.offsets.due(1e9)
    world.read_up_to(a=5)
    assert not world.offsets.due(4_999.0)
    world.auto_commit(5_000.0)
    assert world.sent() == [{A: 5}]
    world.read_up_to(a=9)
    assert not world.offsets.due(9_999.0)
    assert world.offsets.due(10_000.0)


@pytest.mark.parametrize("phase", [mb.Phase.PLANNING, mb.Phase.SYNCING])
def test_between_two_generations_an_auto_commit_waits(phase: mb.Phase) -> None:
    world = World()
    world.read_up_to(a=5)
    world.plane.in_phase(phase)
    world.auto_commit()
    assert world.sent() == []
    world.plane.in_phase(mb.Phase.STABLE)
    world.auto_commit()
    assert world.sent() == [{A: 5}]


def test_a_partition_has_one_auto_commit_under_way_at_a_time() -> None:
    """The one under way may still be retried, and would undo the next."""
    world = World()
    world.read_up_to(a=5)
    world.auto_commit(5_000.0)
    world.read_up_to(a=8, b=9)
    world.auto_commit(10_000.0)
    assert world.sent() == [{A: 5}, {B: 9}]
    assert world.offsets.unanswered() == {A: 5, B: 9}
    world.plane.accept()
    world.auto_commit(15_000.0)
    assert world.sent()[2] == {A: 8}, "it was still due"


def test_an_auto_commit_that_fails_is_due_again_and_told() -> None:
    world = World()
    world.read_up_to(a=5)
    world.auto_commit()
    world.plane.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, A)
    assert world.heard() == [(29, {0: 5, 1: ck.OFFSET_INVALID})]
    assert world.offsets.due(10_000.0)
    assert world.offsets.uncommitted([A]) == {A: AT_5}
    assert world.plane.woken == 1, "an idle poll hears of it"


@pytest.mark.parametrize("moved", ["in a round", "a round later"])
def test_an_auto_commit_that_a_round_overtook_is_not_told_and_made_again(moved: str) -> None:
    world = World()
    world.read_up_to(a=5)
    world.auto_commit()
    if moved == "in a round":
        world.plane.in_phase(mb.Phase.JOINING)
    else:
        world.plane.in_phase(mb.Phase.STABLE, membership=Membership("m-1", 6))
    world.plane.refuse(ErrorCode.ILLEGAL_GENERATION)
    assert world.heard() == []
    assert world.offsets.due(10_000.0)


def test_an_auto_commit_of_a_member_that_was_thrown_out_is_told() -> None:
    world = World()
    world.read_up_to(a=5)
    world.auto_commit()
    world.plane.in_phase(mb.Phase.JOINING, lost=True)
    world.plane.refuse(ErrorCode.ILLEGAL_GENERATION)
    assert [code for code, _ in world.heard()] == [22]


# -- the application's own commits


def test_a_commit_that_is_not_waited_for_is_told_with_the_next_report() -> None:
    world = by_hand()
    world.offsets.commit_later(world.plane, {A: AT_5}, member=True)
    world.offsets.commit_later(world.plane, {B: AT_9}, member=True)
    assert world.heard() == []
    world.plane.accept()
    world.plane.fail(NetError("DISCONNECTED", "the coordinator is gone.", "Wait.", retriable=True))
    first, second = world.heard()
    assert first == (None, {0: 5})
    assert second[0] is not None and second[1] == {1: 9}


@pytest.mark.parametrize("why", ["forbidden", "nothing to send"])
def test_a_commit_that_can_not_be_sent_is_told_and_not_sent(why: str) -> None:
    world = by_hand()
    if why == "forbidden":
        lost = ck.KafkaError(ck.KafkaError.UNKNOWN_MEMBER_ID)
        world.offsets.commit_later(world.plane, {A: AT_5}, member=True, forbidden=lost)
        expected = ck.KafkaError.UNKNOWN_MEMBER_ID
    else:
        world.offsets.commit_later(world.plane, {A: OffsetEntry(ck.OFFSET_INVALID)}, member=True)
        expected = ck.KafkaError._NO_OFFSET
    assert world.sent() == []
    assert [code for code, _ in world.heard()] == [expected]


def test_what_on_commit_raises_keeps_no_other_commit_from_being_told() -> None:
    world, raised = by_hand(raises=True), Raised()
    for at in (AT_5, AT_8):
        world.offsets.commit_later(world.plane, {A: at}, member=True)
        world.plane.accept()
    with pytest.raises(LookupError, match="5"):
        world.offsets.report()
    assert world.told == [(None, {0: 5})]
    world.offsets.report_all(raised)
    assert world.told == [(None, {0: 5}), (None, {0: 8})]
    with pytest.raises(LookupError, match="8"):
        raised.raise_first()


def test_a_commit_that_is_waited_for_returns_each_partitions_result() -> None:
    world = by_hand(plane=Plane(at_once=True))
    entries = world.offsets.with_all_assigned({A: AT_5})
    assert [(p.partition, p.offset) for p in world.offsets.commit_now(world.plane, entries, member=True)] == [
        (0, 5),
        (1, ck.OFFSET_INVALID),
    ]
    with pytest.raises(ck.KafkaException) as nothing:
        world.offsets.commit_now(world.plane, {}, member=True)
    assert nothing.value.args[0].code() == ck.KafkaError._NO_OFFSET


def test_a_commit_that_is_waited_for_raises_the_first_refusal_and_remembers_what_was_taken() -> None:
    world = by_hand()
    future = world.offsets.begin(world.plane, {A: AT_5, B: AT_9}, member=True)
    world.plane.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, B)
    with pytest.raises(ck.KafkaException) as refused:
        world.offsets.settled({A: AT_5, B: AT_9}, future.result(0))
    assert refused.value.args[0].code() == 12
    assert world.offsets.touched, "it is due again"


def test_an_own_failure_is_raised_as_kafkas() -> None:
    class Fails(Plane):
        def accept(self) -> None:
            self.fail(HoldfastError("NOT_OWNED", "it is another member's", "Commit in on_revoke."))

    world = by_hand(plane=Fails(at_once=True))
    with pytest.raises(ck.KafkaException, match="another member's"):
        world.offsets.commit_now(world.plane, {A: AT_5}, member=True)


def test_what_was_given_up_is_left_out_of_a_commit_unless_nothing_else_is_in_it() -> None:
    """Its next owner may be further. A commit of nothing else is refused as a whole, with that reason."""
    world = by_hand(plane=Plane(at_once=True))
    world.offsets.given_up = {B}
    world.offsets.commit_later(world.plane, {A: AT_5, B: AT_9}, member=True)
    world.offsets.commit_later(world.plane, {B: AT_9}, member=True)
    assert world.sent() == [{A: 5}, {B: 9}]
    assert [one.how["given_up"] for one in world.plane.sent] == [{B}, {B}]


# -- revoking


def test_positions_that_reach_the_next_owner_are_committed_without_waiting(waits: list[float]) -> None:
    world = World()
    world.read_up_to(a=5, b=9)
    assert world.revoke() == {A: AT_5, B: AT_9}
    assert world.sent() == [{A: 5, B: 9}], "the same again would only erase metadata"
    assert world.plane.sent[0].how["ahead_of_join"]
    assert waits == []


def test_positions_that_may_not_reach_the_next_owner_are_waited_for(waits: list[float]) -> None:
    world = World()
    world.read_up_to(a=5)
    world.revoke(carried=False)
    assert not world.plane.sent[0].how["ahead_of_join"]
    assert waits == [REVOKE_MS / 1_000] * 2


def test_a_commit_under_way_on_the_other_connection_is_waited_for_before_the_join(waits: list[float]) -> None:
    """It would arrive behind the join, and be refused; and the next round may not have the positions."""
    world = World()
    world.read_up_to(a=5)
    world.auto_commit()
    world.revoke()
    assert waits == [CARRIED_MS / 1_000]
    assert len(world.plane.sent) == 1, "it is on its way"


def test_a_commit_behind_the_revoke_goes_its_usual_way() -> None:
    world = World(Plane(at_once=True))
    world.revoke()
    world.read_up_to(a=5)
    world.auto_commit()
    assert not world.plane.sent[-1].how["ahead_of_join"]


def test_an_application_that_commits_by_itself_hands_over_what_it_committed_in_on_revoke(waits: list[float]) -> None:
    world = by_hand(plane=Plane(at_once=True))
    world.read_up_to(a=9, b=9)
    world.offsets.store({A: AT_9})

    def on_revoke() -> None:
        world.offsets.commit_later(world.plane, {A: AT_8, B: AT_9}, member=True)

    assert world.revoke(A, inside=on_revoke) == {A: AT_8}
    assert world.sent() == [{A: 8, B: 9}], "nothing is committed for it"
    assert waits == [REVOKE_MS / 1_000, CARRIED_MS / 1_000], "its own commits may be under way"


def test_before_on_revoke_there_is_one_wait_for_the_applications_own_commits(waits: list[float]) -> None:
    """Symptom: with commits of its own and a coordinator that hung, a consumer stood for six seconds before on_revoke
    was called. Cause: it waited a second for commits that the join carries, and then five for all. Rule: the join
    carries nothing of what was committed before, and there is one limit."""
    world = by_hand()
    world.offsets.commit_later(world.plane, {A: AT_5}, member=True)
    before: list[float] = []
    world.revoke(A, inside=lambda: before.extend(waits))
    assert before == [REVOKE_MS / 1_000]


def test_metadata_is_waited_for_because_joins_carry_none(waits: list[float]) -> None:
    world = World()
    world.read_up_to(a=5)

    def on_revoke() -> None:
        world.plane.accept()
        world.reader.stands[A] = OffsetEntry(8, metadata="batch-8")

    world.revoke(A, inside=on_revoke)
    assert waits == [REVOKE_MS / 1_000]


def test_inside_on_revoke_a_commit_without_offsets_includes_what_was_new_when_it_began() -> None:
    """It was committed just before on_revoke was called; the application still expects its commit() to commit."""
    world = World(Plane(at_once=True))
    world.read_up_to(a=5)
    found: list[Entries] = []
    world.revoke(inside=lambda: found.append(world.offsets.uncommitted(BOTH)))
    assert found == [{A: AT_5}]
    assert world.offsets.uncommitted(BOTH) == {}


@pytest.mark.parametrize("carried", [True, False])
def test_a_commit_that_the_round_overtook_is_not_told_if_its_offsets_went_with_the_join(
    waits: list[float], *, carried: bool
) -> None:
    world = World()
    world.read_up_to(a=5)
    world.revoke(carried=carried)
    world.plane.refuse(ErrorCode.REBALANCE_IN_PROGRESS)
    assert [code for code, _ in world.heard()] == ([] if carried else [27])


# -- positions


def test_a_position_that_is_committed_already_is_not_committed_again() -> None:
    """It would erase the metadata of the first commit. Unless the application committed it without the epoch: then the
    metadata is kept."""
    world = World(Plane(at_once=True))
    world.offsets.commit_later(world.plane, {A: OffsetEntry(5, metadata="mine")}, member=True)
    world.read_up_to(a=5)
    world.offsets.commit_positions(world.plane, [A], member=True)
    assert len(world.plane.sent) == 1
    world.reader.stands[A] = OffsetEntry(5, leader_epoch=3)
    world.offsets.commit_positions(world.plane, [A], member=True)
    assert world.plane.sent[1].entries == {A: OffsetEntry(5, leader_epoch=3, metadata="mine")}


def test_what_the_application_unassigns_itself_is_committed_and_remembered_until_the_group_takes_it() -> None:
    world = World(Plane(at_once=True))
    world.read_up_to(a=5)
    world.offsets.before_unassign(world.plane, [A], member=True)
    world.data.drop([A])
    assert world.sent() == [{A: 5}]
    assert world.offsets.committable([A]) == {A: AT_5}
    world.offsets.forget([A])
    assert world.offsets.committable([A]) == {}


def test_a_consumer_that_commits_by_itself_is_not_committed_for() -> None:
    world = by_hand()
    world.read_up_to(a=5)
    world.offsets.commit_positions(world.plane, [A], member=True)
    world.offsets.before_unassign(world.plane, [A], member=True)
    assert world.sent() == [] and not world.offsets.due(1e9)


def test_a_commit_of_a_partition_that_was_given_up_is_nothing_the_group_will_stand_at() -> None:
    world = World()
    world.read_up_to(a=5, b=9)
    world.auto_commit()
    world.offsets.given_up = {B}
    assert world.offsets.unanswered() == {A: 5}
