"""What a simulated driver does when its member leads: it runs the assignor, and tells the machine what came of it.

An assignor can be made to fail for a while. Under the cooperative protocol everybody then keeps its partitions; under
the eager one there is nothing to keep, and planning is tried again while the round lasts, as in `net.driver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.assign import by_name
from holdfast.group import leader
from holdfast.group.member import Plan, PlanFailed, Planned
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember

RETRY_MS = 500.0

FAILURE = ("ASSIGNOR_FAILED", "the assignor raised.", "Nothing: it is part of the scene.")
"""What a simulated assignor raises. Users meet the driver's error of this code, with better advice."""


class Planning:
    """The plans of one process."""

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self._last_plan: leader.LeaderPlan | leader.KeptPlan | None = None
        self.fails_until = 0.0
        """Until then the assignor fails."""

    def begin(self, effect: Plan) -> None:
        self._member.later(self._member.world.config.plan_ms, self._plan, effect)

    def _plan(self, effect: Plan) -> None:
        member = self._member
        try:
            if member.world.clock.now < self.fails_until:
                raise HoldfastError(*FAILURE)
            made = member.plan_round(
                by_name(effect.protocol),
                member.polling.cluster,
                effect.members,
                generation=effect.generation,
                before=self._last_plan,
                leader=member.state.membership.member_id,
                token=f"{member.incarnation:04x}{effect.generation:012x}",
                notes_bytes=member.world.config.notes_bytes,
                short_notes=member.world.config.short_notes,
                marks=member.plan.marks and not member.plan.foreign,
            )
        except HoldfastError as error:
            self._failed(effect, error)
            return
        self._last_plan = made
        member.feed(
            Planned(
                effect.serial,
                made.assignments,
                made.planned_for,
                made.all_list,
                made.doubts,
                made.round.transferring,
                hands_over=bool(made.handed),
            )
        )

    def _failed(self, effect: Plan, error: HoldfastError) -> None:
        member = self._member
        if not member.state.cooperative:
            member.feed(PlanFailed(effect.serial, error))
            member.later(RETRY_MS, self._plan_again, effect)
            return
        kept = member.keep_round(
            member.polling.cluster, effect.members, generation=effect.generation, before=self._last_plan
        )
        self._last_plan = kept
        member.feed(PlanFailed(effect.serial, error, kept.assignments, hands_over=bool(kept.waiting)))

    def _plan_again(self, effect: Plan) -> None:
        if self._member.state.requests.pending == effect.serial:
            self._plan(effect)
