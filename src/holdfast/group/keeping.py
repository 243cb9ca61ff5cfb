"""What a leader sends when its assignor fails: everybody keeps what he has.

Only a cooperative round can say it: its members claim what they own, and go on processing it. In an eager round
everything was revoked before anybody joined, and there is nothing to keep.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.group.user_data import LeaderNote, encode_leader_note, read_member_note
from holdfast.model import Assignment, HoldfastError, JoinedMember, Subscription, TopicPartition
from holdfast.model.consumer_protocol import decode_subscription, encode_assignment


def kept_plan(members: Sequence[JoinedMember], *, generation: int) -> dict[str, bytes]:
    """Every member's own claims, as its assignment. Two that claim one partition: the newer generation holds it, and
    of equals nobody does, as in any plan. A claim of this generation or a later one can't be true."""
    claims = {member.member_id: _claims(member) for member in members}
    held: dict[TopicPartition, tuple[int, str | None]] = {}
    for name, subscription in sorted(claims.items()):
        for partition in subscription.owned:
            if partition.topic not in subscription.topics or subscription.generation >= generation:
                continue
            newest, _ = held.get(partition, (-2, None))
            if subscription.generation > newest:
                held[partition] = (subscription.generation, name)
            elif subscription.generation == newest:
                held[partition] = (newest, None)
    return {
        name: encode_assignment(
            Assignment(
                partitions=frozenset(partition for partition, (_, owner) in held.items() if owner == name),
                user_data=_note(subscription),
            )
        )
        for name, subscription in claims.items()
    }


def _claims(member: JoinedMember) -> Subscription:
    try:
        return decode_subscription(member.metadata)
    except HoldfastError:  # a stranger's bytes: it is given nothing, and claims nothing that we could read
        return Subscription(topics=())


def _note(subscription: Subscription) -> bytes | None:
    """Ours are told that the leader is one of them, so that nobody heartbeats quickly for a second round."""
    return None if read_member_note(subscription.user_data) is None else encode_leader_note(LeaderNote())
