"""The group's own values as Kafka's messages and back, in every version: the client's side.

    body_of(request, version) -> message        answer_of(request, version, body) -> answer

The broker's side is in `groups_served`.

This module must not decide anything about a group. Rules of the wire do live here: a field that a version lacks takes
its default, a reason is cut to what Kafka accepts, a commit from outside a group names no instance (KAFKA-14201).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.group import messages as m
from holdfast.model import ErrorCode, HoldfastError, JoinedMember, Membership, TopicPartition, by_topic
from holdfast.wire.api import Api
from holdfast.wire.codec import error_code

Body = dict[str, Any]


def api_of(request: m.Request) -> Api:
    """The API that carries this request."""
    return _APIS[type(request)]


def least_version(request: m.Request) -> int:
    """The oldest version that can carry everything that matters in this request."""
    if isinstance(request, m.LeaveRequest) and (
        len(request.members) != 1 or not request.members[0].member_id or request.members[0].instance_id
    ):
        return 3  # batches and static members (KIP-345)
    if isinstance(request, m.FetchOffsetsRequest) and request.partitions is None:
        return 2
    return api_of(request).lowest


# -- requests out


def body_of(request: m.Request, version: int) -> Body:
    """A request as a message of this version."""
    if version < least_version(request):
        raise HoldfastError(
            "BROKER_TOO_OLD",
            f"Version {version} of {api_of(request).schema} can't carry this request; {least_version(request)} can.",
            "Use a newer broker, or leave out static members, batches and requests for all partitions.",
        )
    return _BODIES[type(request)](request, version)


def _join_body(request: m.JoinRequest, version: int) -> Body:
    return {
        "group_id": request.group,
        "session_timeout_ms": request.session_timeout_ms,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "member_id": request.membership.member_id,
        "group_instance_id": request.instance_id,
        "protocol_type": request.protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in request.protocols],
        "reason": None if request.reason is None else m.cut_reason(request.reason),
    }


def _sync_body(request: m.SyncRequest, version: int) -> Body:
    return {
        "group_id": request.group,
        "generation_id": request.membership.generation,
        "member_id": request.membership.member_id,
        "group_instance_id": request.instance_id,
        "protocol_type": request.protocol_type,
        "protocol_name": request.protocol,
        "assignments": [
            {"member_id": member, "assignment": content} for member, content in sorted(request.assignments.items())
        ],
    }


def _heartbeat_body(request: m.HeartbeatRequest, version: int) -> Body:
    return {
        "group_id": request.group,
        "generation_id": request.membership.generation,
        "member_id": request.membership.member_id,
        "group_instance_id": request.instance_id,
    }


def _leave_body(request: m.LeaveRequest, version: int) -> Body:
    if version < 3:
        return {"group_id": request.group, "member_id": request.members[0].member_id}
    return {
        "group_id": request.group,
        "members": [
            {
                "member_id": leaver.member_id,
                "group_instance_id": leaver.instance_id,
                "reason": None if leaver.reason is None else m.cut_reason(leaver.reason),
            }
            for leaver in request.members
        ],
    }


def _commit_body(request: m.CommitRequest, version: int) -> Body:
    return {
        "group_id": request.group,
        "generation_id_or_member_epoch": request.membership.generation,
        "member_id": request.membership.member_id,
        "group_instance_id": request.instance_id if request.membership.known else None,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": entry.offset,
                        "committed_leader_epoch": entry.leader_epoch,
                        "committed_metadata": entry.metadata,
                    }
                    for partition in partitions
                    for entry in (request.offsets[TopicPartition(topic, partition)],)
                ],
            }
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _offset_fetch_body(request: m.FetchOffsetsRequest, version: int) -> Body:
    topics = None
    if request.partitions is not None:
        grouped = by_topic(request.partitions)
        topics = [{"name": topic, "partition_indexes": partitions} for topic, partitions in grouped.items()]
    # Offsets of a transaction in flight are not given out: the answer says to ask again (KIP-447).
    if version < 8:
        return {"group_id": request.group, "topics": topics, "require_stable": True}
    return {"groups": [{"group_id": request.group, "topics": topics}], "require_stable": True}


# -- answers in


def answer_of(request: m.Request, version: int, body: Any) -> m.Answer:
    """The answer to this request that a message of this version holds."""
    return _ANSWERS[type(request)](request, version, body)


def _join_answer(request: m.JoinRequest, version: int, body: Any) -> m.JoinAnswer:
    return m.JoinAnswer(
        error=error_code(body.error_code),
        membership=Membership(body.member_id, body.generation_id),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=body.protocol_name or None,
        leader=body.leader,
        skip_assignment=getattr(body, "skip_assignment", False),
        members=tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=getattr(member, "group_instance_id", None),
                metadata=member.metadata,
            )
            for member in body.members
        ),
    )


def _sync_answer(request: m.SyncRequest, version: int, body: Any) -> m.SyncAnswer:
    return m.SyncAnswer(
        error=error_code(body.error_code),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignment=body.assignment,
    )


def _heartbeat_answer(request: m.HeartbeatRequest, version: int, body: Any) -> m.HeartbeatAnswer:
    return m.HeartbeatAnswer(error=error_code(body.error_code))


def _leave_answer(request: m.LeaveRequest, version: int, body: Any) -> m.LeaveAnswer:
    error = error_code(body.error_code)
    if version < 3:
        return m.LeaveAnswer(error=error, members=((request.members[0], error),))
    return m.LeaveAnswer(
        error=error,
        members=tuple(
            (
                m.Leaver(member_id=member.member_id, instance_id=member.group_instance_id),
                error_code(member.error_code),
            )
            for member in body.members
        ),
    )


def _commit_answer(request: m.CommitRequest, version: int, body: Any) -> m.CommitAnswer:
    return m.CommitAnswer(
        errors={
            TopicPartition(topic.name, verdict.partition_index): error_code(verdict.error_code)
            for topic in body.topics
            for verdict in topic.partitions
        }
    )


def _offset_fetch_answer(request: m.FetchOffsetsRequest, version: int, body: Any) -> m.FetchOffsetsAnswer:
    if version >= 8:
        body = next((group for group in body.groups if group.group_id == request.group), None)
        if body is None:
            return m.FetchOffsetsAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    error = error_code(getattr(body, "error_code", 0))
    offsets: dict[TopicPartition, m.OffsetEntry] = {}
    for topic in body.topics:
        for found in topic.partitions:
            verdict = error_code(found.error_code)
            if verdict is ErrorCode.NONE:
                if found.committed_offset >= 0:
                    epoch = getattr(found, "committed_leader_epoch", -1)
                    entry = m.OffsetEntry(found.committed_offset, epoch, found.metadata or "")
                    offsets[TopicPartition(topic.name, found.partition_index)] = entry
            elif verdict is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and error is ErrorCode.NONE:
                error = verdict  # a deleted topic has no offset; any other error fails the whole answer
    return m.FetchOffsetsAnswer(error=error, offsets={} if error is not ErrorCode.NONE else offsets)


_APIS: dict[type, Api] = {
    m.JoinRequest: Api.JOIN_GROUP,
    m.SyncRequest: Api.SYNC_GROUP,
    m.HeartbeatRequest: Api.HEARTBEAT,
    m.LeaveRequest: Api.LEAVE_GROUP,
    m.CommitRequest: Api.OFFSET_COMMIT,
    m.FetchOffsetsRequest: Api.OFFSET_FETCH,
}
_BODIES: dict[type, Callable[[Any, int], Body]] = {
    m.JoinRequest: _join_body,
    m.SyncRequest: _sync_body,
    m.HeartbeatRequest: _heartbeat_body,
    m.LeaveRequest: _leave_body,
    m.CommitRequest: _commit_body,
    m.FetchOffsetsRequest: _offset_fetch_body,
}
_ANSWERS: dict[type, Callable[[Any, int, Any], m.Answer]] = {
    m.JoinRequest: _join_answer,
    m.SyncRequest: _sync_answer,
    m.HeartbeatRequest: _heartbeat_answer,
    m.LeaveRequest: _leave_answer,
    m.CommitRequest: _commit_answer,
    m.FetchOffsetsRequest: _offset_fetch_answer,
}
