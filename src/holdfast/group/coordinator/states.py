"""The five states of a group, as Kafka names them. What each of them answers is in `table`."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a group stands."""

    # An enum's members are singletons, so hashing by identity is right, and faster than Enum's hash, written in Python.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    """No members; maybe offsets, maybe ids given out and not used yet.

    Replies: a join starts the first round; members' requests are answered UNKNOWN_MEMBER_ID; commits from outside are
    taken; deletions are done.
    Transitions: first member -> PREPARING, or without an initial delay COMPLETING; deleted, unloaded, or nothing left
    worth keeping -> DEAD.
    """
    PREPARING = "PreparingRebalance"
    """The join barrier: everybody is asked to join again.

    Replies: joins are parked until all have come; heartbeats and syncs are answered REBALANCE_IN_PROGRESS; commits of
    the generation before are taken.
    Transitions: all joined, or time is up -> COMPLETING, or EMPTY when nobody is left; unloaded -> DEAD.
    """
    COMPLETING = "CompletingRebalance"
    """The sync barrier: the generation is out, the leader's plan is awaited.

    Replies: syncs are parked until the plan comes; heartbeats are fine; commits are answered REBALANCE_IN_PROGRESS; a
    join with nothing new is answered once more.
    Transitions: the plan arrives -> STABLE; a member joins, leaves, fails or does not sync -> PREPARING, or EMPTY when
    nobody is left; unloaded -> DEAD.
    """
    STABLE = "Stable"
    """Everybody has, or can fetch, its part of the plan.

    Replies: syncs get the stored part; heartbeats are fine; commits of this generation are taken; a follower's join
    with nothing new is answered with the current generation.
    Transitions: a new member joins, one changes its subscription, leaves or fails, or the leader joins -> PREPARING, or
    COMPLETING when it is alone; nobody is left -> EMPTY; unloaded -> DEAD.
    """
    DEAD = "Dead"
    """Deleted or unloaded. Only requests that were already on their way still reach it.

    Replies: COORDINATOR_NOT_AVAILABLE, so that they look the coordinator up again (KAFKA-8386).
    Transitions: none.
    """
