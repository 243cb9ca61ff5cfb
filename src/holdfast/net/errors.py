"""What can go wrong between us and a broker, and whether trying again may help."""

from __future__ import annotations

import os
import re
import socket

from holdfast.model import ErrorCode, HoldfastError

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Kafka's own list of retriable errors, as far as we know the codes."""


class NetError(HoldfastError):
    """No answer, or none that can be used. `retriable` tells whether the same request may succeed later."""

    def __init__(self, code: str, what: str, do: str, *, retriable: bool) -> None:
        super().__init__(code, what, do)
        self.retriable = retriable

    def again(self) -> NetError:
        """A copy: several waiters of one connection must not share one exception and its traceback."""
        return NetError(self.code, self.what, self.do, retriable=self.retriable)


DO: dict[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for the right to do this to the topic, or log in as a user who has it.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Ask for the right to do this to the group, or log in as a user who has it.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Ask for the right to do this, or log in as a user who has it.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Check its name, and that these are the brokers of its cluster.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use it, or choose another name.",
}
"""What to do about an error that speaks for itself."""


class BrokerError(NetError):
    """A broker answered, with an error of Kafka's."""

    def __init__(self, error: ErrorCode, what: str, *, message: str | None = None) -> None:
        said = f" The broker says: {message.rstrip('.')}." if message else ""
        do = "It passes by itself; try again." if error in RETRIABLE else DO.get(error, "The broker's log tells more.")
        super().__init__(error.name, f"{what}{said}", do, retriable=error in RETRIABLE)
        self.error = error

    def again(self) -> BrokerError:
        return self


def reason(error: OSError) -> str:
    """Why a connection can't be made, in the system's words. asyncio replaces them by its own ("Connect call failed
    ('127.0.0.1', 9092)"), several of them if a name has several addresses."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    numbers = [error.errno] if error.errno else [int(found) for found in re.findall(r"\[Errno (\d+)\]", str(error))]
    if numbers:
        return " / ".join(dict.fromkeys(os.strerror(number) for number in numbers))
    return str(error) or type(error).__name__


def disconnected(where: str, why: str) -> NetError:
    return NetError(
        "DISCONNECTED",
        f"The connection to {where} ended: {why}.",
        "The next request opens a new one.",
        retriable=True,
    )


def timed_out(where: str, what: str, seconds: float, *, settable: bool = True) -> NetError:
    """`settable`: whether request.timeout.ms is the limit."""
    return NetError(
        "REQUEST_TIMED_OUT",
        f"{where} did not answer {what} within {seconds:g} s.",
        "Check the broker's health and the network; request.timeout.ms sets the limit."
        if settable
        else "Check the broker's health and the network.",
        retriable=True,
    )
