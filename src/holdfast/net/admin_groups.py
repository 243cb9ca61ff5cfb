"""What an operator asks about groups: which exist, who is in them and who holds what; and deleting them.

Groups of both protocols are described by the same values: classic ones (KIP-429 and before), whose members' bytes are
decoded here, and those of the new protocol (KIP-848), which the broker describes itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.model import ErrorCode, HoldfastError, TopicPartition, by_topic
from holdfast.model.consumer_protocol import decode_assignment, decode_subscription
from holdfast.net.admin import COORDINATOR_ERRORS, raise_refusal, refusal
from holdfast.net.cluster import Address, Cluster
from holdfast.net.errors import BrokerError, NetError
from holdfast.observe.snapshot import DEAD, OTHER_KINDS, DescribedGroup, DescribedMember, ListedGroup
from holdfast.wire.api import Api
from holdfast.wire.codec import error_code


class GroupAdmin:
    """Calls on a cluster, which the caller opens and closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_groups(self, *, states: Sequence[str] = ()) -> tuple[ListedGroup, ...]:
        """Every group of every broker."""
        info = await self._cluster.refresh()
        answers = await asyncio.gather(*(self._listed_by(node, states) for node in info.brokers))
        found = {group.group: group for answer in answers for group in answer}
        return tuple(found[name] for name in sorted(found))

    async def _listed_by(self, node: int, states: Sequence[str]) -> list[ListedGroup]:
        async def ask() -> list[ListedGroup]:
            body = {"states_filter": list(states)}
            answer = await self._cluster.request(Api.LIST_GROUPS, body, node_id=node)
            raise_refusal(answer.error_code, f"Broker {node} does not list its groups.")
            return [
                ListedGroup(
                    group=one.group_id,
                    protocol_type=one.protocol_type,
                    state=getattr(one, "group_state", ""),
                    kind=getattr(one, "group_type", ""),
                )
                for one in answer.groups
            ]

        return await self._cluster.retried(f"the groups of broker {node}", ask)

    async def describe_group(self, group: str) -> DescribedGroup:
        """Who is in the group and holds what. Raises BrokerError GROUP_ID_NOT_FOUND for one that does not exist."""

        async def ask() -> DescribedGroup:
            address = await self._cluster.coordinator(group)
            classic = await self._described(group, Api.DESCRIBE_GROUPS, {"groups": [group]})
            if classic is not None:
                return _classic(classic, address)
            newer = await self._described(group, Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]})
            if newer is not None:
                return _newer(newer, address)
            other = await self._other_kind(group)
            if other is not None:
                raise NetError(
                    "GROUP_KIND_UNSUPPORTED",
                    f"The group {group} is a {other} group: nobody in it owns partitions as consumers do.",
                    f"Kafka's own tool for it is kafka-{other}-groups.sh.",
                    retriable=False,
                )
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"The group {group} does not exist.")

        return await self._cluster.retried(f"the coordinator of group {group}", ask)

    async def _other_kind(self, group: str) -> str | None:
        """Share and streams groups: a broker describes them by requests of their own, and as unknown by ours."""
        body = {"states_filter": [], "types_filter": list(OTHER_KINDS)}
        answer = await self.ask_coordinator(group, Api.LIST_GROUPS, body)
        kinds = {one.group_id: getattr(one, "group_type", "").lower() for one in answer.groups}
        return kinds[group] if kinds.get(group) in OTHER_KINDS else None

    async def _described(self, group: str, api: Api, body: Any) -> Any:
        """The broker's description, None where there is no group of this kind."""
        try:
            answer = await self.ask_coordinator(group, api, body)
        except NetError as refused:
            if refused.code == "UNSUPPORTED_BY_BROKER":
                return None
            raise
        for described in answer.groups:
            error = error_code(described.error_code)
            if error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                return None
            self._forget_on(group, error)
            raise_refusal(described.error_code, f"The group {group} can't be described.")
            return None if described.group_state == DEAD else described
        return None

    async def delete_groups(self, groups: Iterable[str]) -> dict[str, BrokerError | None]:
        """Delete empty groups, with their offsets."""
        return {group: await self._deleted(group) for group in sorted(set(groups))}

    async def _deleted(self, group: str) -> BrokerError | None:
        async def ask() -> BrokerError | None:
            answer = await self.ask_coordinator(group, Api.DELETE_GROUPS, {"groups_names": [group]})
            error = error_code(answer.results[0].error_code)
            self._forget_on(group, error)
            refused = refusal(error, f"The group {group} was not deleted.")
            if error in COORDINATOR_ERRORS and refused is not None:
                raise refused
            return refused

        return await self._cluster.retried(f"the coordinator of group {group}", ask)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Forget these offsets of a group that is not subscribed to their topics."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": number} for number in numbers]}
            for topic, numbers in by_topic(partitions).items()
        ]

        async def ask() -> dict[TopicPartition, BrokerError | None]:
            answer = await self.ask_coordinator(group, Api.OFFSET_DELETE, {"group_id": group, "topics": topics})
            self._forget_on(group, error_code(answer.error_code))
            raise_refusal(answer.error_code, f"Offsets of group {group} were not deleted.")
            return {
                at: refusal(one.error_code, f"The offset of {at} was not deleted.")
                for topic in answer.topics
                for one in topic.partitions
                for at in (TopicPartition(topic.name, one.partition_index),)
            }

        return await self._cluster.retried(f"the coordinator of group {group}", ask)

    async def ask_coordinator(self, group: str, api: Api, body: Any) -> Any:
        """The coordinator's answer, whatever error it holds. If it does not answer, it is looked up again next time."""
        address = await self._cluster.coordinator(group)
        try:
            connection = await self._cluster.connection(address)
            return await connection.request(api, body, timeout_s=self._cluster.config.request_timeout_s)
        except NetError as error:
            if error.retriable:
                self._cluster.forget_coordinator(group)  # it may have moved to another broker
            raise

    def _forget_on(self, group: str, error: ErrorCode) -> None:
        if error in COORDINATOR_ERRORS:
            self._cluster.forget_coordinator(group)


def _classic(described: Any, coordinator: Address) -> DescribedGroup:
    consumer = described.protocol_type == "consumer"
    members = (_classic_member(member, consumer=consumer) for member in described.members)
    return DescribedGroup(
        group=described.group_id,
        state=described.group_state,
        protocol_type=described.protocol_type,
        protocol=described.protocol_data,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _classic_member(member: Any, *, consumer: bool) -> DescribedMember:
    instance_id = getattr(member, "group_instance_id", None)
    subscription, assigned = None, frozenset[TopicPartition]()
    if consumer:
        try:
            subscription = decode_subscription(member.member_metadata, instance_id) if member.member_metadata else None
            assigned = decode_assignment(member.member_assignment).partitions
        except HoldfastError:  # not the consumer protocol: show the bytes undecoded
            subscription = None
    return DescribedMember(
        member_id=member.member_id,
        instance_id=instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=None if subscription is None else subscription.rack,
        assigned=assigned,
        topics=() if subscription is None else tuple(sorted(subscription.topics)),
        subscription=subscription,
        assignment_bytes=member.member_assignment,
    )


def _newer(described: Any, coordinator: Address) -> DescribedGroup:
    members = (
        DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            rack=member.rack_id,
            topics=tuple(sorted(member.subscribed_topic_names)),
            assigned=_held(member.assignment),
            target=_held(member.target_assignment),
            epoch=member.member_epoch,
        )
        for member in described.members
    )
    return DescribedGroup(
        group=described.group_id,
        state=described.group_state,
        protocol_type="consumer",
        protocol=described.assignor_name,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
        kind="consumer",
        epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
    )


def _held(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(held.topic_name, number) for held in assignment.topic_partitions for number in held.partitions
    )
