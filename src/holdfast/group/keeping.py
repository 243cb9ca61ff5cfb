"""The plan that a leader sends when its assignor fails: every member keeps its partitions.

Only possible in a cooperative round, whose members say what they own and go on processing it. In an eager round
everything was revoked before the joins, so there is nothing to keep.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.assign.claims import newest_claims
from holdfast.group.user_data import LeaderNote, encode_leader_note, read_member_note
from holdfast.model import Assignment, HoldfastError, JoinedMember, Subscription, TopicPartition
from holdfast.model.consumer_protocol import decode_subscription, encode_assignment


def kept_plan(members: Sequence[JoinedMember], *, generation: int) -> dict[str, bytes]:
    """Assign to every member what it claims. If two claim one partition, the newer generation gets it; at the same
    generation nobody does, as in any plan. A claim of this generation or a later one is invalid and ignored."""
    claims = {member.member_id: _claims(member) for member in members}
    held = newest_claims(
        (partition, subscription.generation, name)
        for name, subscription in sorted(claims.items())
        for partition in subscription.owned
        if partition.topic in subscription.topics and subscription.generation < generation
    )
    kept: dict[str, list[TopicPartition]] = {name: [] for name in claims}
    for partition, owner in held.items():
        kept[owner].append(partition)
    return {
        name: encode_assignment(Assignment(partitions=frozenset(kept[name]), user_data=_note(subscription)))
        for name, subscription in claims.items()
    }


def _claims(member: JoinedMember) -> Subscription:
    try:
        return decode_subscription(member.metadata)
    except HoldfastError:  # unreadable: no claims that we could see, so it gets nothing
        return Subscription(topics=())


def _note(subscription: Subscription) -> bytes | None:
    """For holdfast members an empty note: it shows that the leader is holdfast too, so that they don't heartbeat
    quickly for a second round."""
    return None if read_member_note(subscription.user_data) is None else encode_leader_note(LeaderNote())
