"""The vocabulary: values that all other packages use. Imports nothing else of holdfast; knows no clock, socket or
log."""

from holdfast.model.assignor import Assignor, at_version, is_built_in
from holdfast.model.errors import ErrorCode, HoldfastError
from holdfast.model.membership import NO_GENERATION, NOBODY, GroupMetadata, Membership
from holdfast.model.partition import TopicPartition, by_topic, flatten
from holdfast.model.subscription import (
    Assignment,
    ClusterView,
    JoinedMember,
    RebalanceProtocol,
    Subscription,
    TopicView,
)
from holdfast.model.trace import TRACE_VERSION, TraceRecord, Value

__all__ = [
    "NOBODY",
    "NO_GENERATION",
    "TRACE_VERSION",
    "Assignment",
    "Assignor",
    "ClusterView",
    "ErrorCode",
    "GroupMetadata",
    "HoldfastError",
    "JoinedMember",
    "Membership",
    "RebalanceProtocol",
    "Subscription",
    "TopicPartition",
    "TopicView",
    "TraceRecord",
    "Value",
    "at_version",
    "by_topic",
    "flatten",
    "is_built_in",
]
