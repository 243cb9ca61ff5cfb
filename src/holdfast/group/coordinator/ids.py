"""Member ids: made by a source the driver gives, from a name that people recognise."""

from __future__ import annotations

from holdfast.group.coordinator.roster import Roster
from holdfast.group.messages import JoinRequest
from holdfast.model import HoldfastError

NAME_LENGTH = 200
"""How much of a client's name goes into its member ids: with a UUID after it an id stays within 249 characters."""

ATTEMPTS = 8
"""A source that repeats itself so often is broken."""


def fresh_member_id(roster: Roster, request: JoinRequest) -> str:
    """An id that nobody in this group has (KAFKA-8715)."""
    name = request.client_id if request.instance_id is None else request.instance_id
    for _ in range(ATTEMPTS):
        member_id = roster.new_member_id(name[:NAME_LENGTH])
        if member_id and member_id not in roster.members and member_id not in roster.pending:
            return member_id
    raise HoldfastError(
        "MEMBER_IDS_REPEAT",
        f"The source of member ids gave {ATTEMPTS} ids in a row that group {roster.group_id} has already.",
        "Give the coordinator a source whose ids are unique, such as one made from uuid4.",
    )
