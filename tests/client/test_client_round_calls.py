"""The listener's calls of a round, by themselves: what happens around each, in which order, whatever a step raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest
from stand_ins import MEMBER, A, B, FakeReader, Plane, config_of

from holdfast.assign import by_name
from holdfast.client.member.listener import Listener
from holdfast.client.member.pending_calls import PendingCall
from holdfast.client.member.round_calls import RoundCalls
from holdfast.client.reading.data_plane import DataPlane
from holdfast.group import member as mb
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.steps import Await
from holdfast.model import Assignment, GroupMetadata, RebalanceProtocol, TopicPartition

AT_5, AT_9 = OffsetEntry(5), OffsetEntry(9)
ONE, BOTH = frozenset({A}), frozenset({A, B})
EAGER = replace(
    MEMBER,
    config=replace(MEMBER.config, assignors=(by_name("range"),), protocol=RebalanceProtocol.EAGER),
    phase=mb.Phase.APPLYING,
)


class Story(FakeReader):
    """A reader, and everything else around a round, that writes down what is asked of it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.story: list[str] = []
        self.reached: dict[TopicPartition, OffsetEntry] = {}
        """What the offsets say when on_revoke has returned."""
        self.given_up: set[TopicPartition] = set()
        self.fails: dict[str, list[BaseException]] = {}
        self.traced: list[tuple[str, int]] = []

    def said(self, what: str, partitions: Iterable[Any] = ()) -> None:
        numbers = sorted(p.partition for p in partitions)
        self.story.append(f"{what} {numbers}" if numbers else what)
        if waiting := self.fails.get(what):
            raise waiting.pop(0)

    # -- as a reader

    def add(self, partitions: Any) -> None:
        self.said("read", partitions)
        super().add(partitions)

    def drop(self, partitions: Any) -> None:
        self.said("drop", partitions)
        super().drop(partitions)

    # -- as `Offsets`

    def begin_revoke(self, partitions: Any, *, ahead_of_join: bool) -> None:
        self.said("ahead of the join" if ahead_of_join else "beside the join", partitions)

    def commit_positions(self, _plane: Any, partitions: Any, *, member: bool) -> None:
        self.said("commit", partitions)

    def wait_in_revoke(self, step: Await) -> None:
        if step.limit_ms:
            self.said("wait for theirs" if step.only_theirs else "wait", step.partitions)

    def final(self, partitions: Any) -> dict[TopicPartition, OffsetEntry]:
        return {p: entry for p, entry in self.reached.items() if p in partitions}

    def end_revoke(self) -> None:
        self.said("revoked")

    def before_unassign(self, _plane: Any, partitions: Any, *, member: bool) -> None:
        self.said("commit strangers", partitions)

    def forget(self, partitions: Any) -> None:
        self.said("forget", partitions)

    # -- as the watchdog's notes, and as the trace

    def gave_up(self, partitions: Any) -> None:
        self.said("note")

    def callback(self, what: str, _began: float, _state: Any, partitions: Any, _took: float, **_: Any) -> None:
        self.traced.append((what, len(partitions)))


class World:
    def __init__(self, state: mb.MemberState = MEMBER, **settings: Any) -> None:
        self.events = Story()
        self.data = DataPlane(self.events, reset="earliest")
        self.plane: Any = Plane(replace(state, said=replace(state.said, positions_reach=True, room=1_000)))
        given: Any = self.events
        self.calls = RoundCalls(lambda: "the application's", config_of(**settings), self.data, given, given, given)
        self.inside: dict[str, Callable[[list[ck.TopicPartition]], Any]] = {}
        """What the listener does in a callback."""
        self.calls.listener = Listener(
            on_assign=self._hears("on_assign"), on_revoke=self._hears("on_revoke"), on_lost=self._hears("on_lost")
        )

    def _hears(self, what: str) -> Callable[[Any, list[ck.TopicPartition]], None]:
        def heard(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            assert consumer == "the application's"
            self.events.said(what, partitions)
            if what in self.inside:
                self.inside[what](partitions)

        return heard

    def make(
        self, call: mb.Call, offsets: dict[TopicPartition, int | None] | None = None, *, last: bool = True
    ) -> bool:
        pending = PendingCall(serial=7, call=call, last=last, offsets=offsets or {})
        changed = self.calls.make(self.plane, pending)
        if last:
            self.calls.end(self.plane, pending)
        return changed

    def owns(self, **starts: int) -> None:
        """It reads these already."""
        self.data.add({(A, B)["ab".index(name)]: at for name, at in starts.items()})
        self.events.story.clear()


# -- what is added


def test_the_listener_hears_of_added_partitions_before_they_are_read() -> None:
    world = World()
    assert world.make(mb.Assigned(BOTH), {A: 5, B: None})
    assert world.events.story == ["on_assign [0, 1]", "read [0, 1]"]
    assert world.events.book.starts == {A: 5, B: ck.OFFSET_BEGINNING}
    assert world.plane.fed == [mb.Notified(7, {})]
    assert world.events.traced == [("assigned", 2)]


def test_a_partition_that_on_assign_starts_itself_is_not_started_again() -> None:
    world = World()

    def start(partitions: list[ck.TopicPartition]) -> None:
        assert world.calls.adding == {A: 5, B: 9}
        named = [ck.TopicPartition("orders", 0, 3), ck.TopicPartition("orders", 1), ck.TopicPartition("pay", 0, 1)]
        world.calls.start_now(named)

    world.inside["on_assign"] = start
    world.make(mb.Assigned(BOTH), {A: 5, B: 9})
    assert world.events.book.starts == {A: 3, B: 9}, "at the named offset, or else at the round's; others are not its"
    assert world.events.story == ["on_assign [0, 1]", "read [0, 1]"]
    assert world.calls.adding is None, "outside on_assign nothing is being added"


def test_an_on_assign_that_assigned_everything_itself_has_the_last_word() -> None:
    world = World(EAGER)

    def assign(partitions: list[ck.TopicPartition]) -> None:
        world.data.replace([ck.TopicPartition("orders", 0, 2)])
        world.calls.replaced = True

    world.inside["on_assign"] = assign
    world.make(mb.Assigned(BOTH), {A: 5, B: 9})
    assert world.events.book.starts == {A: 2}


def test_what_is_given_back_is_ours_to_commit_again() -> None:
    world = World()
    world.events.given_up = {A, B}
    world.make(mb.Assigned(ONE), {A: 5})
    assert world.events.given_up == {B}


def test_a_round_without_anything_new_is_told_and_changes_nothing() -> None:
    world = World()
    assert not world.make(mb.Assigned(frozenset()))
    assert world.events.story == ["on_assign"]


def test_an_eager_member_reads_the_groups_assignment_and_nothing_else() -> None:
    """What it had assigned itself before may be another member's now. What on_assign adds stays."""
    world = World(replace(EAGER, owned=frozenset(), held=replace(EAGER.held, then_owned=ONE)))
    world.owns(b=0)
    world.make(mb.Assigned(ONE), {A: 5})
    assert world.events.story == ["on_assign [0]", "commit strangers [1]", "drop [1]", "forget [1]", "read [0]"]
    assert world.data.assigned == ONE


def test_a_cooperative_member_keeps_what_it_has_assigned_itself() -> None:
    world = World(replace(MEMBER, owned=ONE))
    world.owns(b=0)
    world.make(mb.Assigned(ONE), {A: 5})
    assert world.data.assigned == BOTH


# -- what is taken


def test_what_is_revoked_is_committed_around_the_listeners_call_and_then_let_go() -> None:
    world = World()
    world.owns(a=0, b=0)
    world.plane.handed = {A: AT_5}
    world.events.reached = {A: AT_9}
    world.inside["on_revoke"] = lambda _: world.events.said(f"leaving {sorted(world.calls.leaving or ())}")
    assert world.make(mb.Revoked(ONE))
    assert world.events.story == [
        "ahead of the join [0]",
        "wait for theirs [0]",
        "commit [0]",
        "on_revoke [0]",
        "leaving [TopicPartition(topic='orders', partition=0)]",
        "commit [0]",
        "drop [0]",
        "revoked",
        "forget [0]",
        "note",
    ]
    assert world.data.assigned == {B}
    assert world.plane.fed == [mb.Notified(7, {A: AT_9})], "its next join carries the position"
    assert (world.events.given_up, world.plane.handed) == ({A}, {})
    assert world.calls.leaving is None


def test_positions_that_would_not_reach_anybody_are_not_handed_over() -> None:
    world = World(replace(MEMBER, config=replace(MEMBER.config, hand_over_offsets=False)))
    world.owns(a=0)
    world.events.reached = {A: AT_9}
    world.make(mb.Revoked(ONE))
    assert world.events.story[:3] == ["beside the join [0]", "commit [0]", "wait [0]"]
    assert world.plane.fed == [mb.Notified(7, {})]


@pytest.mark.parametrize("call", [mb.Lost(ONE), mb.Revoked(ONE)], ids=["lost", "revoked too late"])
def test_what_is_lost_is_let_go_before_the_listener_hears_of_it_and_not_committed(call: mb.Call) -> None:
    world = World(replace(MEMBER, lost=True))
    world.owns(a=0, b=0)
    world.make(call)
    assert world.events.story == ["drop [0]", "revoked", "forget [0]", "note", "on_lost [0]"]
    assert world.plane.fed == [mb.Notified(7, {})]
    assert world.events.traced == [("lost", 1)]


def test_the_positions_of_all_calls_of_a_round_go_with_its_one_answer() -> None:
    world = World()
    world.owns(a=0, b=0)
    world.events.reached = {A: AT_9, B: AT_5}
    world.make(mb.Revoked(ONE), last=False)
    assert world.plane.fed == []
    world.make(mb.Revoked(frozenset({B})))
    assert world.plane.fed == [mb.Notified(7, {A: AT_9, B: AT_5})]
    world.make(mb.Assigned(frozenset()))
    assert world.plane.fed[1:] == [mb.Notified(7, {})], "they went with that round"


def test_a_machine_that_was_answered_already_is_not_answered_again() -> None:
    world = World()
    pending = PendingCall(serial=7, call=mb.Assigned(frozenset()), last=True, answered=True)
    world.calls.make(world.plane, pending)
    world.calls.end(world.plane, pending)
    assert world.plane.fed == []


# -- whatever a step raises


@pytest.mark.parametrize("error", [RuntimeError("in on_revoke"), KeyboardInterrupt()])
def test_what_a_listener_raises_stops_neither_the_round_nor_the_group(error: BaseException) -> None:
    """edge B38 K-9620: an exception in one callback does not stop the others; the first is raised at the end."""
    world = World()
    world.owns(a=0, b=0)
    world.events.reached = {A: AT_9}
    world.events.fails = {"on_revoke": [error], "on_assign": [LookupError("in on_assign")]}
    world.make(mb.Revoked(ONE), last=False)
    world.make(mb.Assigned(frozenset({B})))
    assert world.data.assigned == {B}
    assert world.plane.fed == [mb.Notified(7, {A: AT_9})]
    with pytest.raises(type(error)):
        world.calls.raised.raise_first()
    world.calls.raised.raise_first()


@pytest.mark.parametrize("step", ["drop", "forget", "note"])
def test_a_ctrl_c_does_not_keep_a_partition_that_is_another_members_next(step: str) -> None:
    """What is let go is done again if it is interrupted: else it would be read beside its next owner."""
    world = World()
    world.owns(a=0)
    world.events.fails = {step: [KeyboardInterrupt()]}
    world.make(mb.Revoked(ONE))
    assert not world.data.assigned
    assert world.events.given_up == {A}
    assert world.events.story[-1] == "note"
    with pytest.raises(KeyboardInterrupt):
        world.calls.raised.raise_first()


def test_a_ctrl_c_does_not_keep_an_added_partition_from_being_read() -> None:
    world = World()
    world.events.fails = {"read": [KeyboardInterrupt()]}
    world.make(mb.Assigned(ONE), {A: 5})
    assert world.events.book.starts == {A: 5}


def test_a_start_that_is_refused_is_told_and_not_tried_again() -> None:
    world = World()
    refused = ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG))
    world.events.fails = {"read": [refused]}
    world.make(mb.Assigned(ONE), {A: 5})
    assert world.events.story.count("read [0]") == 1
    with pytest.raises(ck.KafkaException):
        world.calls.raised.raise_first()


def test_a_listener_that_is_called_again_is_not_told_of_an_earlier_call() -> None:
    world = World()
    world.owns(a=0)
    world.events.fails = {"on_revoke": [RuntimeError("first")]}
    world.make(mb.Revoked(ONE))
    assert (world.calls.leaving, world.calls.adding) == (None, None)


# -- the assignor's own call


def test_a_custom_assignor_hears_what_its_member_got() -> None:
    heard: list[tuple[Assignment, GroupMetadata]] = []
    cooperative: Any = by_name("cooperative-sticky")
    custom = SimpleNamespace(
        name="mine",
        version=0,
        protocols=cooperative.protocols,
        subscription_user_data=lambda *_: b"",
        assign=cooperative.assign,
        on_assignment=lambda assignment, metadata: heard.append((assignment, metadata)),
    )
    world = World(partition_assignment_strategy=[custom], group_instance_id="pod-7")
    assignment = Assignment(partitions=ONE)
    assert not world.make(mb.OnAssignment("mine", assignment, MEMBER.membership))
    ((given, metadata),) = heard
    assert given is assignment
    assert (metadata.member_id, metadata.generation, metadata.group, metadata.instance_id) == ("m-1", 5, "g", "pod-7")
    assert world.events.traced == []
