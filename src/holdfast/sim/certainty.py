"""Whether a simulated application may go on with what its member owns. The rule is the group's (`may_process`).

If the coordinator has acknowledged nothing for a session timeout, others may own everything by now. The application
then stops until its member is acknowledged again, or hears that it has lost its partitions. A batch in work is finished
first. Other clients have no such rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.group.member import may_process

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember

JUST_AFTER_MS = 0.01
"""How long after the session timeout we look. Less than the quickest message takes: the coordinator counts from the
arrival of our last message, so it always expires the session later."""


class Certainty:
    """Holds one process back while it can't be sure of its partitions."""

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self.unsure = False
        # A hook for mutations.
        self.may_process = may_process

    def start(self) -> None:
        if not self._member.plan.foreign:
            self._look_later()

    def look(self) -> None:
        """Stop the application or let it go on, as the rule says now."""
        member = self._member
        if member.plan.foreign or member.dead:
            return
        sure = self.may_process(member.state, member.world.clock.now)
        if not sure and not self.unsure and not member.polling.working:
            self.unsure = True
            member.app.stall("unsure")
        elif sure and self.unsure:
            self.unsure = False
            if not member.polling.hung and not member.frozen:
                member.app.go_on("sure")

    def _look_later(self) -> None:
        """Look when the session may be over, counted from what was acknowledged so far."""
        member = self._member
        over_at = member.state.requests.vouched_at + member.plan.session_timeout_ms + JUST_AFTER_MS
        if over_at <= member.world.clock.now:
            self.look()
            over_at = member.world.clock.now + member.plan.session_timeout_ms
        member.world.clock.at(over_at, member.run, self._look_later)
