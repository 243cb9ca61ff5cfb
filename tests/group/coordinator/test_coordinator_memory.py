"""What all groups take together has a bound; and one group that can't be written is put back alone."""

from __future__ import annotations

from coordinator_world import T0, T1, World, subscription

from holdfast.group.coordinator import State
from holdfast.group.messages import CommitAnswer, CommitRequest, OffsetEntry
from holdfast.model import ErrorCode, Membership, TopicPartition

BIG = (("range", bytes(50_000)),)


def test_groups_take_no_more_memory_together_than_the_bound_says() -> None:
    """Symptom: 10,000 groups of members with a megabyte each would take 10 GB. Cause: each group had bounds, all of
    them together had none. Invariant: what adds to them beyond the bound is refused, with an error that is not retried.
    """
    world = World(max_groups_bytes=1_000_000)
    errors = [world.join_error(group=f"g{number}", protocols=BIG) for number in range(40)]
    fitted = errors.index(ErrorCode.POLICY_VIOLATION)
    assert 10 < fitted < 20
    assert set(errors[fitted:]) == {ErrorCode.POLICY_VIOLATION}
    assert world.coordinator.weight <= 1_000_000
    assert len(world.coordinator.list_groups()) == fitted


def test_whoever_is_there_goes_on_when_there_is_no_memory_left() -> None:
    world = World()
    alice, bob = world.stable("alice", "bob", protocols=(("range", bytes(1000)),))
    assert world.commit(alice) is ErrorCode.NONE
    full = world.restarted(max_groups_bytes=world.coordinator.weight)

    assert full.beat(alice) is ErrorCode.NONE
    assert full.commit(alice, {T0: 2}) is ErrorCode.NONE, "a committed offset may move"
    assert full.commit(alice, {T1: 2}) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert full.join_error(protocols=(("range", subscription()),)) is ErrorCode.POLICY_VIOLATION
    full.join(alice.member_id, client_id="alice", protocols=(("range", bytes(1000)),))
    token = full.join(bob.member_id, client_id="bob", protocols=(("range", bytes(1000)),))
    assert full.joined(token).error is ErrorCode.NONE, "the same members make a new round"
    full.plan([Membership(each.member_id, full.generation) for each in (alice, bob)])
    assert full.state is State.STABLE
    leader = Membership(full.group.roster.leader, full.generation)
    assert full.sync_error(leader, plan={leader.member_id: bytes(10_000)}) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_is_given_back_can_be_used_again() -> None:
    world = World(max_groups_bytes=100_000)
    entries = {TopicPartition("orders", number): OffsetEntry(1, -1, "m" * 1000) for number in range(60)}
    answer = world.ask(CommitRequest(group="a", membership=Membership(), offsets=entries), CommitAnswer)
    assert answer.first_error is ErrorCode.NONE
    again = CommitRequest(group="b", membership=Membership(), offsets=entries)
    assert world.ask(again, CommitAnswer).first_error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    world.perform(world.coordinator.drop_partitions(entries, world.now))
    assert world.ask(again, CommitAnswer).first_error is ErrorCode.NONE


def test_one_group_is_put_back_to_its_log_and_the_others_do_not_notice() -> None:
    world = World()
    (alice,) = world.stable("alice")
    world.commit(alice)
    other = world.join(group="other")
    assert world.joined(other).error is ErrorCode.NONE
    log = [record for record in world.log if record.group == "g"]
    before = world.coordinator.describe("g"), world.committed()
    listed = world.coordinator.list_groups()
    late = world.join(client_id="late")
    assert late not in world.answers

    world.perform(world.coordinator.reload("g", log, world.now))

    assert world.joined(late).error is ErrorCode.NOT_COORDINATOR
    assert (world.coordinator.describe("g"), world.committed()) == before
    assert world.coordinator.list_groups() == listed
    assert world.beat(alice) is ErrorCode.NONE
