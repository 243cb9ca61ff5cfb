"""The group's own values as Kafka's messages and back, in every version: the broker's side.

    request_of(frame) -> request                body_of_answer(request, answer, version) -> message

OffsetFetch may ask for several groups at once (version 8 and later): `offset_fetches_of` gives one request per group
and `offset_fetch_body` takes their answers together. The client's side is in `groups`.

This module must not decide anything about a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.group import messages as m
from holdfast.model import ErrorCode, Membership, TopicPartition, by_topic
from holdfast.wire.api import Api
from holdfast.wire.codec import RequestFrame

Body = dict[str, Any]
V = TypeVar("V")

NO_OFFSET = -1


# -- requests in


def request_of(frame: RequestFrame, *, client_host: str = "") -> m.Request:
    """What a member asks for. OffsetFetch has `offset_fetches_of`."""
    return _REQUESTS[frame.api](frame, client_host)


def _join_request(frame: RequestFrame, client_host: str) -> m.JoinRequest:
    body = frame.body
    return m.JoinRequest(
        group=body.group_id,
        membership=Membership(body.member_id),
        instance_id=getattr(body, "group_instance_id", None),
        session_timeout_ms=body.session_timeout_ms,
        # version 0 has one timeout for both
        rebalance_timeout_ms=getattr(body, "rebalance_timeout_ms", body.session_timeout_ms),
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        reason=getattr(body, "reason", None),
        client_id=frame.client_id or "",
        client_host=client_host,
        requires_known_member_id=frame.version >= 4,
        supports_skipping_assignment=frame.version >= 9,
    )


def _sync_request(frame: RequestFrame, client_host: str) -> m.SyncRequest:
    body = frame.body
    return m.SyncRequest(
        group=body.group_id,
        membership=Membership(body.member_id, body.generation_id),
        instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments={entry.member_id: entry.assignment for entry in body.assignments},
    )


def _heartbeat_request(frame: RequestFrame, client_host: str) -> m.HeartbeatRequest:
    body = frame.body
    return m.HeartbeatRequest(
        group=body.group_id,
        membership=Membership(body.member_id, body.generation_id),
        instance_id=getattr(body, "group_instance_id", None),
    )


def _leave_request(frame: RequestFrame, client_host: str) -> m.LeaveRequest:
    body = frame.body
    if frame.version < 3:
        return m.LeaveRequest(group=body.group_id, members=(m.Leaver(member_id=body.member_id),))
    return m.LeaveRequest(
        group=body.group_id,
        members=tuple(
            m.Leaver(
                member_id=leaver.member_id,
                instance_id=leaver.group_instance_id,
                reason=getattr(leaver, "reason", None),
            )
            for leaver in body.members
        ),
    )


def _commit_request(frame: RequestFrame, client_host: str) -> m.CommitRequest:
    body = frame.body
    return m.CommitRequest(
        group=body.group_id,
        membership=Membership(body.member_id, body.generation_id_or_member_epoch),
        instance_id=getattr(body, "group_instance_id", None),
        offsets={
            TopicPartition(topic.name, asked.partition_index): m.OffsetEntry(
                asked.committed_offset, getattr(asked, "committed_leader_epoch", -1), asked.committed_metadata or ""
            )
            for topic in body.topics
            for asked in topic.partitions
        },
    )


def offset_fetches_of(frame: RequestFrame) -> tuple[m.FetchOffsetsRequest, ...]:
    """One request per group asked for; before version 8 there is one."""
    groups = frame.body.groups if frame.version >= 8 else (frame.body,)
    return tuple(
        m.FetchOffsetsRequest(
            group=group.group_id,
            membership=Membership(getattr(group, "member_id", None) or "", getattr(group, "member_epoch", -1)),
            partitions=None
            if group.topics is None
            else tuple(
                TopicPartition(topic.name, number) for topic in group.topics for number in topic.partition_indexes
            ),
        )
        for group in groups
    )


# -- answers out


def body_of_answer(request: m.Request, answer: m.Answer, version: int) -> Body:
    """An answer as a message of this version."""
    match answer:
        case m.JoinAnswer():
            return _join_answer_body(answer, version)
        case m.SyncAnswer():
            return {
                "error_code": answer.error,
                "protocol_type": answer.protocol_type,
                "protocol_name": answer.protocol,
                "assignment": answer.assignment,
            }
        case m.HeartbeatAnswer():
            return {"error_code": answer.error}
        case m.LeaveAnswer():
            return _leave_answer_body(answer, version)
        case m.CommitAnswer():
            return {"topics": _by_topic(answer.errors, lambda code: {"error_code": code})}
        case m.FetchOffsetsAnswer():
            assert isinstance(request, m.FetchOffsetsRequest), "an answer to another request"
            return offset_fetch_body([(request, answer)], version)


def _join_answer_body(answer: m.JoinAnswer, version: int) -> Body:
    return {
        "error_code": answer.error,
        "generation_id": answer.membership.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol if version >= 7 else answer.protocol or "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.membership.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }


def _leave_answer_body(answer: m.LeaveAnswer, version: int) -> Body:
    if version < 3:
        first = next((code for _, code in answer.members if code is not ErrorCode.NONE), ErrorCode.NONE)
        return {"error_code": answer.error if answer.error is not ErrorCode.NONE else first}
    return {
        "error_code": answer.error,
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": code}
            for leaver, code in answer.members
        ],
    }


def offset_fetch_body(
    answered: Sequence[tuple[m.FetchOffsetsRequest, m.FetchOffsetsAnswer]],
    version: int,
    *,
    refused: Mapping[TopicPartition, ErrorCode] | None = None,
) -> Body:
    """All answers to one OffsetFetch. Partitions in `refused` get that error and no offset."""
    groups = [_offset_fetch_group(request, answer, version, refused or {}) for request, answer in answered]
    return {"groups": groups} if version >= 8 else {key: groups[0][key] for key in ("topics", "error_code")}


def _offset_fetch_group(
    request: m.FetchOffsetsRequest,
    answer: m.FetchOffsetsAnswer,
    version: int,
    refused: Mapping[TopicPartition, ErrorCode],
) -> Body:
    failed = answer.error is not ErrorCode.NONE
    asked = sorted(answer.offsets) if request.partitions is None else list(request.partitions)
    nothing = m.OffsetEntry(NO_OFFSET)

    def entry(partition: TopicPartition) -> Body:
        verdict = refused.get(partition, ErrorCode.NONE)
        found = nothing if failed or verdict is not ErrorCode.NONE else answer.offsets.get(partition, nothing)
        return {
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": answer.error if failed else verdict,
        }

    # From version 8 on an error is given once for the group; before, every partition repeats it.
    listed = () if failed and version >= 8 else asked
    return {
        "group_id": request.group,
        "topics": _by_topic({partition: partition for partition in listed}, entry),
        "error_code": answer.error,
    }


def _by_topic(values: Mapping[TopicPartition, V], entry: Callable[[V], Body]) -> list[Body]:
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, **entry(values[TopicPartition(topic, number)])} for number in numbers
            ],
        }
        for topic, numbers in by_topic(values).items()
    ]


_REQUESTS: dict[Api, Callable[[RequestFrame, str], m.Request]] = {
    Api.JOIN_GROUP: _join_request,
    Api.SYNC_GROUP: _sync_request,
    Api.HEARTBEAT: _heartbeat_request,
    Api.LEAVE_GROUP: _leave_request,
    Api.OFFSET_COMMIT: _commit_request,
}
