"""Assignors: who gets which partition. Pure: from the members' bytes to the leader's answer, and nothing else.

`plan_round` is the leader's whole round. `by_name` gives a built-in assignor by its name in the group protocol.
"""

from holdfast.assign.assignors import by_name, sticky_user_data
from holdfast.assign.plan import Handover, RoundPlan
from holdfast.assign.rounds import STRATEGIES, plan_round, topics_of

__all__ = ["STRATEGIES", "Handover", "RoundPlan", "by_name", "plan_round", "sticky_user_data", "topics_of"]
