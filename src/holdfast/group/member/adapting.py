"""Joining what runs: a member that nobody told which assignor to use.

It has two faces. Cooperative, it lists cooperative assignors alone. Eager, it lists what librdkafka's default lists and
a cooperative one behind that, gives everything up before it joins, and so fits into a group that still runs range.

Rules
- Whoever keeps partitions while it joins lists cooperative assignors and nothing else: then no coordinator can choose
  an assignor that does not know of claims. All safety rests on this one; the rest is about getting there.
- Who comes looks first. A group that is empty or cooperative is joined cooperatively, any other one eagerly.
- A cooperative join that is refused (somebody lists no cooperative assignor) is repeated eagerly.
- A round that runs a cooperative assignor makes everybody in it cooperative: all of them list it.
- The leader of an eager group tries a cooperative join when every member has listed such an assignor for a while. If it
  is taken, the round that follows is the last eager one. If it is refused, nothing has happened; it tries again later.
"""

from __future__ import annotations

from holdfast.group.member.events import Planned, Subscribe
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.turn import Turn

UPGRADE_REASON = "every member lists a cooperative assignor: the group becomes cooperative"
FITTING_IN_REASON = "the group is not cooperative: joining it under the eager protocol"

TRY_AGAIN_MS = 60_000.0
"""The least time between two tries while somebody does not say what it lists: only a refusal tells, and that is one
request a minute."""


def choose(turn: Turn, event: Subscribe) -> None:
    """How to come to a group that looks like this."""
    config = turn.state.config
    if config.eager_assignors:
        fits = event.runs == "" or event.runs in {assignor.name for assignor in config.assignors}
        turn.set(eager=not fits)


def fits_in(state: MemberState) -> bool:
    """Whether a refusal for want of a common assignor may be met by listing others."""
    return bool(state.config.eager_assignors) and not state.eager


def refused_upgrade(turn: Turn) -> bool:
    """Whether what was refused was the leader's own try. Then the group stands as it stood, and we are in it still."""
    state = turn.state
    if state.join_reason != UPGRADE_REASON or state.lost or not state.membership.joined:
        return False
    after = state.config.cooperative_after_ms
    turn.set(
        phase=Phase.STABLE,
        eager=True,
        all_can=False,
        upgrade_at=None if after is None else turn.now + max(after, TRY_AGAIN_MS),
        next_heartbeat_at=turn.now,  # was there a round after all?
    )
    turn.trace("upgrade-refused", cause="a member lists no cooperative assignor")
    return True


def fit_in(turn: Turn) -> None:
    turn.set(eager=True)
    turn.trace("became-eager", cause=FITTING_IN_REASON)


def joined(turn: Turn, protocol: str) -> None:
    """This round's assignor is chosen."""
    state = turn.state
    if state.eager and protocol in {assignor.name for assignor in state.config.assignors}:
        turn.set(eager=False, all_can=False, upgrade_at=None)
        turn.trace("became-cooperative", cause=f"the group runs {protocol}")
    elif state.eager and not state.leader:
        turn.set(all_can=False, upgrade_at=None)


def planned(turn: Turn, event: Planned) -> None:
    """As the leader of an eager round: when to try."""
    state = turn.state
    after = state.config.cooperative_after_ms
    if not state.eager or after is None:
        return
    can = all(assignor.name in event.all_list for assignor in state.config.assignors)
    if can and state.all_can and state.upgrade_at is not None:
        return  # the time runs since the round in which the last one who could not was gone
    turn.set(all_can=can, upgrade_at=turn.now + (after if can else max(after, TRY_AGAIN_MS)))


def due_at(state: MemberState) -> float | None:
    """When to try, if there is anything to try."""
    waits = state.phase is Phase.STABLE and state.eager and state.leader and state.rejoin is None
    return state.upgrade_at if waits and state.draining is None else None


def begin(turn: Turn) -> None:
    """Try: join as a cooperative member would, with everything in hand."""
    turn.set(eager=False, upgrade_at=None)
    turn.trace("upgrading", cause=UPGRADE_REASON)
