"""Deliberately broken members and coordinators: each re-introduces a fault that other clients shipped, or breaks a rule
of our own; a checker must notice it.

A mutation damages the machines of one world before it starts, never the code itself, so that sound worlds can run
beside it. `grounds` has worlds with enough faults for every mutation to show.
"""

from holdfast.sim.mutations.commits import COMMITS
from holdfast.sim.mutations.coordinators import COORDINATORS
from holdfast.sim.mutations.handovers import HANDOVERS
from holdfast.sim.mutations.leaders import LEADERS
from holdfast.sim.mutations.members import MEMBERS
from holdfast.sim.mutations.mutation import Mutation
from holdfast.sim.mutations.session import SESSION
from holdfast.sim.mutations.watchdogs import WATCHDOGS

MUTATIONS: tuple[Mutation, ...] = (*LEADERS, *MEMBERS, *COMMITS, *SESSION, *HANDOVERS, *WATCHDOGS, *COORDINATORS)

__all__ = ["MUTATIONS", "Mutation"]
