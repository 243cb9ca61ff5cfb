"""Whether a commit may be sent now, and for which partitions; and which of its answers are worth a retry.

Offsets are not part of the member's machine: these rules read its state and never change it. A commit in the middle of
a round is refused for the moment; nothing is lost, and it never makes the member rejoin.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.group.member.state import MemberState, Phase
from holdfast.group.messages import CommitAnswer, CommitRequest, OffsetEntry
from holdfast.group.user_data import fit_in
from holdfast.group.verdicts import Ask, Verdict, verdict
from holdfast.model import ErrorCode, HoldfastError, Membership, TopicPartition

OVERTAKEN = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID})
"""Answers to a commit that arrived after the group had moved on to the next round."""

BETWEEN_GENERATIONS = frozenset({Phase.PLANNING, Phase.SYNCING})
"""Between the join's answer and the sync's the coordinator answers REBALANCE_IN_PROGRESS to every commit."""


UNKNOWN_TRIES = 3
"""How often a commit is tried for a partition that the coordinator does not know, as in librdkafka. A new partition
takes a moment to be known everywhere; one that does not exist is not worth waiting for."""


class RebalanceInProgress(HoldfastError):
    """Not now: the group is between two generations. Poll, and commit again."""

    def __init__(self) -> None:
        super().__init__(
            "REBALANCE_IN_PROGRESS",
            "the group is between two generations, so nothing can be committed right now.",
            "Go on polling and commit again; what you still own then is committed then.",
        )


class NotOwned(HoldfastError):
    """Another member owns the partition now: this one must not commit it (librdkafka 3340)."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        names = ", ".join(str(p) for p in sorted(partitions)[:5]) + (" …" if len(partitions) > 5 else "")
        super().__init__(
            "NOT_OWNED",
            f"this member does not own {names}.",
            "Commit in on_revoke; after it has returned the new owner commits.",
        )


class MembershipGone(HoldfastError):
    """The group went on without this member: others repeat what it did since."""

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
    """The request for these offsets. Raises the reason if it may not be sent now.

    `given_up` are the partitions that the group took from this member and has not given back. Only those are refused,
    because their next owner may be further. With None everything that is not owned is refused. A member that has never
    joined commits without a membership.
    """
    if state.phase in BETWEEN_GENERATIONS:
        raise RebalanceInProgress
    if given_up is not None and not state.lost and not state.round.joined_at and not state.membership.joined:
        return CommitRequest(group=state.config.group, offsets=dict(offsets))
    if state.lost or not state.membership.joined:
        raise MembershipGone
    not_owned = frozenset(offsets) - state.owned
    if given_up is not None:
        not_owned &= given_up
    if not_owned:
        raise NotOwned(not_owned)
    return CommitRequest(
        group=state.config.group,
        membership=state.membership,
        instance_id=state.config.instance_id,
        offsets=dict(offsets),
    )


def overtaken(state: MemberState, sent_as: Membership) -> bool:
    """Whether a commit that was sent under this membership may have been refused only because a round ended before it
    arrived. Then it is still due, under the new generation."""
    in_a_round = state.phase not in (Phase.STABLE, Phase.UNSUBSCRIBED)
    return not state.lost and (in_a_round or state.membership.generation > sent_as.generation)


def join_carries_positions(state: MemberState) -> bool:
    """Whether another join follows, which carries our positions to members that can read them."""
    return state.config.hand_over_offsets and state.phase is not Phase.LEAVING


def positions_reach(state: MemberState, partitions: frozenset[TopicPartition]) -> bool:
    """Whether our next join brings the positions of these revoked partitions to their next owners.

    Not when we leave: then no join follows. Not if a foreign leader or member can't read them, or they don't fit. Not
    under the eager protocol: who else will be in the round, and which assignor plans it, is not known yet.
    """
    return (
        join_carries_positions(state)
        and state.cooperative
        and state.said.positions_reach
        and fit_in(partitions, state.said.room)
    )


def held_partitions(state: MemberState, member_id: str) -> frozenset[TopicPartition]:
    """What this member owns or is just being assigned, if it still has this member id."""
    if state.lost or state.membership.member_id != member_id:
        return frozenset()
    return state.owned | state.held.then_owned if state.phase is Phase.APPLYING else state.owned


def worth_another_try(answer: CommitAnswer, *, tries: int) -> frozenset[TopicPartition]:
    """Which partitions of a commit to send again, after `tries` tries. The others have their final answer."""
    unknown = tries < UNKNOWN_TRIES
    return frozenset(
        partition
        for partition, code in answer.errors.items()
        if is_transient(Ask.COMMIT, code) or (unknown and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )


def is_transient(ask: Ask, code: ErrorCode) -> bool:
    """Whether the error is transient: the same request may succeed in a moment, without anybody's help."""
    return verdict(ask, code) in (Verdict.LATER, Verdict.MOVED)


def coordinator_moved(answer: CommitAnswer) -> bool:
    """Whether to look the coordinator up before a retry."""
    return any(verdict(Ask.COMMIT, code) is Verdict.MOVED for code in answer.errors.values())
