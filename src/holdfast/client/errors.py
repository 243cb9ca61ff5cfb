"""Translates our errors into confluent-kafka's, so that programs written for it catch them."""

from __future__ import annotations

import confluent_kafka as ck

from holdfast.client.partitions import metadata_shown
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, TopicPartition

LOCAL = {
    "NOT_OWNED": ck.KafkaError._STATE,
    "CONFIG_INVALID": ck.KafkaError._INVALID_ARG,
    "NO_COMMON_PROTOCOL": ck.KafkaError._INVALID_ARG,
    "REQUEST_TIMED_OUT": ck.KafkaError._TIMED_OUT,
    "LOOKUP_TIMED_OUT": ck.KafkaError._TIMED_OUT,
    "AUTHENTICATION_FAILED": ck.KafkaError._AUTHENTICATION,
    "MAX_POLL_EXCEEDED": ck.KafkaError._MAX_POLL_EXCEEDED,
    "CONNECTION_FAILED": ck.KafkaError._TRANSPORT,
    "DISCONNECTED": ck.KafkaError._TRANSPORT,
    "AUTO_OFFSET_RESET": ck.KafkaError._AUTO_OFFSET_RESET,
    "LOG_TRUNCATION": ck.KafkaError._LOG_TRUNCATION,
    "CORRUPT_BATCH": ck.KafkaError._BAD_MSG,
    "MALFORMED_RECORD": ck.KafkaError._BAD_MSG,
    "UNSUPPORTED_MESSAGE_FORMAT": ck.KafkaError._BAD_MSG,
    "CORRUPT_COMPRESSION": ck.KafkaError._BAD_COMPRESSION,
    "DECOMPRESSION_TOO_LARGE": ck.KafkaError._BAD_COMPRESSION,
    "UNKNOWN_COMPRESSION": ck.KafkaError._NOT_IMPLEMENTED,
}
RETRIABLE = frozenset({"REBALANCE_IN_PROGRESS", "REQUEST_TIMED_OUT", "LOOKUP_TIMED_OUT", "CONNECTION_FAILED"})
FATAL = frozenset({"FENCED_INSTANCE_ID"})

CLOSED = "Consumer closed"
"""confluent-kafka's text for a call on a closed consumer."""


def as_kafka_error(error: HoldfastError) -> ck.KafkaError:
    """The same error under the code that confluent-kafka uses for it."""
    number = LOCAL.get(error.code)
    if number is None:
        code = ErrorCode.named(error.code)
        number = ck.KafkaError._APPLICATION if code is None else int(code)
    reason = f"{error.what} {error.do}"
    return ck.KafkaError(number, reason, error.code in FATAL, error.code in RETRIABLE)


def as_kafka_exception(error: HoldfastError) -> ck.KafkaException:
    return ck.KafkaException(as_kafka_error(error))


def refused(code: ErrorCode) -> ck.KafkaException:
    """An error code that the coordinator answered."""
    return ck.KafkaException(ck.KafkaError(int(code), None, False, code is ErrorCode.REBALANCE_IN_PROGRESS))


def no_offset() -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(ck.KafkaError._NO_OFFSET, "there is nothing to commit"))


def refused_here(code: int, why: str) -> ck.KafkaException:
    """A call refused by the client itself, under librdkafka's code for it."""
    return ck.KafkaException(ck.KafkaError(code, why))


def refused_subscription(why: str) -> ck.KafkaException:
    return refused_here(ck.KafkaError._INVALID_ARG, f"Failed to set subscription: {why}")


def not_answered(who: str) -> ck.KafkaException:
    """A call of the application that was not answered in time."""
    return refused_here(ck.KafkaError._TIMED_OUT, f"{who} did not answer in time")


def no_group() -> ck.KafkaException:
    """A call that needs a group, on a consumer without one."""
    return ck.KafkaException(ck.KafkaError(ck.KafkaError._UNKNOWN_GROUP, "group.id is empty: name the group to use"))


class Refused(ck.TopicPartition):
    """A partition with an error. confluent-kafka's own class does not let its error be set."""

    def __init__(self, partition: TopicPartition, entry: OffsetEntry, error: ck.KafkaError) -> None:
        super().__init__(partition.topic, partition.partition, entry.offset, metadata_shown(entry), entry.leader_epoch)
        self._error = error

    @property
    def error(self) -> ck.KafkaError:  # type: ignore[override]  # their stub says writable, their class is not
        return self._error
