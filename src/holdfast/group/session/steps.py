"""Between the machine's `Notify` and its `Notified`: what an application's side does around each call, in which order.

Drivers perform the steps, in order and every one of them, whatever a listener raises. The order is KIP-429's, and each
step says what would go wrong without it. When all calls of a round are made, the machine is answered with the final
positions of what was let go and handed over.

Positions that were handed over to us are committed at once, before any of these steps: see `progress`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from holdfast.group.member.effects import Assigned, Call, Lost, OnAssignment, Revoked
from holdfast.group.member.state import MemberState
from holdfast.group.offsets import join_carries_positions, positions_reach
from holdfast.model import TopicPartition

REVOKE_MS = 5_000.0
"""Time limit for commits at a revoke: the group waits for them (KAFKA-13310)."""

CARRIED_MS = 1_000.0
"""The same where the next join also carries the positions. A commit takes milliseconds. If it takes longer than this,
the coordinator is in trouble and the positions in the join have to suffice. They do, unless their receiver fails too.
"""


class Committer(Enum):
    """Who commits what an application has processed."""

    AUTOMATIC = auto()
    """The driver. A round goes on without the answer where the join carries the positions."""
    CERTAIN = auto()
    """The driver, and it always waits: what is processed must never be processed again. There is no listener."""
    BY_APPLICATION = auto()
    """The application, whenever it likes. What it commits while its listener is called is handed over, and no more."""


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Hand out no more records of these, and let what is in work be finished: the commit that follows includes it.

    With `ahead_of_join`, every commit from here to `LetGo` is sent on the join's connection, which can't overtake it.
    """

    partitions: frozenset[TopicPartition]
    ahead_of_join: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit how far these are processed: once before the listener is told, and once more for what the listener itself
    has stored. If the round is cut or has no plan, the next one hands over the positions that went with the join
    (`leader._untaken`), but they may get lost with their receiver."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until no commit is under way, but not longer than this.

    The next owner asks the coordinator where to go on, and if our join overtook a commit, it would do our work again.
    """

    limit_ms: float
    partitions: frozenset[TopicPartition]
    only_theirs: bool = False
    """Whether there is nothing to wait for unless a commit of these is under way."""
    with_text_ms: float = 0.0
    """The limit if one of their final positions has metadata, which joins don't carry."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Call the application's listener."""

    call: Call


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


Step: TypeAlias = HoldBack | Commit | Await | Tell | LetGo | Start


def steps_around(state: MemberState, call: Call, committer: Committer) -> tuple[Step, ...]:
    """What to do for one call of a round, in order."""
    match call:
        case Revoked(partitions) if not state.lost:
            carried = positions_reach(state, partitions)
            # A draining member joins once more only if its positions reach the next owners.
            hands_over = carried or (join_carries_positions(state) and state.draining is None)
            return (
                HoldBack(partitions, ahead_of_join=carried),
                *_around_the_listener(call, partitions, committer, carried=carried),
                LetGo(partitions, hands_over=hands_over),
            )
        case Revoked(partitions) | Lost(partitions):
            # Others may own them already. So nothing is committed, and nothing more is read while the listener runs.
            return LetGo(partitions, hands_over=False), Tell(Lost(partitions))
        case Assigned(partitions):
            return Tell(call), Start(partitions)
        case OnAssignment():
            return (Tell(call),)


def _around_the_listener(
    call: Revoked, partitions: frozenset[TopicPartition], committer: Committer, *, carried: bool
) -> tuple[Step, ...]:
    """`carried`: whether the next join brings the positions to the next owners."""
    commit, tell, wait = Commit(partitions), Tell(call), Await(REVOKE_MS, partitions)
    match committer:
        case Committer.CERTAIN:
            return commit, wait, tell
        case Committer.BY_APPLICATION:
            # What it has committed before is not handed over. What it commits in its listener is.
            last = Await(CARRIED_MS, partitions, with_text_ms=REVOKE_MS) if carried else wait
            return wait, tell, last
        case Committer.AUTOMATIC if carried:
            # An older commit under way takes the other connection, and must not come after the one that goes ahead.
            older = Await(CARRIED_MS, partitions, only_theirs=True)
            return older, commit, tell, commit, Await(0.0, partitions, with_text_ms=REVOKE_MS)
        case Committer.AUTOMATIC:
            return commit, wait, tell, commit, wait
