"""The end of a group on this coordinator, and the answers to requests that come after it."""

from __future__ import annotations

from holdfast.group.coordinator.checks import refusal
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import (
    Committed,
    Deleted,
    Heartbeat,
    IdWanted,
    Joined,
    Left,
    OffsetsAsked,
    OffsetsDeleted,
    Rejoined,
    Returned,
    Synced,
    Unloaded,
)
from holdfast.group.coordinator.roster import Roster
from holdfast.group.coordinator.rounds import answer_parked, in_order
from holdfast.group.coordinator.states import State
from holdfast.group.messages import FetchOffsetsAnswer
from holdfast.model import ErrorCode

FromClient = IdWanted | Joined | Returned | Rejoined | Synced | Heartbeat | Left | Committed | OffsetsDeleted | Deleted


def unload(roster: Roster, event: Unloaded, step: Step) -> None:
    """Stops serving the group: waiting clients are answered NOT_COORDINATOR. The log keeps what was written."""
    for member in in_order(roster):
        answer_parked(roster, step, member, ErrorCode.NOT_COORDINATOR)
    roster.deadlines.clear_all()
    roster.move(State.DEAD, step.now)


def refuse_unavailable(roster: Roster, event: FromClient, step: Step) -> None:
    """Refuses: COORDINATOR_NOT_AVAILABLE, so that the client looks the coordinator up again."""
    step.reply(event.token, refusal(event.request, ErrorCode.COORDINATOR_NOT_AVAILABLE))


def refuse_unknown(roster: Roster, event: FromClient, step: Step) -> None:
    """Refuses: UNKNOWN_MEMBER_ID."""
    step.reply(event.token, refusal(event.request, ErrorCode.UNKNOWN_MEMBER_ID))


def refuse_not_found(roster: Roster, event: FromClient, step: Step) -> None:
    """Refuses: GROUP_ID_NOT_FOUND."""
    step.reply(event.token, refusal(event.request, ErrorCode.GROUP_ID_NOT_FOUND))


def show_nothing(roster: Roster, event: OffsetsAsked, step: Step) -> None:
    """Answers no offsets, as for a group that never existed."""
    step.reply(event.token, FetchOffsetsAnswer())
