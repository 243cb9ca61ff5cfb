"""Our errors as confluent-kafka's, so that a program written for it catches what it always caught."""

from __future__ import annotations

import confluent_kafka as ck

from holdfast.model import ErrorCode, HoldfastError

LOCAL = {
    "NOT_OWNED": ck.KafkaError._STATE,
    "INVALID_CONFIG": ck.KafkaError._INVALID_ARG,
    "NO_COMMON_PROTOCOL": ck.KafkaError._INVALID_ARG,
    "REQUEST_TIMED_OUT": ck.KafkaError._TIMED_OUT,
    "LOOKUP_TIMED_OUT": ck.KafkaError._TIMED_OUT,
    "CONNECTION_FAILED": ck.KafkaError._TRANSPORT,
    "DISCONNECTED": ck.KafkaError._TRANSPORT,
    "AUTO_OFFSET_RESET": ck.KafkaError._AUTO_OFFSET_RESET,
    "CORRUPT_BATCH": ck.KafkaError._BAD_MSG,
    "MALFORMED_RECORD": ck.KafkaError._BAD_MSG,
    "UNSUPPORTED_MESSAGE_FORMAT": ck.KafkaError._BAD_MSG,
    "CORRUPT_COMPRESSION": ck.KafkaError._BAD_COMPRESSION,
    "DECOMPRESSION_TOO_LARGE": ck.KafkaError._BAD_COMPRESSION,
    "UNKNOWN_COMPRESSION": ck.KafkaError._NOT_IMPLEMENTED,
}
RETRIABLE = frozenset({"REBALANCE_IN_PROGRESS", "REQUEST_TIMED_OUT", "LOOKUP_TIMED_OUT", "CONNECTION_FAILED"})
FATAL = frozenset({"FENCED_INSTANCE_ID"})


def as_kafka_exception(error: HoldfastError) -> ck.KafkaException:
    """The same story under the code the application knows."""
    number = LOCAL.get(error.code)
    if number is None:
        number = int(ErrorCode[error.code]) if error.code in ErrorCode.__members__ else ck.KafkaError._APPLICATION
    reason = f"{error.what} {error.do}"
    return ck.KafkaException(ck.KafkaError(number, reason, error.code in FATAL, error.code in RETRIABLE))


def refused(code: ErrorCode) -> ck.KafkaException:
    """What the coordinator answered."""
    return ck.KafkaException(ck.KafkaError(int(code), None, False, code is ErrorCode.REBALANCE_IN_PROGRESS))


def no_offset() -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(ck.KafkaError._NO_OFFSET, "there is nothing to commit"))
