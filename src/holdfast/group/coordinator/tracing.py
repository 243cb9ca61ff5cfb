"""How refusals are traced: in words an operator can act on."""

from __future__ import annotations

from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.roster import Roster
from holdfast.model import ErrorCode, Membership

WORDS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group is gone",
    ErrorCode.ILLEGAL_GENERATION: "its generation is over",
    ErrorCode.UNKNOWN_MEMBER_ID: "it is not a member",
    ErrorCode.FENCED_INSTANCE_ID: "another process has taken over its instance id",
    ErrorCode.REBALANCE_IN_PROGRESS: "a round is under way",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "it has no protocol in common with the group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "its session timeout is out of bounds",
    ErrorCode.INVALID_CONFIG: "its instance id is empty or too long",
    ErrorCode.MESSAGE_TOO_LARGE: "its metadata is too large",
}


def trace_refusal(
    roster: Roster, step: Step, what: str, who: Membership, instance_id: str | None, error: ErrorCode
) -> None:
    """One record per refusal. Fencing has a step of its own: it means two processes with one instance id."""
    cause = WORDS.get(error, error.name)
    if error is ErrorCode.FENCED_INSTANCE_ID:
        holder = roster.static.get(instance_id or "", "")
        step.trace(
            "fenced",
            member=who.member_id,
            generation=roster.generation,
            cause=f"{cause} {instance_id}",
            culprit=holder,
            request=what.removesuffix("-refused"),
        )
        return
    step.trace(what, member=who.member_id, generation=who.generation, cause=cause, error=error.name)
