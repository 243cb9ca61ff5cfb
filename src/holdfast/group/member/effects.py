"""What a member wants done. The driver performs these in order and answers with events; the machine does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.group.messages import HeartbeatRequest, JoinRequest, LeaveRequest, SyncRequest
from holdfast.group.user_data import Endpoint, Positions
from holdfast.model import Assignment, HoldfastError, JoinedMember, Membership, TopicPartition, TraceRecord


@dataclass(frozen=True, slots=True)
class Send:
    """Send to the group's coordinator; answer with the event of the same serial, or with `RequestFailed`."""

    serial: int
    request: JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """The coordinator is not (or no longer) where we thought: look it up again before the next send."""


@dataclass(frozen=True, slots=True)
class Plan:
    """We lead: run the assignor over these members, answer with `Planned` or `PlanFailed`."""

    serial: int
    protocol: str
    members: tuple[JoinedMember, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """Stop processing, commit if so configured, tell the listener, remember final positions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Lost:
    """Stop processing, commit nothing, tell the listener: the membership was taken away."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class OnAssignment:
    """Tell the assignor of the chosen protocol what its member received."""

    protocol: str
    assignment: Assignment
    membership: Membership


@dataclass(frozen=True, slots=True)
class Assigned:
    """Start processing these, from the handed-over offset where there is one; tell the listener even when empty."""

    partitions: frozenset[TopicPartition]
    offsets: Positions = field(default_factory=dict)


Call = Revoked | Lost | OnAssignment | Assigned


@dataclass(frozen=True, slots=True)
class Notify:
    """Make these calls in this order on the application's thread, all of them whatever they raise, then `Notified`."""

    serial: int
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Poke:
    """Tell the peers that a rebalance has begun, once the request that starts it has reached the coordinator."""

    peers: tuple[Endpoint, ...]
    token: str
    known: bool
    """Whether the coordinator knows already: a leave was answered, while a join is only on its way."""
    words: tuple[str, ...] = ()
    """In a large group, where pokes are passed on: which pokes of the generation these are (`turn.UNSURE_WORDS`)."""

    def datagrams(self) -> tuple[bytes, ...]:
        """What is sent, one after the other. If the coordinator may not know yet there are two: the first may come too
        early."""
        token = self.token.encode()
        if self.words:
            return tuple(token + b" " + word.encode() for word in self.words)
        return (token,) if self.known else (token, token)


@dataclass(frozen=True, slots=True)
class CountMembers:
    """Ask how many members the group has and answer with `GroupSized`, or not at all if that can't be learnt."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Report an error to the application; the member goes on."""

    error: HoldfastError


@dataclass(frozen=True, slots=True)
class Fail:
    """The member can't go on: a fatal error, which polls keep returning."""

    error: HoldfastError


@dataclass(frozen=True, slots=True)
class Closed:
    """The member has ended; the driver may close its connections."""


@dataclass(frozen=True, slots=True)
class Emit:
    """One step for the trace."""

    record: TraceRecord


Effect = Send | ForgetCoordinator | Plan | Notify | Poke | CountMembers | Tell | Fail | Closed | Emit
