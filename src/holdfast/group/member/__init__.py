"""A member of a consumer group: KIP-429's consumer side as a pure machine.

    state = MemberState(config=MemberConfig(group="orders", assignors=..., protocol=select_protocol(...)))
    state, effects = step(state, Subscribe(frozenset({"orders"})), now=0.0)

`step` takes an event and returns the next state and the effects that the driver performs: send, plan, notify the
listener. Time is an argument, and `next_deadline` says when the next Tick is wanted. The consumer, the Spark source
and the simulator drive this very machine.
"""

from holdfast.group.member.effects import (
    Assigned,
    Call,
    Closed,
    CountMembers,
    Effect,
    Emit,
    Fail,
    ForgetCoordinator,
    Lost,
    Notify,
    OnAssignment,
    Plan,
    Poke,
    Revoked,
    Send,
    Tell,
)
from holdfast.group.member.events import (
    Close,
    CommitAnswered,
    Drain,
    Enforce,
    Event,
    GroupSized,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    MetadataChanged,
    Notified,
    PlanFailed,
    Planned,
    Poked,
    Polled,
    RequestFailed,
    Subscribe,
    SyncAnswered,
    Tick,
    Unsubscribe,
)
from holdfast.group.member.joining import select_protocol
from holdfast.group.member.stable import may_process, next_deadline
from holdfast.group.member.state import MemberConfig, MemberState, Phase
from holdfast.group.member.table import TABLE, IllegalEvent, UndeclaredTransition, step, strict_step

__all__ = [
    "TABLE",
    "Assigned",
    "Call",
    "Close",
    "Closed",
    "CommitAnswered",
    "CountMembers",
    "Drain",
    "Effect",
    "Emit",
    "Enforce",
    "Event",
    "Fail",
    "ForgetCoordinator",
    "GroupSized",
    "HeartbeatAnswered",
    "IllegalEvent",
    "JoinAnswered",
    "LeaveAnswered",
    "Lost",
    "MemberConfig",
    "MemberState",
    "MetadataChanged",
    "Notified",
    "Notify",
    "OnAssignment",
    "Phase",
    "Plan",
    "PlanFailed",
    "Planned",
    "Poke",
    "Poked",
    "Polled",
    "RequestFailed",
    "Revoked",
    "Send",
    "Subscribe",
    "SyncAnswered",
    "Tell",
    "Tick",
    "UndeclaredTransition",
    "Unsubscribe",
    "may_process",
    "next_deadline",
    "select_protocol",
    "step",
    "strict_step",
]
