"""An independent optimum: every single partition and member as a node, solved by networkx. Shares no code with ours."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
from assign_cases import Member

from holdfast.model import ClusterView, TopicPartition

Cost = tuple[int, int, int]
"""Sum of squared loads, partitions far from their member's rack, partitions taken from who holds them."""


def holders(members: Mapping[str, Member]) -> dict[TopicPartition, str | None]:
    """Who holds what by the rules of claims: newest generation wins, a tie is nobody's (None)."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for name, one in members.items():
        for part in one.owned:
            claims.setdefault(part, []).append((one.generation, name))
    held: dict[TopicPartition, str | None] = {}
    for part, made in claims.items():
        newest = max(generation for generation, _ in made)
        who = [name for generation, name in made if generation == newest]
        held[part] = who[0] if len(who) == 1 else None
    return held


def racks_count(view: ClusterView, members: Mapping[str, Member]) -> bool:
    """KIP-881: a rack in common, and a partition that is not in all of them."""
    topics = {topic for one in members.values() for topic in one.topics if topic in view.topics}
    spots = [racks for topic in topics for racks in view.topics[topic].racks]
    spots += [
        frozenset() for topic in topics for _ in range(view.topics[topic].partitions - len(view.topics[topic].racks))
    ]
    everywhere = frozenset().union(*spots)
    named = {one.rack for one in members.values() if one.rack}
    return bool(named & everywhere) and any(spot != everywhere for spot in spots)


def is_far(view: ClusterView, one: Member, part: TopicPartition) -> bool:
    racks = view.topics[part.topic].racks
    return bool(one.rack) and (part.partition >= len(racks) or one.rack not in racks[part.partition])


def cost(view: ClusterView, members: Mapping[str, Member], assignment: Mapping[str, frozenset[TopicPartition]]) -> Cost:
    held = holders(members)
    racked = racks_count(view, members)
    return (
        sum(len(given) ** 2 for given in assignment.values()),
        sum(racked and is_far(view, members[name], part) for name, given in assignment.items() for part in given),
        sum(held.get(part, name) not in (name, None) for name, given in assignment.items() for part in given),
    )


def optimum(view: ClusterView, members: Mapping[str, Member]) -> Cost:
    """The least cost there is."""
    held = holders(members)
    racked = racks_count(view, members)
    parts = [
        TopicPartition(topic, number)
        for topic in sorted({topic for one in members.values() for topic in one.topics if topic in view.topics})
        for number in range(view.topics[topic].partitions)
    ]
    far_weight = len(parts) + 1
    load_weight = far_weight * (len(parts) + 1)
    graph = nx.DiGraph()
    graph.add_node("end", demand=len(parts))
    for part in parts:
        graph.add_node(part, demand=-1)
        for name, one in members.items():
            if part.topic in one.topics:
                price = far_weight * (racked and is_far(view, one, part)) + (held.get(part, name) not in (name, None))
                graph.add_edge(part, name, capacity=1, weight=price)
    for name in members:
        for level in range(len(parts)):
            graph.add_edge(name, (name, level), capacity=1, weight=load_weight * (2 * level + 1))
            graph.add_edge((name, level), "end", capacity=1, weight=0)
    if not parts:
        return (0, 0, 0)
    total, _ = nx.network_simplex(graph)
    return total // load_weight, total % load_weight // far_weight, total % far_weight
