"""Reading a group for an operator: in an outage, most of all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.group import messages as m
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.admin import LATEST, Admin
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import NetError
from holdfast.net.group_snapshots import places, read_group, read_groups
from holdfast.testing import Broker
from holdfast.wire.api import Api

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=2)
        yield running


def asked(broker: Broker, work: Any) -> Any:
    config = replace(client_config({"bootstrap.servers": broker.bootstrap}), backoff_s=0.001, lookup_timeout_s=10.0)

    async def run() -> Any:
        async with Cluster(config) as cluster:
            return await work(cluster)

    return asyncio.run(run())


async def _committed(cluster: Cluster) -> None:
    offsets = {FIRST: m.OffsetEntry(0, -1, "note"), SECOND: m.OffsetEntry(0)}
    assert set((await Admin(cluster).commit("billing", offsets)).values()) == {None}


def _without_leader(body: Any) -> Any:
    """The metadata with nobody to lead partition 1."""
    topics = [
        {**topic, "partitions": [{**one, "leader_id": -1} if one["partition_index"] == 1 else one for one in parts]}
        for topic in body["topics"]
        for parts in (topic["partitions"],)
    ]
    return {**body, "topics": topics}


def test_a_partition_without_a_leader_costs_its_own_figure_and_no_waiting(broker: Broker) -> None:
    """The whole answer waited for the missing leader until its time was up, and then nothing was shown: list_offsets
    is for those who need every partition. Here what is there is shown."""

    async def work(cluster: Cluster) -> Any:
        await _committed(cluster)
        broker.faults.change(Api.METADATA, _without_leader)
        return await read_group(cluster, "billing")

    found = asked(broker, work)

    assert (found.offsets[FIRST].end, found.offsets[FIRST].problem) == (0, "")
    assert (found.offsets[SECOND].committed, found.offsets[SECOND].end) == (0, None)
    assert found.offsets[SECOND].problem == "LEADER_NOT_AVAILABLE"


def test_a_leader_that_has_just_moved_is_asked_for_again(broker: Broker) -> None:
    broker.faults.error(Api.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)

    found = asked(broker, lambda cluster: places(cluster, {FIRST: LATEST}))

    assert (found[FIRST].offset, found[FIRST].problem) == (0, "")


def test_a_broker_that_never_answers_for_a_partition_is_told_and_not_asked_for_ever(broker: Broker) -> None:
    broker.faults.error(Api.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    found = asked(broker, lambda cluster: places(cluster, {FIRST: LATEST}))

    assert found[FIRST].problem == "NOT_LEADER_OR_FOLLOWER"


def test_offsets_of_a_topic_that_is_gone_are_shown_without_waiting_for_it(broker: Broker) -> None:
    async def work(cluster: Cluster) -> Any:
        await _committed(cluster)
        gone = TopicPartition("gone", 0)
        return await places(cluster, {FIRST: LATEST, gone: LATEST}), gone

    found, gone = asked(broker, work)

    assert found[FIRST].offset == 0
    assert found[gone].problem == "UNKNOWN_TOPIC_OR_PARTITION"


def test_one_group_that_can_not_be_read_is_one_error(broker: Broker) -> None:
    async def work(cluster: Cluster) -> Any:
        await _committed(cluster)
        return await read_groups(cluster, ["billing", "nobody"])

    found = asked(broker, work)

    assert isinstance(found["nobody"], NetError) and found["nobody"].code == "GROUP_ID_NOT_FOUND"
    assert found["billing"].described.state == "Empty"
    assert found["billing"].offsets[FIRST].metadata == "note"


def test_offsets_that_may_not_be_read_leave_the_members_to_be_shown(broker: Broker) -> None:
    async def work(cluster: Cluster) -> Any:
        await _committed(cluster)
        broker.faults.error(Api.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await read_group(cluster, "billing")

    found = asked(broker, work)

    assert found.offsets == {} and found.described.state == "Empty"
    assert found.problems[0].startswith("GROUP_AUTHORIZATION_FAILED: ")


KAFKA_2_4 = {
    Api.LIST_OFFSETS: 5,
    Api.METADATA: 9,
    Api.OFFSET_COMMIT: 8,
    Api.OFFSET_FETCH: 6,
    Api.FIND_COORDINATOR: 3,
    Api.DESCRIBE_GROUPS: 5,
    Api.LIST_GROUPS: 3,
    Api.DELETE_GROUPS: 2,
    Api.OFFSET_DELETE: 0,
}
"""The highest versions that Kafka 2.4 offers, of what is asked here."""


def test_a_broker_as_old_as_kafka_2_4_is_read_and_written(broker: Broker) -> None:
    """No states in its list of groups, no epochs of the new protocol, no group in an offset fetch: all of it is asked
    for in the words that it knows."""

    def older(body: Any) -> Any:
        highest = {api.key: version for api, version in KAFKA_2_4.items()}
        keys = [
            {**one, "max_version": min(one["max_version"], highest.get(one["api_key"], one["max_version"]))}
            for one in body["api_keys"]
        ]
        return {**body, "api_keys": keys}

    broker.faults.change(Api.API_VERSIONS, older)

    async def work(cluster: Cluster) -> Any:
        await _committed(cluster)
        listed = await GroupAdmin(cluster).list_groups()
        found = await read_group(cluster, "billing", starts=True)
        version = (await cluster.any_broker()).version(Api.OFFSET_FETCH)
        gone = await GroupAdmin(cluster).delete_offsets("billing", [SECOND])
        return listed, found, version, gone, await GroupAdmin(cluster).delete_groups(["billing", "nobody"])

    listed, found, version, gone, deleted = asked(broker, work)

    assert version == 6
    assert [(one.group, one.state) for one in listed] == [("billing", "")]
    assert (found.described.state, found.offsets[FIRST].end, found.offsets[FIRST].start) == ("Empty", 0, 0)
    assert found.offsets[FIRST].metadata == "note"
    assert gone == {SECOND: None}
    assert deleted["billing"] is None and deleted["nobody"] is not None
