"""Whether a commit may be sent now, and for what; and which of its answers are worth another try.

Offsets live outside the member's machine; these rules look at its state and never change it. A commit in the middle of
a round is refused for now, nothing is lost, and it never makes the member rejoin.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.group.member.state import MemberState, Phase
from holdfast.group.messages import CommitAnswer, CommitRequest, OffsetEntry
from holdfast.group.verdicts import Ask, Verdict, verdict
from holdfast.model import ErrorCode, HoldfastError, TopicPartition

BETWEEN_GENERATIONS = frozenset({Phase.PLANNING, Phase.SYNCING})
"""The coordinator answers REBALANCE_IN_PROGRESS to any commit from the join's answer to the sync's."""


UNKNOWN_TRIES = 3
"""How often a partition is asked for that the coordinator does not know; librdkafka does it as often. One just created
takes a moment to be known everywhere, and one that does not exist is no reason to wait."""


class RebalanceInProgress(HoldfastError):
    """Not now: the group is between two generations. Poll, and commit again."""

    def __init__(self) -> None:
        super().__init__(
            "REBALANCE_IN_PROGRESS",
            "the group is between two generations, so nothing can be committed right now.",
            "Go on polling and commit again; what you still own then is committed then.",
        )


class NotOwned(HoldfastError):
    """The partition is somebody else's now: its offset may not be moved from here (librdkafka 3340)."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        names = ", ".join(str(p) for p in sorted(partitions)[:5]) + (" …" if len(partitions) > 5 else "")
        super().__init__(
            "NOT_OWNED",
            f"this member does not own {names}.",
            "Commit in on_revoke; after it has returned the new owner commits.",
        )


class MembershipGone(HoldfastError):
    """The group went on without this member; whatever it did since is done again by others."""

    def __init__(self) -> None:
        super().__init__(
            "UNKNOWN_MEMBER_ID",
            "this member is no longer in the group, so it can't commit.",
            "Raise max.poll.interval.ms or process less between two polls; poll to join again.",
        )


def commit_request(
    state: MemberState,
    offsets: Mapping[TopicPartition, OffsetEntry],
    *,
    given_up: frozenset[TopicPartition] | None = None,
) -> CommitRequest:
    """The request for these offsets, or the reason why not now.

    `given_up` is what the group took from this member and has not given back: only that is refused, since its next
    owner may be further. None means everything that is not owned. Whoever has not joined yet commits from outside.
    """
    if state.phase in BETWEEN_GENERATIONS:
        raise RebalanceInProgress
    if given_up is not None and not state.lost and not state.joined_at and not state.membership.joined:
        return CommitRequest(group=state.config.group, offsets=dict(offsets))
    if state.lost or not state.membership.joined:
        raise MembershipGone
    strangers = frozenset(offsets) - state.owned
    if given_up is not None:
        strangers &= given_up
    if strangers:
        raise NotOwned(strangers)
    return CommitRequest(
        group=state.config.group,
        membership=state.membership,
        instance_id=state.config.instance_id,
        offsets=dict(offsets),
    )


def worth_another_try(answer: CommitAnswer, *, tries: int) -> frozenset[TopicPartition]:
    """Which partitions of a commit to send again, after so many tries. The others are settled, one way or the other."""
    unknown = tries < UNKNOWN_TRIES
    return frozenset(
        partition
        for partition, code in answer.errors.items()
        if passes(Ask.COMMIT, code) or (unknown and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )


def passes(ask: Ask, code: ErrorCode) -> bool:
    """Whether the same question may be answered differently in a moment, without anybody's help."""
    return verdict(ask, code) in (Verdict.LATER, Verdict.MOVED)


def coordinator_moved(answer: CommitAnswer) -> bool:
    """Whether to look for the coordinator before asking again."""
    return any(verdict(Ask.COMMIT, code) is Verdict.MOVED for code in answer.errors.values())
