"""A coordinator that is still loading, members that clean up, commits in their order, and closes that end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from committed import group, reached
from polling import take, until

import holdfast
from holdfast.broker.exchange import Exchange
from holdfast.group.messages import CommitRequest
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.groups_served import request_of
from patience import PATIENCE_S, wait_for

CLIENT = "cleans-up"
"""The broker is everybody's: requests of this client alone are looked at."""

QUICK_S, CLOSE_TIMEOUT_S = 60.0, 100.0
"""A close that waits for what never comes would take CLOSE_TIMEOUT_S, in place of the ten seconds of the product. Far
above what a busy machine adds to the milliseconds that it should take."""

GROUP_APIS = [
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.OFFSET_FETCH,
    Api.OFFSET_COMMIT,
    Api.LEAVE_GROUP,
]


def ours(asked: Exchange) -> bool:
    return asked.frame.client_id == CLIENT


def make(broker: Broker, name: str, **settings: Any) -> holdfast.Consumer:
    given = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "client.id": CLIENT,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
    }
    return holdfast.Consumer({**given, **settings})


def committed_values(broker: Broker, partition: int) -> list[int]:
    """A list that fills with the offsets of this partition as commits reach the broker."""
    seen: list[int] = []

    def note(asked: Exchange) -> bool:
        if ours(asked):
            request = request_of(asked.frame)
            assert isinstance(request, CommitRequest)
            seen.extend(entry.offset for at, entry in request.offsets.items() if at.partition == partition)
        return False  # it is only looked at, and the next fault has its turn

    broker.faults.call(Api.OFFSET_COMMIT, lambda _asked: None, when=note)
    return seen


@pytest.mark.parametrize("way", ["close", "revoke"])
def test_a_member_heartbeats_until_its_listener_has_cleaned_up(broker: Broker, topic: str, way: str) -> None:
    """edge B56 sarama 2110, 2058: heartbeats ended before the application had cleaned up. One that took longer than the
    session cost it the membership, and with it the last commit."""
    name = group()
    beats = broker.faults.call(Api.HEARTBEAT, lambda _asked: None, when=ours)
    heard: list[bool] = []

    def clean_up(*_: Any) -> None:
        (member_id,) = (each.member_id for each in broker.group(name).members if each.client_id == CLIENT)
        before = beats.hits
        wait_for(lambda: beats.hits >= before + 3, "a third heartbeat while the listener cleans up")
        heard.append(member_id in {each.member_id for each in broker.group(name).members})

    consumer = make(broker, name)
    consumer.subscribe([topic], on_revoke=clean_up)
    take(consumer, 15)
    other = make(broker, name, **{"client.id": "other"}) if way == "revoke" else None
    if other is not None:
        other.subscribe([topic])
        until(consumer, lambda: bool(heard))
        other.close()
    consumer.close()
    assert heard and all(heard)
    assert reached(broker, name, topic) == {0: 5, 1: 5, 2: 5}


@pytest.mark.parametrize("api", GROUP_APIS, ids=lambda api: api.name)
def test_a_coordinator_that_is_loading_is_asked_again(broker: Broker, topic: str, api: Api) -> None:
    """edge B56 sarama 3491: a coordinator that had just been elected answered COORDINATOR_LOAD_IN_PROGRESS, and it was
    taken for final: the consumer ended, or what it had done was not committed."""
    name = group()
    told: list[str] = []
    loading = broker.faults.error(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2, when=ours)
    consumer = make(broker, name, error_cb=lambda error: told.append(str(error)))
    consumer.subscribe([topic], on_lost=lambda *_: told.append("lost"))
    take(consumer, 15)  # none of them is an error
    if api is Api.HEARTBEAT:
        until(consumer, lambda: loading.hits == 2)
    consumer.close()
    assert loading.hits == 2
    assert told == []
    assert broker.group(name).members == ()
    assert reached(broker, name, topic) == {0: 5, 1: 5, 2: 5}


@pytest.mark.parametrize("first", [1, 2, 3], ids=lambda number: f"fails {number} times")
@pytest.mark.parametrize("how", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "REQUEST_TIMED_OUT", "cut"])
def test_asynchronous_commits_reach_the_broker_in_the_order_of_their_calls(
    broker: Broker, topic: str, how: str, first: int
) -> None:
    """edge B56 sarama 2947: an earlier commit was sent again after a later one, and set the group back."""
    name = group()
    told: list[Any] = []
    seen = committed_values(broker, 0)
    if how == "cut":
        failing = broker.faults.disconnect(Api.OFFSET_COMMIT, times=first, when=ours)
    else:
        failing = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode[how], times=first, when=ours)
    settings = {"enable.auto.commit": False, "on_commit": lambda error, _partitions: told.append(error)}
    consumer = make(broker, name, **settings)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1), ck.TopicPartition(topic, 1, 1)])
    for offset in (2, 3):
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, offset)])
    until(consumer, lambda: failing.hits == first)
    for offset in (4, 5):
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, offset)])
    until(consumer, lambda: len(told) == 5)
    assert seen == sorted(seen), "an earlier one came after a later one"
    assert reached(broker, name, topic) == {0: 5, 1: 1}
    consumer.close()


def parked(broker: Broker) -> Any:
    """The round never has all its members: no join is answered any more."""
    return broker.faults.drop(Api.JOIN_GROUP, when=ours)


def cut(broker: Broker) -> Any:
    """Another member joins in the middle of every round."""
    return broker.faults.error(Api.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS, when=ours)


@pytest.mark.parametrize("never_ends", [parked, cut], ids=["parked", "cut"])
def test_a_close_ends_in_a_rebalance_that_never_ends(
    broker: Broker, topic: str, never_ends: Callable[[Broker], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """edge B56 sarama 2427: a close waited for the rebalance, which waited for something else."""
    monkeypatch.setattr("holdfast.client.core.CLOSE_TIMEOUT_S", CLOSE_TIMEOUT_S)
    name = group()
    consumer = make(broker, name, **{"auto.commit.interval.ms": 600_000})
    heard: list[str] = []
    consumer.subscribe([topic], on_revoke=lambda *_: heard.append("revoked"), on_lost=lambda *_: heard.append("lost"))
    take(consumer, 15)
    endless = never_ends(broker)
    other = make(broker, name, **{"client.id": "other"})
    other.subscribe([topic])
    until(consumer, lambda: endless.hits > 0)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < QUICK_S < PATIENCE_S
    assert heard == ["revoked"], "it gave its partitions up while it still was a member"
    # Between the two halves of a round a coordinator takes no commit: there nothing can be done about it.
    assert reached(broker, name, topic) == ({0: 5, 1: 5, 2: 5} if never_ends is parked else {})
    assert CLIENT not in {each.client_id for each in broker.group(name).members}
    other.close()
