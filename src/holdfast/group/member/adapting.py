"""A member without a configured assignor: it adapts to the protocol that its group runs.

It can join in two ways. As a cooperative member it lists cooperative assignors only. As an eager member it lists
librdkafka's default assignors and a cooperative one after them, and gives everything up before it joins; so it can join
a group that still runs range.

Rules
- A member that keeps partitions while it joins lists cooperative assignors and nothing else. So no coordinator can
  choose an assignor that ignores claims. Safety depends on this rule alone; the others are about becoming cooperative.
- A new member looks at the group first. It joins an empty or cooperative group cooperatively, and any other eagerly.
- If a cooperative join is refused (another member lists no cooperative assignor), the member joins eagerly.
- A round that runs a cooperative assignor makes all its members cooperative: all of them list it.
- The leader of an eager group tries a cooperative join after every member has listed such an assignor for a while. If
  it is accepted, the round that follows is the last eager one. If it is refused, nothing has changed, and the leader
  tries again later.
"""

from __future__ import annotations

from holdfast.group.member.events import Planned, Subscribe
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.turn import Turn

UPGRADE_REASON = "every member lists a cooperative assignor: the group becomes cooperative"
FITTING_IN_REASON = "the group is not cooperative: joining it under the eager protocol"

TRY_AGAIN_MS = 60_000.0
"""Shortest time between two tries while some member does not say which assignors it lists. Only a try can tell then,
and it costs one request a minute."""


def choose(turn: Turn, event: Subscribe) -> None:
    """Choose between a cooperative and an eager join, by the assignor that the group runs."""
    config = turn.state.config
    if config.eager_assignors:
        fits = event.runs == "" or event.runs in {assignor.name for assignor in config.assignors}
        turn.set_adapting(eager=not fits)


def fits_in(state: MemberState) -> bool:
    """Whether we may answer INCONSISTENT_GROUP_PROTOCOL by joining eagerly, with other assignors."""
    return bool(state.config.eager_assignors) and not state.adapting.eager


def undo_upgrade(turn: Turn) -> bool:
    """If the refused join was the leader's try to become cooperative, go back to STABLE and return True: a refused join
    changes nothing in the group, so we are still its member."""
    state = turn.state
    if state.round.reason != UPGRADE_REASON or state.lost or not state.membership.joined:
        return False
    after = state.config.cooperative_after_ms
    turn.set(phase=Phase.STABLE)
    turn.set_beats(next_at=turn.now)  # ask at once whether a round has started meanwhile
    again_at = None if after is None else turn.now + max(after, TRY_AGAIN_MS)
    turn.set_adapting(eager=True, all_can=False, upgrade_at=again_at)
    turn.trace("upgrade-refused", cause="a member lists no cooperative assignor")
    return True


def fit_in(turn: Turn) -> None:
    turn.set_adapting(eager=True)
    turn.trace("became-eager", cause=FITTING_IN_REASON)


def joined(turn: Turn, protocol: str) -> None:
    """The coordinator has chosen the assignor of a round that we joined eagerly."""
    state = turn.state
    if protocol in {assignor.name for assignor in state.config.assignors}:
        turn.set_adapting(eager=False, all_can=False, upgrade_at=None)
        turn.trace("became-cooperative", cause=f"the group runs {protocol}")
    elif not state.round.leads:
        turn.set_adapting(all_can=False, upgrade_at=None)


def planned(turn: Turn, event: Planned) -> None:
    """We planned a round. If it was an eager one, set when to try to make the group cooperative."""
    state = turn.state
    after = state.config.cooperative_after_ms
    if not state.adapting.eager or after is None:
        return
    can = all(assignor.name in event.all_list for assignor in state.config.assignors)
    if can and state.adapting.all_can and state.adapting.upgrade_at is not None:
        return  # the time runs already, since the first round in which all members could
    turn.set_adapting(all_can=can, upgrade_at=turn.now + (after if can else max(after, TRY_AGAIN_MS)))


def due_at(state: MemberState) -> float | None:
    """When to try to make the group cooperative; None if there is nothing to try."""
    upgrade_at = state.adapting.upgrade_at
    if upgrade_at is None or state.phase is not Phase.STABLE or not state.adapting.eager:
        return None
    return upgrade_at if state.round.leads and state.owed is None and state.draining is None else None


def begin(turn: Turn) -> None:
    """Start the try: the join that follows is a cooperative one, which gives nothing up."""
    turn.set_adapting(eager=False, upgrade_at=None)
    turn.trace("upgrading", cause=UPGRADE_REASON)
