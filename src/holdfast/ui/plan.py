"""What would move if the group had another size, computed with the leader's own planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.assign import STRATEGIES, plan_round, sticky_user_data
from holdfast.model import ClusterView, HoldfastError, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import encode_subscription
from holdfast.sim.setup import MAX_MEMBERS
from holdfast.ui.lanes import OWNS
from holdfast.ui.story import at as span_at


def resized(story: Mapping[str, Any], moment: float, members: int) -> dict[str, Any]:
    """The moves from the current owners to a group of so many members. Members that joined last leave first."""
    if not 1 <= members <= MAX_MEMBERS:
        raise HoldfastError("BAD_SIZE", f"{members} members can't be planned.", f"Use 1 to {MAX_MEMBERS} members.")
    present = [m["name"] for m in story["members"] if span_at(m["spans"], moment)[1] in ("in", "joining", "hung")]
    staying = present[:members]
    known = {m["name"] for m in story["members"]}
    fresh = (f"c{number}" for number in range(MAX_MEMBERS * 3) if f"c{number}" not in known)
    names = staying + [next(fresh) for _ in range(members - len(staying))]
    owned: dict[str, set[TopicPartition]] = {}
    labels: dict[TopicPartition, str] = {}
    for lane in story["partitions"]:
        topic, _, number = lane["name"].rpartition("-")
        partition = TopicPartition(topic, int(number))
        labels[partition] = lane["label"]
        _, state, owner, _ = span_at(lane["spans"], moment)
        if owner >= 0 and state in OWNS:
            owned.setdefault(story["members"][owner]["name"], set()).add(partition)
    counts: dict[str, int] = {}
    for partition in labels:
        counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
    cluster = ClusterView({topic: TopicView(count) for topic, count in counts.items()})
    strategy = _strategy(story)
    static = {m["name"] for m in story["members"] if m["static"]}
    joined = [_joined(name, frozenset(owned.get(name, ())), tuple(sorted(counts)), strategy, static) for name in names]
    plan = plan_round(strategy, cluster, joined, return_unknown=False)
    holder = {partition: name for name, partitions in owned.items() for partition in partitions}
    moves = [
        {"partition": labels[partition], "from": holder.get(partition, "nobody"), "to": name}
        for name, given in plan.target.items()
        for partition in sorted(given)
        if holder.get(partition) != name
    ]
    return {
        "from": len(present),
        "to": members,
        "moves": sorted(moves, key=lambda move: (len(move["partition"]), move["partition"])),
        "stopped": len(moves) if plan.cooperative else len(labels),
        "of": len(labels),
    }


def _strategy(story: Mapping[str, Any]) -> str:
    """The group's assignor. One that is not known, because nobody has told it, is taken for the usual of its kind."""
    named = str(story["protocol"])
    if named and named not in STRATEGIES:
        raise HoldfastError(
            "ASSIGNOR_NOT_KNOWN",
            f"the group's assignor is {named}, which can't be planned with here.",
            f"Moves can be planned for {', '.join(STRATEGIES)}.",
        )
    return named or ("sticky" if story["kind"] == "eager" else "cooperative-sticky")


def _joined(
    name: str, owned: frozenset[TopicPartition], topics: tuple[str, ...], strategy: str, static: set[str]
) -> JoinedMember:
    """Eager members own nothing when they join; with `sticky`, what they had is in their user data."""
    if strategy == "cooperative-sticky":
        subscription = Subscription(topics=topics, owned=owned, generation=1)
    else:
        data = sticky_user_data(owned, 1) if strategy == "sticky" else None
        subscription = Subscription(topics=topics, user_data=data)
    instance = name if name in static else None
    return JoinedMember(member_id=name, instance_id=instance, metadata=encode_subscription(subscription))
