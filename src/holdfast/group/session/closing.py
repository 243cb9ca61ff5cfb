"""How a close ends: what is done, in which order, and what follows if time runs out.

1. What no revoke will commit is committed: partitions that were assigned by hand, work that was finished long ago.
2. The machine gets `Close`, unless the member is out of the group already. It has everything revoked, with the steps
   around that (`steps`), and leaves. Nothing but the listener's calls is made until `is_out`.
3. What is still under way of commits is waited for: nobody would try them again.
4. If the member is out by then, its watchdog is sent to rest. If time ran out, the member is as good as dead: its
   watchdog commits and leaves for it, so that its partitions need not wait for the session timeout.
"""

from __future__ import annotations

from holdfast.group.member.state import MemberState, Phase

CLOSE_MS = 10_000.0
"""How long a close waits for the coordinator, in all. Spark gives a query less: it does not wait for a reader that it
stops."""


def is_out(state: MemberState, *, calls_wait: bool) -> bool:
    """Whether nothing more can be expected of the group. A member that has failed gets no answer to a leave. What the
    listener has not heard yet it must hear first."""
    return state.phase in (Phase.CLOSED, Phase.FAILED) and not calls_wait
