"""The topics that members subscribe to: all that a coordinator reads of their metadata, and only for consumers.

A subscription that can't be read counts as subscribed to everything: an offset must not be forgotten because of it.
"""

from __future__ import annotations

from holdfast.group.coordinator.roster import Member, Roster
from holdfast.group.messages import CONSUMER_PROTOCOL_TYPE
from holdfast.model import HoldfastError
from holdfast.model.consumer_protocol import decode_head

MAX_TOPICS = 10_000
"""A longer list is not read: all groups' heartbeats would wait for it. No cluster of one broker has as many."""


def topics_of(roster: Roster, member: Member | None) -> frozenset[str] | None:
    """The topics of one member, or None when that can't be known."""
    if member is None or roster.protocol_type != CONSUMER_PROTOCOL_TYPE or not member.protocols:
        return None
    metadata = member.metadata(roster.protocol) or member.protocols[0][1]
    try:
        return frozenset(decode_head(metadata, MAX_TOPICS)[0])
    except HoldfastError:
        return None


def subscribed_topics(roster: Roster) -> frozenset[str] | None:
    """The topics of all members together, or None when that can't be known."""
    if not roster.members:
        return frozenset()
    topics: set[str] = set()
    for member in roster.members.values():
        theirs = topics_of(roster, member)
        if theirs is None:
            return None
        topics |= theirs
    return frozenset(topics)
