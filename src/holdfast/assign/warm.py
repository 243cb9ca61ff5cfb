"""Compile every kernel now, so that the first large plan on this machine does not: `python -m holdfast.assign.warm`.

Compiling takes some ten seconds, once: numba keeps the result on disk. Without this the first leader of a large group
pays for it in the middle of a rebalance. Groups below some ten thousand partitions never need it.
"""

from __future__ import annotations

from holdfast.assign.assignors import sticky_user_data
from holdfast.assign.kernels import compiling
from holdfast.assign.rounds import STRATEGIES, plan_round
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import encode_subscription


def warm() -> None:
    """Plan small groups that between them go through every kernel: equal and differing, with racks and without."""
    plain = ClusterView({"t": TopicView(4), "u": TopicView(2)})
    spots = (frozenset("a"), frozenset("b"))
    racked = ClusterView({"t": TopicView(4, spots * 2), "u": TopicView(2, spots)})
    with compiling():
        for view in (plain, racked):
            for wanted in (("t", "u"), ("t",)):
                for strategy in STRATEGIES:
                    plan_round(strategy, view, _members(wanted)).encode()


def _members(wanted: tuple[str, ...]) -> list[JoinedMember]:
    """One member that holds everything, one that joins and wants `wanted`."""
    owned = frozenset(TopicPartition("t", number) for number in range(4))
    holder = Subscription(
        topics=("t", "u"), owned=owned, generation=1, rack="a", user_data=sticky_user_data(owned, generation=1)
    )
    newcomer = Subscription(topics=wanted, rack="b")
    return [
        JoinedMember(member_id="holder", metadata=encode_subscription(holder)),
        JoinedMember(member_id="newcomer", metadata=encode_subscription(newcomer)),
    ]


if __name__ == "__main__":
    warm()
