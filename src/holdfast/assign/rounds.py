"""The leader's whole round: from the members' subscription bytes to the bytes it answers them with (KIP-429, 2a–2f).

A target says where every partition settles. Under the cooperative protocol a partition that somebody else still holds
can't go there yet: it is withheld from its new owner this round (2c, maybe-revoking), its holder sees that it is gone
and revokes it, and the next round finds it free (2d, ready to migrate). That includes moves for rack reasons
(KAFKA-15170), partitions that two members claim in one generation (KAFKA-12984), and those of members that no longer
subscribe to the topic or that drain. Eager members have revoked everything before they joined: nothing is withheld.

Partitions of topics that the leader's metadata does not show, perhaps because it is old, are given back to the members
that hold them, as long as those subscribe to the topic (2e, unknown-but-owned).

This module must not know how a plan reaches the members, or what their user data means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from holdfast.assign.claims import newest_claims
from holdfast.assign.columns import CLAIMS_FROM_OWNED, CLAIMS_FROM_USER_DATA, NO_CLAIMS, Columns, read
from holdfast.assign.custom import plan_custom
from holdfast.assign.eager import plan_range, plan_round_robin
from holdfast.assign.plan import RoundPlan
from holdfast.assign.sticky import plan_sticky
from holdfast.model import Assignor, ClusterView, HoldfastError, JoinedMember, RebalanceProtocol, is_built_in

__all__ = ["STRATEGIES", "RoundPlan", "plan_round", "topics_of"]

STRATEGIES = ("cooperative-sticky", "range", "roundrobin", "sticky")
"""The built-in assignors, by their names in the group protocol."""


def check_strategy(name: str) -> None:
    if name not in STRATEGIES:
        raise HoldfastError(
            "UNKNOWN_STRATEGY", f"There is no assignor named {name!r}.", f"Use one of {', '.join(STRATEGIES)}."
        )


def topics_of(members: Iterable[JoinedMember]) -> frozenset[str]:
    """Everything that some member subscribes to: a caller needs its metadata before it can plan a round."""
    return frozenset[str]().union(*read(ClusterView(), members, claims_from=NO_CLAIMS).names)


def plan_round(
    strategy: str | Assignor,
    cluster: ClusterView,
    members: Iterable[JoinedMember],
    draining: frozenset[str] = frozenset(),
    *,
    return_unknown: bool = True,
    prefer_racks: bool = False,
    newest_claim: int | None = None,
) -> RoundPlan:
    """Plan a round.

    `strategy` is the name of a built-in assignor, or an assignor of the user's own. Members in `draining` are planned
    only what nobody else subscribes to. `return_unknown=False` drops claims on topics that the cluster does not have:
    for callers whose view is complete. `prefer_racks` looks at racks even if every partition is in all of them.
    Claims of a generation after `newest_claim` can't be true and are not counted.
    """
    name = strategy if isinstance(strategy, str) else strategy.name
    own = not isinstance(strategy, str) and not is_built_in(strategy)
    if not own:
        check_strategy(name)
    sticky = not own and name == "sticky"
    columns = read(
        cluster, members, claims_from=CLAIMS_FROM_USER_DATA if sticky else CLAIMS_FROM_OWNED, newest_claim=newest_claim
    )
    user_data: Mapping[str, bytes] = {}
    cooperative = name == "cooperative-sticky"
    if own:
        assert not isinstance(strategy, str)
        target, user_data = plan_custom(strategy, columns, cluster, draining)
        cooperative = RebalanceProtocol.COOPERATIVE in strategy.protocols
    elif name == "range":
        target = plan_range(columns, cluster, draining, prefer_racks=prefer_racks)
    elif name == "roundrobin":
        target = plan_round_robin(columns, draining)
    else:
        target = plan_sticky(columns, cluster, draining, prefer_racks=prefer_racks)
    assigned = target
    if cooperative:
        held = columns.owner >= 0
        assigned = np.where(held & ((columns.owner != target) | (columns.tied != 0)), np.int32(-1), target)
    return RoundPlan(
        strategy=name,
        cooperative=cooperative,
        columns=columns,
        target_column=target,
        assigned_column=assigned,
        unknown=_unknown(columns, cluster) if cooperative and return_unknown else {},
        assignor_user_data=user_data,
    )


def _unknown(columns: Columns, cluster: ClusterView) -> dict[tuple[str, int], int]:
    """Claimed partitions of topics that we can't see, and the position of the member that gets each back."""

    def is_unknown(member: int, topic: str) -> bool:
        view = cluster.topics.get(topic)
        return (view is None or view.partitions == 0) and topic in columns.names[columns.block[member]]

    holders = newest_claims(
        ((topic, partition), int(columns.generation[member]), member)
        for member, topic, partition in columns.others
        if is_unknown(member, topic)
    )
    return dict(sorted(holders.items()))
