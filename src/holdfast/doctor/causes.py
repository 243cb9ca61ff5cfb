"""Why a round began: from the coordinator's reason, the client's reason inside it, and who just joined or left.

A rebalance has six usual causes: a member joins, leaves, crashes (its session ends), exceeds max.poll.interval.ms or
changes its subscription, or a topic gets partitions. Holdfast's members add three: a drain, a watchdog that leaves for
a dead process, and a rebalance that the application asked for. Three names stand for no cause at all: `start` is the
group's first round, `stop` is everybody leaving at the end, and `follow-up` is a cooperative handover's second round.
"""

from __future__ import annotations

JOIN, LEAVE, CRASH, TOO_SLOW = "join", "leave", "crash", "poll-interval"
SUBSCRIPTION, PARTITIONS = "subscription", "partitions"
DRAIN, WATCHDOG, FORCED = "drain", "watchdog", "forced"
RETURNED, STUCK, COORDINATOR = "static-return", "sync-timeout", "coordinator-moved"
START, STOP, FOLLOW_UP, UNKNOWN = "start", "stop", "follow-up", "unknown"

WORDS = {
    JOIN: "a member joined",
    LEAVE: "a member left",
    CRASH: "a member's session ended: it crashed or was cut off",
    TOO_SLOW: "a member exceeded max.poll.interval.ms",
    SUBSCRIPTION: "a subscription changed",
    PARTITIONS: "a topic's partitions changed",
    DRAIN: "a member drained",
    WATCHDOG: "a watchdog left for a dead process",
    FORCED: "the application asked for it",
    RETURNED: "a static member came back changed",
    STUCK: "a member did not sync in time",
    COORDINATOR: "the coordinator was restarted or moved",
    START: "the group began",
    STOP: "the group ended",
    FOLLOW_UP: "the second round of a cooperative handover",
    UNKNOWN: "unknown: no log says why",
}

_POLL = ("poll timeout has expired", "did not poll in time", "max.poll.interval", "maximum poll interval")
_SECOND = (
    "need to revoke partitions",
    "keeps partitions back",
    "others wait for",
    "rebalance failed due to",
)
_METADATA = ("cached metadata has changed", "metadata for subscribed topic", "topics have changed",
             "topic metadata", "partitions changed")  # fmt: skip


def of_leave(reason: str) -> str:
    """What a LeaveGroup's reason means. librdkafka gives none."""
    lower = reason.lower()
    if any(word in lower for word in _POLL):
        return TOO_SLOW
    if "drain" in lower:
        return DRAIN
    if "watchdog" in lower or "process is gone" in lower or "process died" in lower:
        return WATCHDOG
    return LEAVE


def of_round(reason: str) -> str:
    """What a round's reason means by itself; `FOLLOW_UP` only where it says so."""
    lower = reason.lower()
    client = _client_reason(lower)
    if "heartbeat expiration" in lower or "session expired" in lower or "session ended" in lower:
        return CRASH
    if "leavegroup" in lower or " left:" in lower or "has left" in lower:
        return of_leave(lower)
    if "pending sync" in lower:
        return STUCK
    if any(word in lower for word in _POLL):
        return TOO_SLOW
    if "draining" in lower or client == "drain":
        return DRAIN
    if "enforced by user" in lower or "application asked for it" in lower or "enforce" in client:
        return FORCED
    if any(word in lower for word in _SECOND):
        return FOLLOW_UP
    if any(word in lower for word in _METADATA):
        return PARTITIONS
    if "static member" in lower:
        return RETURNED
    if "adding new member" in lower or " joined" in lower:
        return JOIN
    if "subscri" in client:
        return SUBSCRIPTION
    if "leader" in lower and ("re-joining" in lower or "asked for a round" in lower):
        return PARTITIONS if client in ("", "not provided", "null") else UNKNOWN
    if "updating metadata" in lower or "subscription of" in lower:
        return SUBSCRIPTION
    return UNKNOWN


def may_follow(reason: str) -> bool:
    """Whether a round with this reason can be the second of a handover. librdkafka does not say why it rejoins."""
    told = of_round(reason)
    if told in (SUBSCRIPTION, PARTITIONS):
        return _client_reason(reason.lower()) in ("", "not provided", "null")
    return told in (FOLLOW_UP, UNKNOWN)


def _client_reason(lower: str) -> str:
    return lower.partition("client reason:")[2].strip(" ).") or lower.partition("(reason:")[2].strip(" ).")
