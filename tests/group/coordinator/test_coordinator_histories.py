"""Random histories: clients that do anything at any time, crashes of the coordinator, and what must hold at every step.

The clients here are naive on purpose: they use any membership they ever heard of, in any state, with any plan.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from coordinator_world import World, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.group.coordinator import DeleteGroupRequest, DeleteOffsetsRequest, State, decode_record, encode_record
from holdfast.group.coordinator.roster import GROUP_BYTES, PENDING_BYTES, SESSION, Roster, offset_weight
from holdfast.group.messages import CommitAnswer, CommitRequest, JoinAnswer, Leaver, OffsetEntry
from holdfast.model import ErrorCode, Membership, TopicPartition

PARTITIONS = [TopicPartition(topic, number) for topic in ("orders", "payments") for number in range(2)]
MAX_SIZE = 4
INSTANCES = ["x", "y"]
SUBSCRIBED = (("range", subscription("orders")), ("sticky", subscription("orders")))
OTHERWISE = (("sticky", subscription("payments")), ("range", subscription("payments")))
picks = st.integers(0, 10_000)
protocols = st.sampled_from(
    [
        (("range", subscription("orders")),),
        SUBSCRIBED,
        OTHERWISE,
        (("sticky", subscription("orders")),),
        (),
    ]
)


def counted_weight(roster: Roster) -> int:
    """The group's weight, counted from nothing."""
    members = sum(member.weight for member in roster.members.values())
    offsets = sum(offset_weight(record.metadata) for record in roster.offsets.values())
    plan = 0 if roster.durable is None else sum(len(member.assignment) for member in roster.durable.members)
    return GROUP_BYTES + members + offsets + plan + PENDING_BYTES * len(roster.pending)


class Histories(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Membership] = [Membership(), Membership("stranger", 1)]
        """Every membership that any answer ever named."""
        self.highest = 0
        self.read = 0
        """Answers looked at so far."""
        self.lost: set[int] = set()
        self.trace_read = 0

    @initialize(delay=st.sampled_from([0.0, 3_000.0]))
    def begin(self, delay: float) -> None:
        self.world = World(
            group_initial_rebalance_delay_ms=delay,
            group_max_size=MAX_SIZE,
            max_pending_members=3,
            offsets_retention_ms=120_000.0,
            offsets_retention_check_interval_ms=30_000.0,
        )

    # What clients do

    def pick(self, which: int) -> Membership:
        """Often a member of now, at times any membership that ever was."""
        roster = self.roster
        if roster is not None and roster.members and which % 3:
            ids = sorted(roster.members)
            return Membership(ids[which % len(ids)], roster.generation)
        return self.seen[-1 - which % min(len(self.seen), 8)]

    @rule(asked_back=st.booleans(), protocols=protocols)
    def join_as_stranger(self, asked_back: bool, protocols: Any) -> None:
        self.world.join(requires_known_member_id=asked_back, protocols=protocols, rebalance_timeout_ms=20_000)

    @rule(instance=st.sampled_from(INSTANCES), protocols=protocols)
    def join_as_static(self, instance: str, protocols: Any) -> None:
        self.world.join(instance_id=instance, protocols=protocols, session_timeout_ms=10_000)

    @rule(which=picks, protocols=protocols, instance=st.sampled_from([None, None, *INSTANCES]))
    def join_again(self, which: int, protocols: Any, instance: str | None) -> None:
        self.world.join(
            self.pick(which).member_id, protocols=protocols, instance_id=instance, rebalance_timeout_ms=60_000
        )

    @rule(sync=st.booleans())
    def everybody_joins_again(self, sync: bool) -> None:
        """As well-behaved clients do; with `sync` all of them but the youngest sync, too."""
        roster = self.roster
        for member in list(roster.members.values()) if roster is not None else []:
            if member.member_id in self.world.member_ids:
                self.world.join(
                    member.member_id,
                    protocols=member.protocols,
                    instance_id=member.instance_id,
                    rebalance_timeout_ms=20_000,
                )
        roster = self.roster
        if sync and roster is not None and roster.state is State.COMPLETING:
            for member_id in [*roster.members][: max(1, len(roster.members) - 1)]:
                self.world.sync(Membership(member_id, roster.generation), dict.fromkeys(roster.members, b"part"))

    @rule(which=picks, instance=st.sampled_from([None, None, *INSTANCES]))
    def sync(self, which: int, instance: str | None) -> None:
        who = self.pick(which)
        self.world.sync(who, {each.member_id: b"part" for each in self.seen[-4:]}, instance_id=instance)

    @rule()
    def the_leader_syncs(self) -> None:
        group = self.world.coordinator.group("g")
        if group is not None:
            roster = group.roster
            plan = {member_id: f"{roster.generation} for {member_id}".encode() for member_id in roster.members}
            self.world.sync(Membership(roster.leader, roster.generation), plan)

    @rule(which=picks, instance=st.sampled_from([None, *INSTANCES]))
    def heartbeat(self, which: int, instance: str | None) -> None:
        self.world.beat(self.pick(which), instance_id=instance)

    @rule(which=picks, instance=st.sampled_from([None, *INSTANCES]))
    def leave(self, which: int, instance: str | None) -> None:
        self.world.leave_as(Leaver(member_id=self.pick(which).member_id, instance_id=instance, reason="tired"))

    @rule(which=picks, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 99), outside=st.booleans())
    def commit(self, which: int, partition: TopicPartition, offset: int, outside: bool) -> None:
        """No commit of a stale generation is accepted (I2), and none in the middle of a sync barrier."""
        who = Membership() if outside else self.pick(which)
        view = self.world.coordinator.describe("g")
        answer = self.world.ask(
            CommitRequest(group="g", membership=who, offsets={partition: OffsetEntry(offset)}), CommitAnswer
        )
        is_member = who.member_id in {member.member_id for member in view.members}
        inside = view.state in ("Stable", "PreparingRebalance") and is_member and who.generation == view.generation
        from_outside = view.state in ("Empty", "Dead") and who.generation < 0
        assert (answer.first_error is ErrorCode.NONE) == (inside or from_outside), (view, who, answer)
        if answer.first_error is ErrorCode.NONE:
            assert self.world.committed()[partition] == offset

    @rule(which=picks)
    def lose_a_connection(self, which: int) -> None:
        waiting = sorted(self.waiting())
        if waiting:
            token = waiting[which % len(waiting)]
            self.world.disconnect(token)
            self.lost.add(token)

    # What else happens

    @rule(ms=st.sampled_from([1.0, 500.0, 3_000.0, 3_000.0, 9_999.0, 20_000.0, 45_000.0]))
    def time_passes(self, ms: float) -> None:
        self.world.pass_time(ms)

    @rule(ms=st.floats(0, 100))
    def a_tick_out_of_turn(self, ms: float) -> None:
        """A tick before the deadline does nothing."""
        deadline = self.world.coordinator.next_deadline()
        if deadline is not None and self.world.now + ms < deadline:
            self.world.now += ms
            assert self.world.coordinator.tick(self.world.now) == []

    @rule()
    def delete_group(self) -> None:
        self.world.send(DeleteGroupRequest(group="g"))

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete_offset(self, partition: TopicPartition) -> None:
        self.world.send(DeleteOffsetsRequest(group="g", partitions=(partition,)))

    @rule(partition=st.sampled_from(PARTITIONS))
    def drop_partition(self, partition: TopicPartition) -> None:
        self.world.perform(self.world.coordinator.drop_partitions([partition], self.world.now))

    @precondition(lambda self: self.world.log)
    @rule()
    def the_coordinator_crashes(self) -> None:
        """Whoever waits is cut off; the log is all that is left."""
        waiting = self.waiting()
        answers, order, trace, tokens = self.world.answers, self.world.order, self.world.trace, self.world.tokens
        self.world = self.world.restarted()
        self.world.answers, self.world.order, self.world.trace, self.world.tokens = answers, order, trace, tokens
        self.lost |= waiting

    # What must hold

    def waiting(self) -> set[int]:
        return set(range(1, self.world.tokens + 1)) - self.world.answers.keys() - self.lost

    @property
    def roster(self) -> Roster | None:
        group = self.world.coordinator.group("g")
        return group.roster if group is not None else None

    @invariant()
    def every_token_waits_or_was_answered(self) -> None:
        roster = self.roster
        parked = set(roster.waiting) if roster is not None else set()
        assert parked == self.waiting()
        assert self.world.coordinator.waiting == len(parked)

    @invariant()
    def the_generation_only_rises(self) -> None:
        """I9, also across crashes; a deleted group's name starts anew."""
        for record in self.world.trace[self.trace_read :]:
            if record.step == "group-gone":
                self.highest = 0
            if record.step in ("generation", "empty"):
                assert record.generation is not None
                assert record.generation > self.highest
                self.highest = record.generation
        self.trace_read = len(self.world.trace)

    @invariant()
    def answers_make_sense(self) -> None:
        for token in self.world.order[self.read :]:
            answer = self.world.answers[token]
            if isinstance(answer, JoinAnswer):
                if answer.membership.known:
                    self.seen.append(answer.membership)
                if answer.error is ErrorCode.NONE:
                    leads = answer.leader == answer.membership.member_id
                    assert answer.membership.joined
                    assert bool(answer.members) == leads
                    assert answer.protocol in ("range", "sticky")
        self.read = len(self.world.order)

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        """I8. The members of a round that is being prepared are not written; everything else is as it was."""
        through_bytes = [decode_record(*encode_record(record)) for record in self.world.log]
        again = World(now=self.world.now, log=through_bytes).coordinator
        assert again.records() == self.world.coordinator.records()
        roster = self.roster
        if roster is not None and roster.state is not State.PREPARING and roster.generation > 0:
            assert roster.snapshot() == roster.durable
            replayed = again.group("g")
            assert replayed is not None
            assert replayed.roster.snapshot() == roster.snapshot()
            assert replayed.describe() == self.world.coordinator.describe("g")

    @invariant()
    def the_weight_is_that_of_what_is_there(self) -> None:
        roster = self.roster
        assert self.world.coordinator.weight == (0 if roster is None else counted_weight(roster))

    @invariant()
    def the_books_agree(self) -> None:
        roster = self.roster
        if roster is None:
            return
        members = roster.members
        assert roster.static == {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
        assert roster.awaited <= members.keys()
        assert roster.unsynced <= members.keys()
        assert not roster.pending & members.keys()
        assert (roster.leader in members) if members else roster.leader == ""
        assert bool(members) == (roster.state not in (State.EMPTY, State.DEAD))
        assert roster.metadata_bytes == sum(member.metadata_bytes for member in members.values())
        assert roster.vote() in ("range", "sticky") if members else True
        if roster.state is not State.PREPARING:
            assert not roster.awaited
            assert all(member.join_token is None for member in members.values())
        if roster.state is not State.COMPLETING:
            assert all(member.sync_token is None for member in members.values())

    @invariant()
    def everything_is_bounded(self) -> None:
        """I10: as many timers as there are members, ids and barriers; never more members than allowed joined."""
        roster = self.roster
        if roster is None:
            return
        if roster.state is not State.PREPARING:
            assert len(roster.members) <= MAX_SIZE
        assert len(roster.pending) <= 3
        assert len(roster.deadlines) <= len(roster.members) + len(roster.pending) + 3
        for member in roster.members.values():
            watched = (SESSION, member.member_id) in roster.deadlines
            assert watched == (not member.is_parked or member.is_new), member

    @invariant()
    def nobody_waits_without_a_deadline(self) -> None:
        deadline = self.world.coordinator.next_deadline()
        if self.waiting():
            assert deadline is not None
        if deadline is not None:
            assert deadline >= self.world.now

    def teardown(self) -> None:
        """Left alone, every client is answered, and the group comes to rest."""
        if hasattr(self, "world"):
            self.world.pass_time(3_600_000)
            assert self.waiting() == set()
            assert self.world.coordinator.next_deadline() is None
            assert self.world.coordinator.list_groups() == []
            assert World(log=self.world.log).coordinator.records() == []


def check(machine: Histories, *, replay: bool) -> None:
    machine.every_token_waits_or_was_answered()
    machine.the_generation_only_rises()
    machine.answers_make_sense()
    machine.the_books_agree()
    machine.everything_is_bounded()
    machine.nobody_waits_without_a_deadline()
    if replay:
        machine.replayed_state_equals_live_state()


def one_step(machine: Histories, random: Random) -> None:
    """What a busy group sees: mostly members that behave, at times anything."""
    which, instance = random.randrange(10_000), random.choice([None, None, *INSTANCES])
    some = random.choice([SUBSCRIBED, SUBSCRIBED, SUBSCRIBED, OTHERWISE])
    partition = random.choice(PARTITIONS)
    actions: list[tuple[int, Callable[[], Any]]] = [
        (4, lambda: machine.join_as_stranger(asked_back=random.random() < 0.7, protocols=some)),
        (2, lambda: machine.join_as_static(instance=random.choice(INSTANCES), protocols=some)),
        (8, lambda: machine.join_again(which=which, protocols=some, instance=instance)),
        (6, lambda: machine.everybody_joins_again(sync=random.random() < 0.7)),
        (4, lambda: machine.sync(which=which, instance=None)),
        (4, machine.the_leader_syncs),
        (12, lambda: machine.heartbeat(which=which, instance=None)),
        (2, lambda: machine.leave(which=which, instance=None)),
        (6, lambda: machine.commit(which=which, partition=partition, offset=which, outside=random.random() < 0.1)),
        (2, lambda: machine.lose_a_connection(which=which)),
        (8, lambda: machine.time_passes(ms=random.choice([1.0, 500.0, 3_000.0, 9_999.0]))),
        (1, lambda: machine.time_passes(ms=20_000.0)),
        (1, lambda: machine.delete_offset(partition=partition)),
        (1, lambda: machine.drop_partition(partition=partition)),
        (1, machine.delete_group),
    ]
    if machine.world.log and random.random() < 0.01:
        machine.the_coordinator_crashes()
        return
    (action,) = random.choices([act for _, act in actions], [weight for weight, _ in actions])
    action()


@pytest.mark.parametrize("seed", range(12))
def test_long_walks_keep_every_promise(seed: int) -> None:
    """Longer and busier than what hypothesis tries: groups of several members that come, work, fail and return."""
    random = Random(seed)
    machine = Histories()
    machine.begin(delay=random.choice([0.0, 3_000.0]))
    for number in range(400):
        one_step(machine, random)
        check(machine, replay=number % 8 == 0)
    machine.teardown()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
