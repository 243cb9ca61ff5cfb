"""Who leads a round: the last leader, if it has joined and no member has a newer version of the group's assignor.

In a deploy that changes a program's own assignor, members of two versions meet. A new version can read what an old one
says, and plan by the old rules; an old one can do neither. So the highest version leads, as KIP-429 proposes.
"""

from __future__ import annotations

from holdfast.group.coordinator.roster import Member, Roster
from holdfast.group.messages import CONSUMER_PROTOCOL_TYPE
from holdfast.group.user_data import read_member_note
from holdfast.model import HoldfastError
from holdfast.model.consumer_protocol import decode_subscription

VERSION_HINT = b'"av":'
"""These bytes are in every note that names a version. Without them no subscription is decoded."""


def leader_of_round(roster: Roster) -> str:
    """The member that plans, of those that have joined. If the last leader can't, the longest-standing member does."""
    here = [member for member_id, member in roster.members.items() if member_id not in roster.awaited]
    versions = {member.member_id: _version(roster, member) for member in here}
    newest = max(versions.values())
    if versions.get(roster.leader, -1) == newest:
        return roster.leader
    return next(member.member_id for member in here if versions[member.member_id] == newest)


def _version(roster: Roster, member: Member) -> int:
    """Of the assignor that the group chose; 0 where the member does not say."""
    metadata = member.metadata(roster.protocol)
    if VERSION_HINT not in metadata or roster.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return 0
    try:
        note = read_member_note(decode_subscription(metadata).user_data)
    except HoldfastError:
        return 0
    return 0 if note is None else note.version
