"""The group's values through the wire and back, in every version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.group import messages as m
from holdfast.model import ErrorCode, HoldfastError, JoinedMember, Membership, TopicPartition
from holdfast.wire import codec, coordinators, groups, groups_served
from holdfast.wire.api import Api

ME = Membership("me-1", 7)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

JOIN = m.JoinRequest(
    group="g",
    membership=Membership("me-1"),
    instance_id="static",
    session_timeout_ms=45_000,
    rebalance_timeout_ms=60_000,
    protocols=(("cooperative-sticky", b"\x00\x01"), ("range", b"")),
    reason="topics changed",
    client_id="client",
    client_host="/127.0.0.1",
)
SYNC = m.SyncRequest(
    group="g", membership=ME, instance_id="static", protocol="range", assignments={"me-1": b"abc", "you": b""}
)
HEARTBEAT = m.HeartbeatRequest(group="g", membership=ME, instance_id="static")
LEAVE_ONE = m.LeaveRequest(group="g", members=(m.Leaver(member_id="me-1", reason="bye"),))
LEAVE_MANY = m.LeaveRequest(
    group="g", members=(m.Leaver(member_id="me-1"), m.Leaver(member_id="", instance_id="static", reason="gone"))
)
COMMIT = m.CommitRequest(
    group="g",
    membership=ME,
    instance_id="static",
    offsets={U0: m.OffsetEntry(3), T1: m.OffsetEntry(10, 4, "note"), T0: m.OffsetEntry(0)},
)
FETCH = m.FetchOffsetsRequest(group="g", partitions=(T0, T1, U0))
FETCH_ALL = m.FetchOffsetsRequest(group="g")


def through_the_wire(request: m.Request, version: int) -> codec.RequestFrame:
    body = groups.body_of(request, version)
    return codec.decode_request(codec.encode_request(groups.api_of(request), version, 1, "client", body)[4:])


def back(request: m.Request, answer: m.Answer, version: int) -> m.Answer:
    body = groups_served.body_of_answer(request, answer, version)
    api = groups.api_of(request)
    frame = codec.encode_response(api, version, 1, body)[4:]
    return groups.answer_of(request, version, codec.decode_response(api, version, frame).body)


@pytest.mark.parametrize("version", Api.JOIN_GROUP.versions)
def test_a_join_arrives_as_far_as_its_version_can_say(version: int) -> None:
    expected = replace(
        JOIN,
        instance_id="static" if version >= 5 else None,
        rebalance_timeout_ms=60_000 if version >= 1 else 45_000,
        reason="topics changed" if version >= 8 else None,
        requires_known_member_id=version >= 4,
        supports_skipping_assignment=version >= 9,
    )
    assert groups_served.request_of(through_the_wire(JOIN, version), client_host="/127.0.0.1") == expected


def test_a_reason_is_cut_before_it_is_sent() -> None:
    read = groups_served.request_of(through_the_wire(replace(JOIN, reason="x" * 40_000), 9))
    assert isinstance(read, m.JoinRequest)
    assert read.reason is not None
    assert len(read.reason) == m.MAX_REASON_LENGTH
    leave = m.LeaveRequest(group="g", members=(m.Leaver(member_id="m", reason="x" * 40_000),))
    left = groups_served.request_of(through_the_wire(leave, 5))
    assert isinstance(left, m.LeaveRequest)
    assert len(left.members[0].reason or "") == m.MAX_REASON_LENGTH


@pytest.mark.parametrize("version", Api.JOIN_GROUP.versions)
def test_a_join_answer_arrives_as_far_as_its_version_can_say(version: int) -> None:
    answer = m.JoinAnswer(
        membership=ME,
        protocol_type="consumer",
        protocol="range",
        leader="me-1",
        skip_assignment=True,
        members=(JoinedMember(member_id="me-1", instance_id="static", metadata=b"xy"), JoinedMember(member_id="b")),
    )
    expected = replace(
        answer,
        protocol_type="consumer" if version >= 7 else None,
        skip_assignment=version >= 9,
        members=tuple(replace(one, instance_id=one.instance_id if version >= 5 else None) for one in answer.members),
    )
    assert back(JOIN, answer, version) == expected


@pytest.mark.parametrize("version", Api.JOIN_GROUP.versions)
def test_a_refused_join_has_no_protocol(version: int) -> None:
    """MEMBER_ID_REQUIRED comes with an id and nothing else; before version 7 the protocol can't be null."""
    answer = m.JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, membership=Membership("given"))
    assert back(JOIN, answer, version) == answer


@pytest.mark.parametrize("version", Api.SYNC_GROUP.versions)
def test_a_sync_arrives_as_far_as_its_version_can_say(version: int) -> None:
    expected = replace(
        SYNC,
        instance_id="static" if version >= 3 else None,
        protocol_type="consumer" if version >= 5 else None,
        protocol="range" if version >= 5 else None,
    )
    assert groups_served.request_of(through_the_wire(SYNC, version)) == expected
    answer = m.SyncAnswer(protocol_type="consumer", protocol="range", assignment=b"\x00")
    known = version >= 5
    assert back(SYNC, answer, version) == replace(
        answer, protocol_type="consumer" if known else None, protocol="range" if known else None
    )
    refused = m.SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
    assert back(SYNC, refused, version) == refused


@pytest.mark.parametrize("version", Api.HEARTBEAT.versions)
def test_a_heartbeat_arrives(version: int) -> None:
    expected = replace(HEARTBEAT, instance_id="static" if version >= 3 else None)
    assert groups_served.request_of(through_the_wire(HEARTBEAT, version)) == expected
    answer = m.HeartbeatAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
    assert back(HEARTBEAT, answer, version) == answer


@pytest.mark.parametrize("version", Api.LEAVE_GROUP.versions)
def test_one_member_can_leave_in_every_version(version: int) -> None:
    expected = m.LeaveRequest(group="g", members=(m.Leaver(member_id="me-1", reason="bye" if version >= 5 else None),))
    assert groups_served.request_of(through_the_wire(LEAVE_ONE, version)) == expected
    one = LEAVE_ONE.members[0]
    refused = m.LeaveAnswer(members=((one, ErrorCode.UNKNOWN_MEMBER_ID),))
    read = back(LEAVE_ONE, refused, version)
    assert isinstance(read, m.LeaveAnswer)
    assert [(who.member_id, code) for who, code in read.members] == [("me-1", ErrorCode.UNKNOWN_MEMBER_ID)]


@pytest.mark.parametrize("version", Api.LEAVE_GROUP.versions)
def test_batches_and_static_members_leave_from_version_3_on(version: int) -> None:
    if version < 3:
        with pytest.raises(HoldfastError, match="BROKER_TOO_OLD"):
            groups.body_of(LEAVE_MANY, version)
        return
    read = groups_served.request_of(through_the_wire(LEAVE_MANY, version))
    reason = "gone" if version >= 5 else None
    assert read == replace(LEAVE_MANY, members=(LEAVE_MANY.members[0], replace(LEAVE_MANY.members[1], reason=reason)))
    answer = m.LeaveAnswer(
        members=((m.Leaver(member_id="me-1"), ErrorCode.NONE), (m.Leaver(instance_id="static"), ErrorCode.NONE))
    )
    assert back(LEAVE_MANY, answer, version) == answer


@pytest.mark.parametrize("version", Api.OFFSET_COMMIT.versions)
def test_a_commit_arrives_with_every_partition_and_verdict(version: int) -> None:
    expected = replace(
        COMMIT,
        instance_id="static" if version >= 7 else None,
        offsets={
            at: replace(entry, leader_epoch=entry.leader_epoch if version >= 6 else -1)
            for at, entry in COMMIT.offsets.items()
        },
    )
    assert groups_served.request_of(through_the_wire(COMMIT, version)) == expected
    answer = m.CommitAnswer(errors={T0: ErrorCode.NONE, T1: ErrorCode.OFFSET_METADATA_TOO_LARGE, U0: ErrorCode.NONE})
    assert back(COMMIT, answer, version) == answer


def test_a_commit_from_outside_the_group_names_no_instance() -> None:
    """edge B44 K-14201: manual assignment with an instance id; Kafka refused the commit as one of an unknown member."""
    outside = m.CommitRequest(group="g", instance_id="static", offsets={T0: m.OffsetEntry(1)})
    read = groups_served.request_of(through_the_wire(outside, 9))
    assert read == replace(outside, instance_id=None)


@pytest.mark.parametrize("version", Api.OFFSET_FETCH.versions)
def test_committed_offsets_arrive_and_missing_ones_are_absent(version: int) -> None:
    assert groups_served.offset_fetches_of(through_the_wire(FETCH, version)) == (FETCH,)
    answer = m.FetchOffsetsAnswer(offsets={T0: m.OffsetEntry(0, 3, "a"), U0: m.OffsetEntry(9)})
    epoch = 3 if version >= 5 else -1
    expected = m.FetchOffsetsAnswer(offsets={T0: m.OffsetEntry(0, epoch, "a"), U0: m.OffsetEntry(9)})
    assert back(FETCH, answer, version) == expected


@pytest.mark.parametrize("version", Api.OFFSET_FETCH.versions)
def test_every_partition_can_be_asked_for_from_version_2_on(version: int) -> None:
    if version < 2:
        with pytest.raises(HoldfastError, match="BROKER_TOO_OLD"):
            groups.body_of(FETCH_ALL, version)
        return
    assert groups_served.offset_fetches_of(through_the_wire(FETCH_ALL, version)) == (FETCH_ALL,)
    answer = m.FetchOffsetsAnswer(offsets={T0: m.OffsetEntry(5)})
    assert back(FETCH_ALL, answer, version) == answer


@pytest.mark.parametrize("version", Api.OFFSET_FETCH.versions)
def test_an_error_of_a_group_is_the_answers_error_in_every_version(version: int) -> None:
    answer = m.FetchOffsetsAnswer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert back(FETCH, answer, version) == answer


@pytest.mark.parametrize("version", Api.OFFSET_FETCH.versions)
def test_an_unstable_offset_is_an_error_and_a_vanished_topic_is_not(version: int) -> None:
    found = m.FetchOffsetsAnswer(offsets={T0: m.OffsetEntry(5), T1: m.OffsetEntry(6)})

    def read(refused: dict[TopicPartition, ErrorCode]) -> Any:
        body = groups_served.offset_fetch_body([(FETCH, found)], version, refused=refused)
        frame = codec.encode_response(Api.OFFSET_FETCH, version, 1, body)[4:]
        return groups.answer_of(FETCH, version, codec.decode_response(Api.OFFSET_FETCH, version, frame).body)

    assert read({T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}).offsets == {T0: m.OffsetEntry(5)}
    assert read({T1: ErrorCode.UNSTABLE_OFFSET_COMMIT}) == m.FetchOffsetsAnswer(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_several_groups_are_fetched_at_once_from_version_8_on() -> None:
    body = {
        "groups": [
            {"group_id": "a", "topics": [{"name": "t", "partition_indexes": [0]}]},
            {"group_id": "b", "topics": None},
        ]
    }
    frame = codec.decode_request(codec.encode_request(Api.OFFSET_FETCH, 8, 1, None, body)[4:])
    asked = groups_served.offset_fetches_of(frame)
    assert [(one.group, one.partitions) for one in asked] == [("a", (T0,)), ("b", None)]
    answers = [
        m.FetchOffsetsAnswer(offsets={T0: m.OffsetEntry(4)}),
        m.FetchOffsetsAnswer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    encoded = codec.encode_response(
        Api.OFFSET_FETCH, 8, 1, groups_served.offset_fetch_body(list(zip(asked, answers, strict=True)), 8)
    )
    read = codec.decode_response(Api.OFFSET_FETCH, 8, encoded[4:]).body
    assert [groups.answer_of(one, 8, read) for one in asked] == answers


def test_an_answer_about_another_group_is_not_ours() -> None:
    encoded = codec.encode_response(Api.OFFSET_FETCH, 8, 1, {"groups": [{"group_id": "other"}]})
    read = codec.decode_response(Api.OFFSET_FETCH, 8, encoded[4:]).body
    assert groups.answer_of(FETCH, 8, read) == m.FetchOffsetsAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("version", Api.FIND_COORDINATOR.versions)
def test_a_coordinator_is_found_in_every_version(version: int) -> None:
    body = coordinators.find_coordinator_body("g", version)
    frame = codec.decode_request(codec.encode_request(Api.FIND_COORDINATOR, version, 1, None, body)[4:])
    assert coordinators.coordinator_keys_of(frame) == (coordinators.GROUP_KEY, ("g",))
    for found in (
        coordinators.Coordinator(key="g", node_id=3, host="h", port=9),
        coordinators.Coordinator(key="g", error=ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ):
        answer = coordinators.coordinators_body([found], version)
        encoded = codec.encode_response(Api.FIND_COORDINATOR, version, 1, answer)[4:]
        read = codec.decode_response(Api.FIND_COORDINATOR, version, encoded).body
        assert coordinators.coordinator_of("g", version, read) == found


@pytest.mark.parametrize("version", Api.DESCRIBE_GROUPS.versions)
@pytest.mark.parametrize("members", [0, 1, 300])
def test_the_size_of_a_group_is_read_from_its_description_without_reading_the_members(
    version: int, members: int
) -> None:
    described = {
        "error_code": 0,
        "error_message": None,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [
            {
                "member_id": f"m-{number}",
                "group_instance_id": None,
                "client_id": "c",
                "client_host": "/127.0.0.1",
                "member_metadata": b"abc",
                "member_assignment": b"",
            }
            for number in range(members)
        ],
        "authorized_operations": -2147483648,
    }
    body = {"throttle_time_ms": 0, "groups": [described]}
    frame = codec.encode_response(Api.DESCRIBE_GROUPS, version, 1, body)[4:]
    head = coordinators.group_head(version, frame)
    assert (head.error, head.state, head.protocol, head.members) == (ErrorCode.NONE, "Stable", "range", members)


def test_a_description_that_is_cut_off_is_malformed() -> None:
    frame = codec.encode_response(Api.DESCRIBE_GROUPS, 5, 1, {"throttle_time_ms": 0, "groups": []})[4:]
    for cut in range(len(frame) + 1):
        with pytest.raises(HoldfastError):
            coordinators.group_head(5, frame[:cut])
