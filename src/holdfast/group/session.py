"""Between the machine's `Notify` and its `Notified`: what an application's side does around each call, in which order.

One set of rules for everybody who drives a member: `Consumer`, `AsyncConsumer`, the Spark source and the simulator.
They perform the steps, in order and every one of them, whatever a listener raises. The order is KIP-429's, and each
step says what would go wrong without it. When all calls of a round are made, the machine is answered with the final
positions of what was let go and handed over.

Positions that were handed over to us are committed at once, before any of these steps: see `not_committed_yet`.

Pure: a step is a value, and nothing here waits, reads or commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.group.member.effects import Assigned, Call, Lost, OnAssignment, Revoked
from holdfast.group.member.state import MemberState
from holdfast.group.offsets import join_carries_positions, positions_reach
from holdfast.model import TopicPartition


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Hand out no more records of these, and let what is in work be finished: the commit that follows includes it."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CommitBefore:
    """Commit how far these are processed, before the listener is told.

    With `waits`, wait for the answer: the next owner asks the coordinator where to go on, and if our join overtook the
    commit, it would do our work again. Without, the join carries the positions (see `positions_reach`), and the commit
    is sent ahead of it. If the round is cut, the leader hands the positions over again (`leader._untaken`).
    """

    partitions: frozenset[TopicPartition]
    waits: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Call the application's listener."""

    call: Call


@dataclass(frozen=True, slots=True)
class CommitAfter:
    """As `CommitBefore`, for what the listener itself has stored or committed. After it the positions are final."""

    partitions: frozenset[TopicPartition]
    waits: bool


@dataclass(frozen=True, slots=True)
class LetGo:
    """Stop reading these and forget them: from here on another member may read them.

    With `hands_over`, the next join carries their final positions.
    """

    partitions: frozenset[TopicPartition]
    hands_over: bool


@dataclass(frozen=True, slots=True)
class Start:
    """Read these, once the machine is answered: from the position that was handed over, or else the committed one."""

    partitions: frozenset[TopicPartition]


Step: TypeAlias = HoldBack | CommitBefore | Tell | CommitAfter | LetGo | Start


def steps_around(state: MemberState, call: Call) -> tuple[Step, ...]:
    """What to do for one call of a round, in order."""
    match call:
        case Revoked(partitions) if not state.lost:
            return _giving_up(state, call, partitions)
        case Revoked(partitions) | Lost(partitions):
            # Others may own them already. So nothing is committed, and nothing more is read while the listener runs.
            return LetGo(partitions, hands_over=False), Tell(Lost(partitions))
        case Assigned(partitions):
            return Tell(call), Start(partitions)
        case OnAssignment():
            return (Tell(call),)


def _giving_up(state: MemberState, call: Revoked, partitions: frozenset[TopicPartition]) -> tuple[Step, ...]:
    reach = positions_reach(state, partitions)
    # A leader that drains leaves right after the round that hands its positions over. If that round is cut, nobody is
    # left who could hand them over again.
    waits = not reach or (state.round.leads and state.draining is not None)
    # A draining member joins once more only if its positions reach the next owners.
    told = reach or (join_carries_positions(state) and state.draining is None)
    return (
        HoldBack(partitions),
        CommitBefore(partitions, waits=waits),
        Tell(call),
        CommitAfter(partitions, waits=waits),
        LetGo(partitions, hands_over=told),
    )
