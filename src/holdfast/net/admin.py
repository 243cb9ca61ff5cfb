"""What an operator asks of a cluster: topics, groups, offsets, settings.

Rules. Calls on several things return a result for each: name -> None, or what went wrong. Requests go to the broker
that is responsible (leader, coordinator, controller). Retriable errors are retried within `lookup_timeout_s`.
Everything comes back sorted.

What these answers look like on a terminal is the command line's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.group import messages as m
from holdfast.model import ErrorCode, TopicPartition, by_topic
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import MAIN, Cluster
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.metadata import TopicInfo
from holdfast.wire.api import Api
from holdfast.wire.codec import error_code

EARLIEST = -2
LATEST = -1
"""Special timestamps of ListOffsets."""

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
_SET, _DELETE = 0, 1

Verdicts = dict[str, BrokerError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partitions: int = -1
    """-1: the broker's default."""
    replication_factor: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    value: str | None
    is_default: bool
    is_sensitive: bool
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAt:
    """An offset in a partition: its beginning, its end, or the first record of a time."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class Admin:
    """Calls on a cluster, which the caller opens and closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- topics

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Every topic, or these. A topic that does not exist is listed with its error."""
        return dict((await self._cluster.refresh(names)).topics)

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_s: float = 30.0) -> Verdicts:
        body = {
            "topics": [
                {
                    "name": topic.name,
                    "num_partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                    "configs": [{"name": name, "value": value} for name, value in sorted(topic.settings.items())],
                }
                for topic in topics
            ],
            "timeout_ms": int(timeout_s * 1000),
        }
        answer = await self._at_controller(Api.CREATE_TOPICS, body, lambda found: found.topics)
        return _verdicts(answer.topics, "name", "The topic {} was not created.")

    async def delete_topics(self, names: Sequence[str], *, timeout_s: float = 30.0) -> Verdicts:
        def body(version: int) -> dict[str, Any]:
            named: dict[str, Any] = {"topic_names": list(names)}
            if version >= 6:
                named = {"topics": [{"name": name} for name in names]}
            return named | {"timeout_ms": int(timeout_s * 1000)}

        answer = await self._at_controller(Api.DELETE_TOPICS, body, lambda found: found.responses)
        self._cluster.forget_leaders(names)
        return _verdicts(answer.responses, "name", "The topic {} was not deleted.")

    async def create_partitions(self, counts: Mapping[str, int], *, timeout_s: float = 30.0) -> Verdicts:
        """Grow topics to these total numbers of partitions."""
        body = {
            "topics": [{"name": name, "count": count, "assignments": None} for name, count in sorted(counts.items())],
            "timeout_ms": int(timeout_s * 1000),
        }
        answer = await self._at_controller(Api.CREATE_PARTITIONS, body, lambda found: found.results)
        self._cluster.forget_leaders(counts)
        return _verdicts(answer.results, "name", "The topic {} was not grown.")

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, BrokerError | None]:
        """Drop what is older than these offsets (-1: everything)."""
        answers: dict[TopicPartition, BrokerError | None] = {}
        for node, partitions in (await self._by_leader(before)).items():
            body = {
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": number, "offset": before[TopicPartition(topic, number)]}
                            for number in numbers
                        ],
                    }
                    for topic, numbers in by_topic(partitions).items()
                ],
                "timeout_ms": int(self._cluster.config.request_timeout_s * 1000),
            }
            answer = await self._cluster.request(Api.DELETE_RECORDS, body, node_id=node)
            for topic in answer.topics:
                for one in topic.partitions:
                    at = TopicPartition(topic.name, one.partition_index)
                    answers[at] = refusal(one.error_code, f"Records of {at} were not deleted.")
        return dict(sorted(answers.items()))

    # -- settings

    async def describe_settings(self, resource: str, *, kind: int = TOPIC_RESOURCE) -> dict[str, Setting]:
        """A topic's settings, or a broker's (named by its id)."""
        body = {"resources": [{"resource_type": kind, "resource_name": resource, "configuration_keys": None}]}
        node = int(resource) if kind == BROKER_RESOURCE else None
        answer = await self._cluster.request(Api.DESCRIBE_CONFIGS, body, node_id=node)
        for result in answer.results:
            raise_refusal(result.error_code, f"The settings of {resource} can't be read.", result.error_message)
        return {
            one.name: Setting(
                name=one.name,
                value=None if one.is_sensitive else one.value,
                is_default=one.config_source in (4, 5),  # static broker settings and Kafka's own defaults
                is_sensitive=one.is_sensitive,
                read_only=one.read_only,
            )
            for result in answer.results
            for one in sorted(result.configs, key=lambda one: one.name)
        }

    async def alter_settings(
        self, resource: str, changes: Mapping[str, str | None], *, kind: int = TOPIC_RESOURCE
    ) -> None:
        """Set these; None goes back to the default."""
        configs = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in sorted(changes.items())
        ]
        body = {"resources": [{"resource_type": kind, "resource_name": resource, "configs": configs}]}
        answer = await self._cluster.request(Api.INCREMENTAL_ALTER_CONFIGS, body)
        for result in answer.responses:
            raise_refusal(result.error_code, f"The settings of {resource} were not changed.", result.error_message)

    # -- offsets

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, m.OffsetEntry]:
        """A group's offsets, of these partitions or of all."""
        request = m.FetchOffsetsRequest(group=group, partitions=None if partitions is None else tuple(partitions))
        answer = await self._at_coordinator(group, request)
        assert isinstance(answer, m.FetchOffsetsAnswer)
        return dict(sorted(answer.offsets.items()))

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, m.OffsetEntry]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Set offsets from outside; a group with members refuses."""
        answer = await self._at_coordinator(group, m.CommitRequest(group=group, offsets=offsets))
        assert isinstance(answer, m.CommitAnswer)
        return {
            at: refusal(code, f"The offset of {at} was not committed.") for at, code in sorted(answer.errors.items())
        }

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """For each partition the offset at a timestamp (ms), EARLIEST or LATEST; -1 where no record is that late."""
        found: dict[TopicPartition, OffsetAt] = {}

        async def ask() -> None:
            missing = [at for at in wanted if at not in found]
            for node, partitions in (await self._by_leader(missing)).items():
                asked = {at: wanted[at] for at in partitions}
                answers = await offsets_at_leader(self._cluster, node, asked, read_committed=read_committed)
                for at, one in answers.items():
                    if isinstance(one, BrokerError):
                        self._cluster.forget_leaders([at.topic])
                        raise one
                    found[at] = one

        await self._cluster.retried("the offsets", ask)
        return dict(sorted(found.items()))

    # -- which broker to ask

    async def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        asked = sorted(partitions)
        unknown = {at.topic for at in asked if self._cluster.info.leader_of(at) is None}
        if unknown:
            await self._cluster.refresh(unknown)
        leaders: dict[int, list[TopicPartition]] = {}
        for at in asked:
            leaders.setdefault((await self._cluster.leader_of(at)).node_id, []).append(at)
        return dict(sorted(leaders.items()))

    async def _at_controller(self, api: Api, body: Any, results: Any) -> Any:
        async def ask() -> Any:
            info = await self._cluster.refresh()
            node = info.controller if info.controller in info.brokers else None
            answer = await self._cluster.request(api, body, node_id=node)
            for result in results(answer):
                if result.error_code == ErrorCode.NOT_CONTROLLER:
                    raise BrokerError(ErrorCode.NOT_CONTROLLER, f"Broker {node} is not the controller any more.")
            return answer

        return await self._cluster.retried("the controller", ask)

    async def _at_coordinator(self, group: str, request: m.Request) -> m.Answer:
        channel = GroupChannel(self._cluster, group, shared_slot=MAIN)

        async def ask() -> m.Answer:
            try:
                answer = await channel.send(request)
            except NetError:
                channel.forget()  # it may have moved to another broker
                raise
            error = answer.first_error if isinstance(answer, m.CommitAnswer) else answer.error
            if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                channel.forget()
            if isinstance(answer, m.CommitAnswer) and error not in COORDINATOR_ERRORS:
                return answer
            if error is not ErrorCode.NONE:
                raise BrokerError(error, f"The coordinator of group {group} refused.")
            return answer

        return await self._cluster.retried(f"the coordinator of group {group}", ask)


COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""The coordinator has moved or is not ready: look it up and ask again."""


async def offsets_at_leader(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, OffsetAt | BrokerError]:
    """What one broker answers for the partitions that it leads, asked once. Each has an error of its own."""
    body = list_offsets_body(wanted, sorted(wanted), read_committed=read_committed)
    answer = await cluster.request(Api.LIST_OFFSETS, body, node_id=node)
    found: dict[TopicPartition, OffsetAt | BrokerError] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            at = TopicPartition(topic.name, one.partition_index)
            refused = refusal(one.error_code, f"The offsets of {at} can't be read.")
            epoch = getattr(one, "leader_epoch", -1)
            found[at] = refused or OffsetAt(offset=one.offset, timestamp_ms=one.timestamp, leader_epoch=epoch)
    return found


def list_offsets_body(
    wanted: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "isolation_level": int(read_committed),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "timestamp": wanted[TopicPartition(topic, number)]}
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(partitions).items()
        ],
    }


def refusal(number: int, what: str, message: str | None = None) -> BrokerError | None:
    """The error that a broker answered with; None if it answered without one."""
    code = error_code(number)
    return None if code is ErrorCode.NONE else BrokerError(code, what, message=message)


def raise_refusal(number: int, what: str, message: str | None = None) -> None:
    error = refusal(number, what, message)
    if error is not None:
        raise error


def _verdicts(results: Iterable[Any], name: str, what: str) -> Verdicts:
    found = {
        getattr(result, name): refusal(
            result.error_code, what.format(getattr(result, name)), getattr(result, "error_message", None)
        )
        for result in results
    }
    return dict(sorted(found.items()))
