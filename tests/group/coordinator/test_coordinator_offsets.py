"""Committed offsets: who may commit when, what is refused alone, what expires and what never does."""

from __future__ import annotations

import pytest
from coordinator_world import T0, T1, World, subscription

from holdfast.group.coordinator import (
    DeleteOffsetsRequest,
    Effect,
    Emit,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Persist,
    Reply,
    State,
)
from holdfast.group.coordinator.events import Event
from holdfast.group.coordinator.group import Group
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsRequest, OffsetEntry
from holdfast.model import ErrorCode, Membership, TopicPartition

DAY = 24 * 60 * 60 * 1_000
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
OTHER = TopicPartition("payments", 3)


class TestWhoMayCommit:
    def test_what_each_state_answers_a_member(self) -> None:
        """Facts from the wire of Kafka 4.1: Stable and PreparingRebalance take it, CompletingRebalance answers 27."""
        world = World()
        a, b = world.stable("a", "b")
        assert world.commit(a) is NONE
        world.join(b.member_id, protocols=(("range", subscription("new")),))
        assert world.state is State.PREPARING
        assert world.commit(a) is NONE
        world.join(a.member_id)
        assert world.state is State.COMPLETING
        now = Membership(a.member_id, world.generation)
        assert world.commit(now) is ErrorCode.REBALANCE_IN_PROGRESS
        assert world.commit(a) is ErrorCode.ILLEGAL_GENERATION
        assert world.commit(Membership("who", world.generation)) is UNKNOWN

    def test_a_stale_generation_is_refused_and_traced(self) -> None:
        world = World()
        a, _ = world.stable("a", "b")
        assert world.commit(Membership(a.member_id, a.generation - 1), {T0: 99}) is ErrorCode.ILLEGAL_GENERATION
        assert world.committed() == {}
        record = world.steps("commit-refused")[-1]
        assert (record.member, record.generation) == (a.member_id, a.generation - 1)
        assert record.cause == "its generation is over"

    def test_from_outside_only_while_nobody_is_inside(self) -> None:
        world = World()
        assert world.commit() is NONE
        assert world.coordinator.describe("g").protocol_type == ""
        (a,) = world.stable("a")
        assert world.commit() is UNKNOWN
        world.join(client_id="b")
        assert world.commit() is UNKNOWN
        world.join(a.member_id)
        assert world.state is State.COMPLETING
        assert world.commit() is UNKNOWN
        world.leave(*world.member_ids)
        assert world.commit(offsets={T0: 7}) is NONE
        assert world.committed() == {T0: 7}

    def test_a_member_of_a_group_that_is_not_there_is_stale(self) -> None:
        world = World()
        assert world.commit(Membership("a", 3)) is ErrorCode.ILLEGAL_GENERATION
        assert world.coordinator.list_groups() == []

    def test_a_member_of_an_emptied_group_is_unknown(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.leave(a.member_id)
        assert world.commit(a) is UNKNOWN

    def test_ids_given_out_do_not_keep_others_from_committing(self) -> None:
        world = World()
        world.join(requires_known_member_id=True)
        assert world.commit() is NONE


class TestCommitting:
    def test_the_record_is_persisted_before_the_answer(self) -> None:
        world = World()
        effects = world.coordinator.handle(1, CommitRequest(group="g", offsets={T0: OffsetEntry(5, 2, "m")}), 1_000.0)
        kinds = [type(effect) for effect in effects if not isinstance(effect, Emit)]
        assert kinds == [Persist, Reply]
        assert effects[0] == Persist(
            (OffsetRecord(group="g", partition=T0, offset=5, leader_epoch=2, metadata="m", committed_at_ms=1_000.0),)
        )

    def test_commits_become_visible_in_log_order(self) -> None:
        """edge C71 K-5247: the later record wins in the log, so it must win in memory too."""
        world = World()
        (a,) = world.stable("a")
        for offset in (5, 9, 7):
            world.commit(a, {T0: offset})
        assert world.committed() == {T0: 7}
        assert world.restarted().committed() == {T0: 7}

    def test_an_oversized_entry_is_refused_alone_and_leaves_nothing_pending(self) -> None:
        """edge C68 K-16371

        A commit with one metadata that is too large failed as a whole, or left an entry pending for ever, so that
        later fetches of that partition were answered "unstable".
        """
        world = World()
        entries = {T0: OffsetEntry(1, metadata="x" * 4_097), T1: OffsetEntry(2, metadata="x" * 4_096)}
        answer = world.ask(CommitRequest(group="g", offsets=entries), CommitAnswer)
        assert answer.errors == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: NONE}
        assert world.committed() == {T1: 2}
        assert world.commit(offsets={T0: 3}) is NONE
        assert world.committed() == {T0: 3, T1: 2}

    def test_metadata_is_counted_in_bytes(self) -> None:
        world = World()
        entries = {T0: OffsetEntry(1, metadata="ü" * 2_049)}
        answer = world.ask(CommitRequest(group="g", offsets=entries), CommitAnswer)
        assert answer.first_error is ErrorCode.OFFSET_METADATA_TOO_LARGE

    def test_a_commit_of_oversized_entries_only_makes_no_group(self) -> None:
        world = World()
        world.ask(CommitRequest(group="g", offsets={T0: OffsetEntry(1, metadata="x" * 5_000)}), CommitAnswer)
        assert world.coordinator.list_groups() == []
        assert world.log == []

    def test_partitions_per_group_are_bounded(self) -> None:
        world = World(max_offsets_per_group=2)
        answer = world.ask(
            CommitRequest(group="g", offsets={TopicPartition("t", n): OffsetEntry(n) for n in range(4)}), CommitAnswer
        )
        too_many = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert list(answer.errors.values()) == [NONE, NONE, too_many, too_many]
        assert world.commit(offsets={TopicPartition("t", 1): 9}) is NONE

    def test_fetching_does_not_fence(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 4})
        request = FetchOffsetsRequest(group="g", membership=Membership("who", 77), partitions=(T0, T1))
        answer = world.answers[world.send(request)]
        assert answer.error is NONE
        assert answer.offsets == {T0: OffsetEntry(4)}
        assert world.committed("nowhere") == {}


class TestExpiry:
    def test_a_simple_groups_offsets_expire_and_the_group_with_them(self) -> None:
        world = World()
        world.commit(offsets={T0: 1})
        world.pass_time(7 * DAY - 1)
        assert world.committed() == {T0: 1}
        world.pass_time(600_000 + 1)
        assert world.committed() == {}
        assert world.coordinator.list_groups() == []
        assert world.log[-1] == OffsetTombstone("g", T0)
        assert world.restarted().coordinator.records() == []

    def test_an_active_groups_offsets_never_expire(self) -> None:
        """edge C67 K-13636 K-4682 K-8069

        A group works on, a partition gets no records for a week, its offset is as old as its last commit: it was
        deleted, and the next owner started from the end, or the beginning.
        """
        world = World()
        (a,) = world.stable("a", session_timeout_ms=1_800_000)
        world.commit(a, {T0: 5})
        for _ in range(10 * 24 * 2 + 2):
            world.pass_time(1_800_000 - 1)
            assert world.beat(a) is NONE
        assert world.committed() == {T0: 5}

    def test_nor_while_a_round_takes_long(self) -> None:
        """edge C67 K-13636"""
        world = World(offsets_retention_ms=1_000.0, offsets_retention_check_interval_ms=100.0)
        a, b = world.stable("a", "b")
        world.commit(a, {OTHER: 5})
        world.join(b.member_id, protocols=(("range", subscription("new")),))
        world.pass_time(5_000)
        assert world.state is State.PREPARING
        assert world.committed() == {OTHER: 5}

    def test_offsets_of_topics_nobody_subscribes_to_do(self) -> None:
        world = World(offsets_retention_ms=10_000.0, offsets_retention_check_interval_ms=1_000.0)
        (a,) = world.stable("a")
        world.commit(a, {T0: 1, OTHER: 2})
        world.pass_time(11_000)
        assert world.committed() == {T0: 1}

    def test_unless_a_subscription_can_not_be_read(self) -> None:
        world = World(offsets_retention_ms=10_000.0, offsets_retention_check_interval_ms=1_000.0)
        (a,) = world.stable("a", protocols=(("range", b"\x00"),))
        world.commit(a, {OTHER: 2})
        world.pass_time(20_000)
        assert world.committed() == {OTHER: 2}

    def test_nor_of_groups_of_another_kind_while_they_are_active(self) -> None:
        """edge C67 K-13636: what a Connect worker subscribes to can't be read; its offsets stay."""
        world = World(offsets_retention_ms=10_000.0, offsets_retention_check_interval_ms=1_000.0)
        (a,) = world.stable("a", protocol_type="connect", protocols=(("v1", b""),))
        world.commit(a, {OTHER: 2})
        world.pass_time(20_000)
        assert world.committed() == {OTHER: 2}

    def test_an_emptied_group_keeps_its_offsets_for_the_whole_retention_time(self) -> None:
        """edge C67 K-4682: the time counts from when the last member left, not from the commit."""
        world = World()
        (a,) = world.stable("a", session_timeout_ms=1_800_000)
        world.commit(a, {T0: 5})
        for _ in range(24 * 2 * 3):
            world.pass_time(1_700_000)
            world.beat(a)
        world.leave(a.member_id)
        world.pass_time(7 * DAY - 1)
        assert world.committed() == {T0: 5}
        world.pass_time(600_000 + 1)
        assert world.coordinator.list_groups() == []
        assert world.log[-1] == GroupTombstone("g")

    def test_a_restart_does_not_start_the_clock_again(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 5})
        world.leave(a.member_id)
        world.pass_time(6 * DAY)
        after = world.restarted()
        after.pass_time(DAY + 600_000)
        assert after.committed() == {}

    def test_what_an_administrator_sets_in_an_empty_group_lives_as_long_again(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 5, T1: 5})
        world.leave(a.member_id)
        world.pass_time(6 * DAY)
        world.commit(offsets={T0: 0})
        world.pass_time(2 * DAY)
        assert world.committed() == {T0: 0}

    def test_an_empty_group_with_nothing_is_forgotten_at_the_next_check(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.leave(a.member_id)
        world.pass_time(600_000)
        assert world.coordinator.list_groups() == []
        assert world.restarted().coordinator.records() == []


class TestDeletingOffsets:
    def delete(self, world: World, *partitions: TopicPartition) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        answer = world.answers[world.send(DeleteOffsetsRequest(group="g", partitions=partitions))]
        return answer.error, dict(answer.errors)

    def test_a_topic_in_use_is_kept_and_another_is_not(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 1, OTHER: 2})
        error, verdicts = self.delete(world, T0, OTHER, TopicPartition("never", 0))
        assert error is NONE
        assert verdicts == {
            T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            OTHER: NONE,
            TopicPartition("never", 0): NONE,
        }
        assert world.committed() == {T0: 1}
        assert world.restarted().committed() == {T0: 1}

    def test_in_an_empty_group_everything_may_go(self) -> None:
        world = World()
        world.commit(offsets={T0: 1, OTHER: 2})
        assert self.delete(world, T0, OTHER) == (NONE, {T0: NONE, OTHER: NONE})
        assert world.committed() == {}

    def test_groups_of_other_kinds_must_be_empty(self) -> None:
        world = World()
        world.stable("a", protocol_type="connect", protocols=(("v1", b""),))
        assert self.delete(world, T0) == (ErrorCode.NON_EMPTY_GROUP, {})

    def test_a_subscription_that_can_not_be_read_counts_as_all_topics(self) -> None:
        world = World()
        (a,) = world.stable("a", protocols=(("range", b"\xff"),))
        world.commit(a, {OTHER: 2})
        assert self.delete(world, OTHER)[1] == {OTHER: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    def test_a_group_that_is_not_there_is_not_found(self) -> None:
        assert self.delete(World(), T0) == (ErrorCode.GROUP_ID_NOT_FOUND, {})

    def test_a_large_topic_is_not_looked_through_for_every_group(self) -> None:
        """Symptom: deleting a topic of 10,000 partitions beside 5,000 groups held up everybody for two seconds and
        more. Cause: all its partitions were looked up in the offsets of each group. Invariant: a group with few offsets
        looks up those."""
        looked_up = 0

        class Counted(TopicPartition):
            def __hash__(self) -> int:
                nonlocal looked_up
                looked_up += 1
                return super().__hash__()

        world = World()
        (a,) = world.stable("a")
        world.commit(a, {T0: 1, OTHER: 2})
        deleted = frozenset(Counted(OTHER.topic, number) for number in range(1_000))
        looked_up = 0
        world.perform(world.coordinator.drop_partitions(deleted, world.now))
        assert world.committed() == {T0: 1}
        assert looked_up < 100

    def test_a_deleted_topic_is_no_matter_to_groups_without_offsets_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Symptom: deleting 20 topics beside 8,000 groups held up everybody for a second. Cause: for each of them every
        group's machine was run, found nothing, and was weighed and timed anew. Invariant: only groups that lose an
        offset are touched."""
        world = World()
        for number in range(20):
            world.commit(Membership(), {T0 if number else OTHER: 1}, group=f"g{number}")
        touched: list[str] = []
        happen = Group.happen

        def noted(group: Group, event: Event, now: float) -> list[Effect]:
            touched.append(group.roster.group_id)
            return happen(group, event, now)

        monkeypatch.setattr(Group, "happen", noted)
        world.perform(world.coordinator.drop_partitions([OTHER], world.now))
        assert touched == ["g0"]
        assert world.committed("g1") == {T0: 1}

    @pytest.mark.parametrize("active", [True, False])
    def test_deleted_partitions_take_their_offsets_along(self, active: bool) -> None:
        world = World()
        who = world.stable("a")[0] if active else Membership()
        world.commit(who, {T0: 1, T1: 2, OTHER: 3})
        world.perform(world.coordinator.drop_partitions({T0, T1}, world.now))
        assert world.committed() == {OTHER: 3}
        assert world.restarted().committed() == {OTHER: 3}
