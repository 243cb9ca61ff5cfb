"""Whether a commit may be sent now, and for what.

Offsets live outside the member's machine; these rules look at its state and never change it. A commit in the middle of
a round is refused for now, nothing is lost, and it never makes the member rejoin.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.group.member.state import MemberState, Phase
from holdfast.group.messages import CommitRequest, OffsetEntry
from holdfast.model import HoldfastError, TopicPartition

BETWEEN_GENERATIONS = frozenset({Phase.PLANNING, Phase.SYNCING})
"""The coordinator answers REBALANCE_IN_PROGRESS to any commit from the join's answer to the sync's."""


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
            "Raise max.poll.interval.ms or lower max.poll.records if processing takes long; poll to join again.",
        )


def commit_request(state: MemberState, offsets: Mapping[TopicPartition, OffsetEntry]) -> CommitRequest:
    """The request for these offsets, or the reason why not now."""
    if state.phase in BETWEEN_GENERATIONS:
        raise RebalanceInProgress
    if state.lost or not state.membership.joined:
        raise MembershipGone
    strangers = frozenset(offsets) - state.owned
    if strangers:
        raise NotOwned(strangers)
    return CommitRequest(
        group=state.config.group,
        membership=state.membership,
        instance_id=state.config.instance_id,
        offsets=dict(offsets),
    )
