"""Reading a group, its offsets and the ends of its partitions into one value.

Rules. What can't be read of one partition is noted with that partition, and everything else is read all the same: a
describe during an outage is when it is needed most. A leader that has just moved is looked up again a few times; a
partition without a leader is not waited for. Brokers are asked in parallel. Offsets of open transactions are not waited
for either: the last stable one is shown, as Kafka's own tool does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.admin import EARLIEST, LATEST, list_offsets_body
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.errors import RETRIABLE, BrokerError, NetError
from holdfast.net.metadata import ClusterInfo
from holdfast.observe.snapshot import DescribedGroup, GroupSnapshot, PartitionOffsets
from holdfast.wire.api import Api
from holdfast.wire.codec import error_code

TRIES = 4
"""How often a partition whose leader has just moved is tried."""

PARALLEL = 8
"""Groups that are read at the same time."""


@dataclass(frozen=True, slots=True)
class Place:
    """An offset in a partition, or why there is none."""

    offset: int | None = None
    problem: str = ""
    passing: bool = False
    """Whether asking again may help."""


async def read_group(cluster: Cluster, group: str, *, starts: bool = False) -> GroupSnapshot:
    """The group as it is now. Raises BrokerError GROUP_ID_NOT_FOUND for one that does not exist."""
    described = await GroupAdmin(cluster).describe_group(group)
    offsets, problems = await committed_offsets(cluster, group)
    return await completed(cluster, described, offsets, problems=problems, starts=starts)


async def read_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupSnapshot | NetError]:
    """Several groups at once. A group that can't be read is listed with its error."""
    room = asyncio.Semaphore(PARALLEL)

    async def one(group: str) -> GroupSnapshot | NetError:
        async with room:
            try:
                return await read_group(cluster, group)
            except NetError as error:
                return error

    names = sorted(set(groups))
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def completed(
    cluster: Cluster,
    described: DescribedGroup,
    offsets: Mapping[TopicPartition, PartitionOffsets],
    *,
    problems: tuple[str, ...] = (),
    starts: bool = False,
) -> GroupSnapshot:
    """A described group with the ends of its partitions, and their starts if wanted."""
    held = {at for member in described.members for at in member.assigned}
    wanted = sorted(held | offsets.keys())
    ends = await places(cluster, dict.fromkeys(wanted, LATEST))
    begins = await places(cluster, dict.fromkeys(wanted, EARLIEST)) if starts else {}
    found = {}
    for at in wanted:
        known, end, begin = offsets.get(at, PartitionOffsets()), ends[at], begins.get(at, Place())
        problem = known.problem or end.problem or begin.problem
        found[at] = replace(known, end=end.offset, start=begin.offset, problem=problem)
    nodes = {(broker.host, broker.port): node for node, broker in cluster.info.brokers.items()}
    return GroupSnapshot(
        described=described,
        offsets=found,
        racks=_racks(cluster.info, wanted),
        coordinator_id=nodes.get(described.coordinator),
        problems=problems,
    )


def _racks(info: ClusterInfo, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, frozenset[str]]:
    racks = {node: broker.rack for node, broker in info.brokers.items() if broker.rack is not None}
    if not racks:
        return {}
    found = {}
    for at in partitions:
        topic = info.topics.get(at.topic)
        one = None if topic is None else topic.partitions.get(at.partition)
        if one is not None:
            found[at] = frozenset(racks[node] for node in one.replicas if node in racks)
    return found


async def committed_offsets(
    cluster: Cluster, group: str
) -> tuple[dict[TopicPartition, PartitionOffsets], tuple[str, ...]]:
    """Every offset of the group, and problems that concern all of them (a missing permission, say)."""

    def body(version: int) -> dict[str, Any]:
        if version < 8:
            return {"group_id": group, "topics": None, "require_stable": False}
        return {"groups": [{"group_id": group, "topics": None}], "require_stable": False}

    async def ask() -> Any:
        answer = await GroupAdmin(cluster).ask_coordinator(group, Api.OFFSET_FETCH, body)
        if hasattr(answer, "groups"):
            answer = next((one for one in answer.groups if one.group_id == group), None)
        error = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else error_code(getattr(answer, "error_code", 0))
        if error is not ErrorCode.NONE:
            if error in RETRIABLE:
                cluster.forget_coordinator(group)
            raise BrokerError(error, f"The offsets of group {group} can't be read.")
        return answer

    try:
        answer = await cluster.retried(f"the coordinator of group {group}", ask)
    except BrokerError as refused:
        return {}, (f"{refused.code}: {refused.what}",)
    return dict(sorted(_committed(answer))), ()


def _committed(answer: Any) -> Iterable[tuple[TopicPartition, PartitionOffsets]]:
    for topic in answer.topics:
        for one in topic.partitions:
            error = error_code(one.error_code)
            if error is not ErrorCode.NONE:
                yield TopicPartition(topic.name, one.partition_index), PartitionOffsets(problem=error.name)
            elif one.committed_offset >= 0:
                yield (
                    TopicPartition(topic.name, one.partition_index),
                    PartitionOffsets(
                        committed=one.committed_offset,
                        leader_epoch=getattr(one, "committed_leader_epoch", -1),
                        metadata=one.metadata or "",
                    ),
                )


async def places(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Place]:
    """For each partition the offset at a timestamp (ms), EARLIEST or LATEST. An offset of None without a problem: no
    record is that late."""
    found: dict[TopicPartition, Place] = {}
    wait_s = cluster.config.backoff_s
    for turn in range(TRIES):
        open_ = sorted(at for at in wanted if at not in found or found[at].passing)
        if not open_:
            break
        if turn:
            await asyncio.sleep(wait_s)
            wait_s *= 2
            cluster.forget_leaders({at.topic for at in open_})
        found.update(await _asked_once(cluster, wanted, open_))
        if turn and all(found[at].problem == ErrorCode.LEADER_NOT_AVAILABLE.name for at in open_):
            break  # they have no leader, and we have asked twice
    return {at: found[at] for at in sorted(wanted)}


def _refused(error: ErrorCode) -> Place:
    # Offsets outlive their topics: don't wait for a deleted topic.
    passing = error in RETRIABLE and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Place(problem=error.name, passing=passing)


async def _asked_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], asked: list[TopicPartition]
) -> dict[TopicPartition, Place]:
    topics = {at.topic for at in asked}
    if any(topic not in cluster.info.topics for topic in topics):
        await cluster.refresh(topics)
    found: dict[TopicPartition, Place] = {}
    leaders: dict[int, list[TopicPartition]] = {}
    for at in asked:
        topic = cluster.info.topics.get(at.topic)
        leader = cluster.info.leader_of(at)
        if topic is None or (topic.error is ErrorCode.NONE and at.partition not in topic.partitions):
            found[at] = _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.error is not ErrorCode.NONE:
            found[at] = _refused(topic.error)
        elif leader is None:
            found[at] = _refused(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            leaders.setdefault(leader.node_id, []).append(at)
    for answer in await asyncio.gather(*(_of_leader(cluster, node, wanted, some) for node, some in leaders.items())):
        found.update(answer)
    return found


async def _of_leader(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, int], asked: list[TopicPartition]
) -> dict[TopicPartition, Place]:
    body = list_offsets_body(wanted, asked, read_committed=False)
    timeout_s = min(cluster.config.request_timeout_s, cluster.config.lookup_timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await cluster.request(Api.LIST_OFFSETS, body, node_id=node, timeout_s=timeout_s)
    except TimeoutError:
        return dict.fromkeys(asked, Place(problem="REQUEST_TIMED_OUT"))
    except NetError as error:
        return dict.fromkeys(asked, Place(problem=error.code, passing=error.retriable))
    found = dict.fromkeys(asked, Place(problem=ErrorCode.UNKNOWN_SERVER_ERROR.name))
    for topic in answer.topics:
        for one in topic.partitions:
            verdict = error_code(one.error_code)
            place = _refused(verdict)
            if verdict is ErrorCode.NONE:
                place = Place(offset=one.offset if one.offset >= 0 else None)
            found[TopicPartition(topic.name, one.partition_index)] = place
    return found
