"""Commits that nobody waits for, made while partitions are given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as ck
import pytest
from polling import take

import holdfast
from holdfast.assign import by_name
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for


def settings_of(broker: Broker, group: str) -> dict[str, Any]:
    """A member that commits by itself only when it has to."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "auto.commit.interval.ms": 600_000,
        "holdfast.watchdog": False,
    }


def owner(settings: dict[str, Any], topic: str, **more: Any) -> tuple[holdfast.Consumer, list[ck.TopicPartition]]:
    """A member that has read everything and committed nothing, and what is taken from it."""
    made = holdfast.Consumer({**settings, **more})
    revoked: list[ck.TopicPartition] = []
    made.subscribe([topic], on_revoke=lambda _consumer, partitions: revoked.extend(partitions))
    take(made, 15)
    return made, revoked


def test_a_commit_made_while_revoking_is_sent_as_the_member_that_still_owns(broker: Broker, topic: str) -> None:
    """Symptom: of 22 commits before a revoke that nobody waited for, 19 were never sent, and an asynchronous commit in
    on_revoke failed with "not owned". Cause: who we are was looked up when the loop got to the commit, after it had
    heard that the listener was done and had taken the partitions off the books. Where the positions did not reach the
    next owner, it did everything again. Invariant: a commit is made by whoever owned the partitions when it was asked
    for."""
    told: list[Any] = []
    settings = {**settings_of(broker, f"last-{topic}"), "enable.auto.commit": False}
    first = holdfast.Consumer(
        {**settings, "on_commit": lambda error, partitions: told.append((error, len(partitions)))}
    )
    revoked: list[Any] = []

    def revoke(consumer: Any, partitions: list[Any]) -> None:
        revoked.extend(partitions)
        consumer.commit(asynchronous=True)

    first.subscribe([topic], on_revoke=revoke)
    take(first, 15)
    deadline = time.monotonic() + PATIENCE_S
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    while not (revoked and told):
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    assert told == [(None, 3)], "everything it stood at, while it still owned all of it"
    first.close()
    second.close()


def test_a_commit_that_the_next_round_overtook_is_no_failure_if_its_offsets_went_with_the_join(
    broker: Broker, topic: str
) -> None:
    """Symptom: on a busy machine on_commit heard ILLEGAL_GENERATION after a handover in which nothing was lost. Cause:
    the commit before a revoke is waited for only so long where positions travel with the join, and came when the round
    was over. Rule: what the next owner commits is not told as refused."""
    told: list[Any] = []
    settings, deadline = settings_of(broker, f"overtaken-{topic}"), time.monotonic() + PATIENCE_S
    first, revoked = owner(settings, topic, on_commit=lambda error, _partitions: told.append(error))
    late = broker.faults.delay(Api.OFFSET_COMMIT, ms=3_000, times=1)  # longer than it is waited for
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    while not (late.hits and second.assignment()):
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    until = time.monotonic() + 4.0
    while time.monotonic() < until:  # the commit is answered by then
        first.poll(0.01)
        second.poll(0.01)
    (gone,) = revoked
    assert [error for error in told if error is not None] == []
    (found,) = second.committed([gone], PATIENCE_S)
    assert found.offset == 5, "committed by whoever owns it now"
    assert found.leader_epoch is not None and found.leader_epoch >= 0, (
        "with the epoch of the last record, as he would have"
    )
    first.close()
    second.close()


def test_what_was_handed_over_is_committed_though_its_receiver_never_takes_it(broker: Broker, topic: str) -> None:
    """Symptom: in the chaos of members that commit by themselves, 726 records were done twice by two members to which
    nothing had happened. Cause: the positions of revoked partitions go with the join, and the join overtook the commit
    of the same, which was refused for it. The next owner commits what it is handed when it polls; it hung, the group
    went on without it, and the only copy was gone. Rule: a new owner's control plane commits what it is handed at once,
    whatever its application is doing."""
    settings, deadline = settings_of(broker, f"untaken-{topic}"), time.monotonic() + PATIENCE_S
    first, revoked = owner(settings, topic)
    broker.faults.delay(Api.OFFSET_COMMIT, ms=100, times=1)
    second = holdfast.Consumer(settings)
    second.subscribe([topic])  # and it never polls
    while not revoked:
        assert time.monotonic() < deadline
        first.poll(0.01)
    while [found.offset for found in first.committed(revoked, PATIENCE_S)] != [5]:
        assert time.monotonic() < deadline, "committed by its new owner, which does not poll"
        first.poll(0.01)
    first.close()
    second.close()


@pytest.mark.parametrize("refused", [False, True], ids=["slow commit", "refused commit"])
def test_what_was_done_before_a_revoke_is_not_done_again_when_the_round_is_cut(
    broker: Broker, topic: str, refused: bool
) -> None:
    """Symptom: three members, nobody fails, and the second does everything again that the first had done before it gave
    the partition up. Cause: a revoker did not wait for its commit, because its positions went with its join. The join
    overtook the commit, which was refused for it; and somebody joined before the round had ended, so that the next one
    began without the positions. Rules: a join does not overtake the commits of what it gives up; they are sent before
    it, on its connection. And a leader keeps what it was to hand over while members did not hear of it."""
    settings, deadline = settings_of(broker, f"cut-{topic}"), time.monotonic() + PATIENCE_S
    first, revoked = owner(settings, topic, **{"client.id": "first"})

    def ours(asked: Any) -> bool:
        return bool(asked.frame.client_id == "first")

    if refused:
        hindered = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT, times=1, when=ours)
    else:
        hindered = broker.faults.delay(Api.OFFSET_COMMIT, ms=200, times=1, when=ours)
    # What everybody hears when another member joins between the join's answer and the plan. The first round is the one
    # of the first member alone; in the second one it is told to revoke, and the third one has its positions.
    cut = broker.faults.error(
        Api.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS, when=lambda asked: asked.body.generation_id == 3
    )
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    again: list[Any] = []
    while not second.assignment():
        assert time.monotonic() < deadline
        first.poll(0.01)
        again.append(second.poll(0.01))
    until = time.monotonic() + 0.5
    while time.monotonic() < until:  # what is done again comes at once
        again.append(second.poll(0.01))
    assert hindered.hits and cut.hits and revoked
    assert [each for each in again if each is not None] == []
    while [found.offset for found in second.committed(revoked, PATIENCE_S)] != [5]:
        assert time.monotonic() < deadline
        second.poll(0.01)
    first.close()
    second.close()


class FailsOnce:
    """Fails in the first round in which somebody has given something up."""

    name = "fails-once"
    protocols = (holdfast.RebalanceProtocol.COOPERATIVE,)

    def __init__(self) -> None:
        self.failed = 0

    def assign(
        self, cluster: holdfast.ClusterView, members: Mapping[str, holdfast.Subscription]
    ) -> Mapping[str, holdfast.Assignment]:
        if len(members) == 2 and sum(len(member.owned) for member in members.values()) == 2 and not self.failed:
            self.failed += 1
            raise ValueError("not this time")
        return by_name("cooperative-sticky").assign(cluster, members)


def test_what_was_done_before_a_revoke_is_not_done_again_when_the_assignor_fails(broker: Broker, topic: str) -> None:
    """The same, and the round is not cut: the leader's assignor raises, and everybody keeps its partitions. The next
    plan hands over what this one should have."""
    assignor = FailsOnce()
    settings = {**settings_of(broker, f"fails-{topic}"), "partition.assignment.strategy": [assignor]}
    deadline = time.monotonic() + PATIENCE_S
    first, revoked = owner(settings, topic, **{"client.id": "first"})
    refused = broker.faults.error(
        Api.OFFSET_COMMIT, ErrorCode.REBALANCE_IN_PROGRESS, when=lambda asked: asked.frame.client_id == "first"
    )
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    while not second.assignment() or [found.offset for found in second.committed(revoked, PATIENCE_S)] != [5]:
        assert time.monotonic() < deadline
        first.poll(0.01)
        assert second.poll(0.01) is None, "it goes on where the first one stood"
    assert assignor.failed and refused.hits and len(revoked) == 1
    refused.clear()
    first.close()
    second.close()


def test_a_commit_without_an_answer_does_not_hold_up_the_join_behind_it(broker: Broker, topic: str) -> None:
    """A commit goes ahead of the join on its connection, so that the join waits for it. If the coordinator never
    answers, the connection is given up after a second: the partition moves, and its position with the join."""
    settings, deadline = settings_of(broker, f"unanswered-{topic}"), time.monotonic() + PATIENCE_S
    first, _ = owner(settings, topic, **{"client.id": "first"})
    silent = broker.faults.drop(Api.OFFSET_COMMIT, when=lambda asked: asked.frame.client_id == "first")
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    began = time.monotonic()
    while not second.assignment():
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    assert silent.hits
    assert time.monotonic() - began < 30, "a session is 45 s, and so long is a commit waited for otherwise"
    while [found.offset for found in second.committed(second.assignment(), PATIENCE_S)] != [5]:
        assert time.monotonic() < deadline
        assert second.poll(0.01) is None, "it goes on where the first one stood"
    silent.clear()
    first.close()
    second.close()


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_was_handed_over_is_not_forgotten_when_its_commit_is_refused(
    broker: Broker, topic: str, code: ErrorCode
) -> None:
    """Symptom: one answer to one commit, and a member did again what another had done before it gave the partition up.
    Cause: the revoker's commit failed, and so did the one of the new owner, which was not made again; where nothing was
    read yet, the new owner had no position to commit at its end either. Rule: a position that was handed over is its
    new owner's, to commit until the group has it and to hand on."""
    settings, deadline = settings_of(broker, f"forgotten-{topic}"), time.monotonic() + PATIENCE_S
    first, _ = owner(settings, topic, **{"client.id": "first"})
    refused = [
        # Each time: its retry may still be in time, and then the new owner has nothing to commit.
        broker.faults.error(Api.OFFSET_COMMIT, code, when=lambda asked: asked.frame.client_id == "first"),
        broker.faults.error(Api.OFFSET_COMMIT, code, times=1, when=lambda asked: asked.frame.client_id == "second"),
    ]
    second = holdfast.Consumer({**settings, "client.id": "second"})
    second.subscribe([topic])
    while not (second.assignment() and all(each.hits for each in refused)):
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    refused[0].clear()
    moved = second.assignment()
    second.close()
    (found,) = first.committed(moved, PATIENCE_S)
    assert found.offset == 5, "where the first one stood"
    first.close()


def test_a_position_that_was_handed_over_is_committed_until_the_group_has_it(broker: Broker, topic: str) -> None:
    """The same, and nobody closes: the new owner's application does not even poll."""
    settings, deadline = settings_of(broker, f"again-{topic}"), time.monotonic() + PATIENCE_S
    first, revoked = owner(settings, topic)
    refused = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.UNKNOWN_SERVER_ERROR, times=2)  # of both
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    while not revoked or [found.offset for found in first.committed(revoked, PATIENCE_S)] != [5]:
        assert time.monotonic() < deadline
        first.poll(0.01)
    assert refused.hits == 2
    first.close()
    second.close()


@pytest.mark.parametrize("then", ["waits", "commits everything", "reads on", "closes"])
def test_a_commit_of_an_earlier_offset_lasts_until_the_next_commit(
    make: Callable[..., Any], topic: str, then: str
) -> None:
    """An application that commits an offset before its position, to have something read again after a restart, has to
    stop committing: the next commit without offsets, an automatic one too, moves the group to the position again. Both
    classes say so, whatever comes next."""
    where = ck.TopicPartition(topic, 0)
    group = f"earlier-{then}-{topic}"
    often = {"auto_commit_interval_ms": 100 if then == "waits" else 600_000}
    consumer = make(group_id=group, **often)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])

    def stands() -> int:
        (found,) = consumer.committed([where], PATIENCE_S)
        return int(found.offset)

    for _ in range(4):
        wait_for(lambda: consumer.poll(0.1) is not None)
    consumer.commit(asynchronous=False)
    assert stands() == 4
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1)], asynchronous=False)
    assert stands() == 1
    (position,) = consumer.position([where])
    assert position.offset == 4
    if then == "waits":
        consumer.pause([where])
        wait_for(lambda: consumer.poll(0.05) is None and stands() == 4)
    elif then == "commits everything":
        assert [p.offset for p in consumer.commit(asynchronous=False)] == [4]
        assert stands() == 4
    elif then == "reads on":
        wait_for(lambda: consumer.poll(0.1) is not None)
        consumer.commit(asynchronous=False)
        assert stands() == 5
    else:
        consumer.close()
        consumer = make(group_id=group)
        wait_for(lambda: stands() == 4)
