"""What an error code means to a member: one table for every request of a group, and the text for the application.

Rules. A transient error never ends a membership: the request is retried with a back-off, and the application is told if
a person may have to help. A code that is not listed, for instance a new one, counts as transient. Pure: the machine,
the consumer's own requests and the tests read the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from holdfast.model import ErrorCode, HoldfastError


class Ask(Enum):
    """The kind of request. Its value is how the error's text begins, as librdkafka's does."""

    # An enum's members are singletons, so hashing by identity is right, and faster than Enum's hash, written in Python.
    __hash__ = object.__hash__

    JOIN = "JoinGroup failed"
    SYNC = "SyncGroup failed"
    HEARTBEAT = "Heartbeat failed"
    LEAVE = "LeaveGroup failed"
    COMMIT = "OffsetCommit failed"
    FETCH_OFFSETS = "Failed to fetch committed offsets"
    FIND_COORDINATOR = "FindCoordinator response error"
    METADATA = "Subscribed topic not available"


class Verdict(Enum):
    """What follows from an answer."""

    # See `Ask`.
    __hash__ = object.__hash__

    FINE = "go on"
    TAKE_ID = "ask again under the id that was given"
    REBALANCE = "the group is moving: take part"
    EXPELLED = "the coordinator does not know this member: forget the id, lose what is owned, join again"
    OUTDATED = "the group went on without us: keep the id, lose what is owned, join again"
    MOVED = "the coordinator is elsewhere: look it up and ask again"
    LATER = "transient: ask again"
    TELL = "transient, but may need help: ask again, and tell the application"
    FATAL = "permanent: the membership ends, and polls report it"


V = Verdict
E = ErrorCode

COORDINATOR: Mapping[ErrorCode, Verdict] = {
    E.NONE: V.FINE,
    E.COORDINATOR_LOAD_IN_PROGRESS: V.LATER,
    E.COORDINATOR_NOT_AVAILABLE: V.MOVED,
    E.NOT_COORDINATOR: V.MOVED,
    E.REQUEST_TIMED_OUT: V.LATER,
    E.NETWORK_EXCEPTION: V.LATER,
}
"""Answers that every request to a coordinator may get."""

MEMBER: Mapping[ErrorCode, Verdict] = {
    **COORDINATOR,
    E.REBALANCE_IN_PROGRESS: V.REBALANCE,
    E.UNKNOWN_MEMBER_ID: V.EXPELLED,
    E.ILLEGAL_GENERATION: V.OUTDATED,
    E.FENCED_INSTANCE_ID: V.FATAL,
}
"""The same for requests in a member's name. A process that took our group.instance.id keeps it: that is permanent."""

LISTED: Mapping[Ask, Mapping[ErrorCode, Verdict]] = {
    Ask.JOIN: {**MEMBER, E.MEMBER_ID_REQUIRED: V.TAKE_ID, E.REBALANCE_IN_PROGRESS: V.LATER},
    Ask.SYNC: MEMBER,
    Ask.HEARTBEAT: MEMBER,
    # If a leave is refused for any other reason, staying would not help.
    Ask.LEAVE: COORDINATOR,
    Ask.COMMIT: {
        **MEMBER,
        E.UNSTABLE_OFFSET_COMMIT: V.LATER,
        E.NOT_ENOUGH_REPLICAS: V.LATER,
        E.KAFKA_STORAGE_ERROR: V.LATER,
    },
    Ask.FETCH_OFFSETS: {**MEMBER, E.UNSTABLE_OFFSET_COMMIT: V.LATER},
    Ask.FIND_COORDINATOR: {**COORDINATOR, E.COORDINATOR_NOT_AVAILABLE: V.LATER},
    Ask.METADATA: {E.NONE: V.FINE, E.LEADER_NOT_AVAILABLE: V.LATER, E.REQUEST_TIMED_OUT: V.LATER},
}

OTHERWISE: Mapping[Ask, Verdict] = {
    Ask.JOIN: V.TELL,
    Ask.SYNC: V.LATER,
    Ask.HEARTBEAT: V.LATER,
    Ask.LEAVE: V.FINE,
    Ask.COMMIT: V.TELL,
    Ask.FETCH_OFFSETS: V.TELL,
    Ask.FIND_COORDINATOR: V.TELL,
    Ask.METADATA: V.TELL,
}
"""For codes not listed. After a failed sync or heartbeat comes a join or another heartbeat, which is reported if it
fails too. Any error that lasts is reported as well (`member.trouble`)."""


def verdict(ask: Ask, code: ErrorCode) -> Verdict:
    """What this answer to this request means."""
    return LISTED[ask].get(code, OTHERWISE[ask])


ADVICE: Mapping[ErrorCode, tuple[str, str]] = {
    E.FENCED_INSTANCE_ID: (
        "another process joined the group with the same group.instance.id and replaced this one.",
        "Give every process its own group.instance.id (in Kubernetes the StatefulSet's pod name), and stop the other.",
    ),
    E.GROUP_AUTHORIZATION_FAILED: (
        "this user may not read the group.",
        "Grant READ on the group, or use another group.id or user.",
    ),
    E.TOPIC_AUTHORIZATION_FAILED: ("this user may not read the topic.", "Grant READ on the topic."),
    E.UNKNOWN_TOPIC_OR_PARTITION: (
        "the topic does not exist, or this user may not see it.",
        "Create it, correct the name, or grant DESCRIBE on it; it is read as soon as it exists.",
    ),
    E.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside the range the broker allows.",
        "Choose one between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ),
    E.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no assignor with this one.",
        "Compare partition.assignment.strategy with the members': `holdfast preflight GROUP` shows them. A migration "
        "takes two rolling bounces, the first of which lists both assignors.",
    ),
    E.INVALID_GROUP_ID: ("the broker refuses this group.id.", "Use a non-empty one of at most 249 characters."),
    E.GROUP_MAX_SIZE_REACHED: (
        "the group is full (group.max.size on the broker).",
        "Run fewer members or raise the limit.",
    ),
    E.UNSUPPORTED_VERSION: (
        "the broker does not know this version of the group protocol.",
        "Kafka 0.11 or newer is needed; group.instance.id needs 2.3.",
    ),
}


def refusal(ask: Ask, code: ErrorCode) -> HoldfastError:
    """The error that the application gets for this answer."""
    fallback = (f"the broker answered {code.name}.", "It is tried again; see the broker's log if it lasts.")
    what, do = ADVICE.get(code, fallback)
    return HoldfastError(code.name, f"{ask.value}: {what}", do)
