"""How the assignor tests write a case down, run it, and let a group settle. Knows the public functions only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.assign import RoundPlan, plan_round, sticky_user_data
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, encode_subscription

STICKY = ("sticky", "cooperative-sticky")
RACKS = "abcdef"
RackRow = tuple[int, Sequence[str | None], Sequence[str | None], bool, int | None]
"""Replicas, racks of brokers, racks of members, prefer racks, partitions far away (None: not checked)."""


def tp(text: str) -> TopicPartition:
    topic, number = text.rsplit("-", 1)
    return TopicPartition(topic, int(number))


def tps(text: str | Iterable[str]) -> frozenset[TopicPartition]:
    """Partitions from "t-0, t-1" or a list of such names."""
    parts = text.replace(",", " ").split() if isinstance(text, str) else text
    return frozenset(tp(part) for part in parts)


def cluster(**topics: int) -> ClusterView:
    return ClusterView({topic: TopicView(count) for topic, count in topics.items()})


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member of a case. `version` is that of its subscription; before 2 a generation goes into the user data."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    rack: str | None = None
    instance: str | None = None
    version: int = 3
    user_data: bytes | None = None


def member(
    topics: str | Iterable[str] = "",
    owned: str | Iterable[str] = "",
    generation: int = -1,
    **more: object,
) -> Member:
    named = tuple(topics.split()) if isinstance(topics, str) else tuple(topics)
    return Member(topics=named, owned=tps(owned), generation=generation, **more)  # type: ignore[arg-type]  # kwargs


def joined(strategy: str, members: Mapping[str, Member]) -> list[JoinedMember]:
    """The members' bytes. Eager sticky remembers in its user data, everybody else in the subscription's fields."""
    found = []
    for name, one in members.items():
        user_data = one.user_data
        subscription = Subscription(topics=one.topics, owned=one.owned, generation=one.generation, rack=one.rack)
        if strategy == "sticky":
            if user_data is None and (one.owned or one.generation >= 0):
                user_data = sticky_user_data(one.owned, one.generation)
            subscription = replace(subscription, owned=frozenset(), generation=-1)
        elif user_data is None and one.version < 2 and one.generation >= 0:
            user_data = one.generation.to_bytes(4, "big")
        data = encode_subscription(replace(subscription, user_data=user_data), one.version)
        found.append(JoinedMember(member_id=name, instance_id=one.instance, metadata=data))
    return found


def plan(
    strategy: str,
    view: ClusterView,
    members: Mapping[str, Member],
    *,
    draining: Iterable[str] = (),
    prefer_racks: bool = False,
) -> RoundPlan:
    planned = plan_round(strategy, view, joined(strategy, members), frozenset(draining), prefer_racks=prefer_racks)
    check_answer(planned, view, members)
    return planned


def check_answer(planned: RoundPlan, view: ClusterView, members: Mapping[str, Member]) -> None:
    """What holds for every plan: every member answered, bytes that say the same, only subscribed, nothing twice."""
    encoded = planned.encode()
    assert set(encoded) == set(planned.assignment) == set(planned.target) == set(members)
    for name, data in encoded.items():
        assert decode_assignment(data).partitions == planned.assignment[name]
    for name, given in planned.target.items():
        assert all(view.exists(part) and part.topic in members[name].topics for part in given)
    settled = [part for given in planned.target.values() for part in given]
    assert len(settled) == len(set(settled))
    wanted = {
        TopicPartition(topic, number)
        for topic in {topic for one in members.values() for topic in one.topics} & set(view.topics)
        for number in range(view.topics[topic].partitions)
    }
    assert set(settled) == wanted
    now = [part for given in planned.assignment.values() for part in given]
    assert len(now) == len(set(now))


def lists(assignment: Mapping[str, Iterable[TopicPartition]]) -> dict[str, list[str]]:
    return {name: [str(part) for part in sorted(parts)] for name, parts in sorted(assignment.items())}


def sizes(assignment: Mapping[str, Sequence[TopicPartition] | frozenset[TopicPartition]]) -> list[int]:
    return sorted(len(parts) for parts in assignment.values())


def fed_back(
    members: Mapping[str, Member], planned: RoundPlan, generation: int, **changes: Member | None
) -> dict[str, Member]:
    """The members as they join next: owning what the round gave. `changes` add, replace or remove (None) members."""
    following = {
        name: replace(one, owned=planned.assignment.get(name, frozenset()), generation=generation)
        for name, one in members.items()
    }
    for name, one in changes.items():
        if one is None:
            del following[name]
        else:
            following[name] = one
    return following


@dataclass(frozen=True)
class Settled:
    """A group that nobody disturbs any more."""

    plan: RoundPlan
    members: dict[str, Member]
    rounds: int


def settle(strategy: str, view: ClusterView, members: Mapping[str, Member], **options: object) -> Settled:
    """Rounds until nobody has to revoke. Nothing is revoked and granted in one round, and two rounds are enough."""
    now = dict(members)
    for round_number in range(1, 4):
        planned = plan(strategy, view, now, **options)  # type: ignore[arg-type]  # options of `plan`
        added = {part for name in now for part in planned.assignment[name] - now[name].owned}
        revoked = {part for name in now for part in now[name].owned - planned.assignment[name]}
        if strategy == "cooperative-sticky":
            assert not added & revoked
            assert planned.rounds == (2 if revoked else 1)
        following = fed_back(now, planned, max((one.generation for one in now.values()), default=0) + 1)
        if strategy != "cooperative-sticky" or not revoked:
            assert round_number <= 2
            assert planned.assignment == planned.target
            return Settled(planned, following, round_number)
        now = following
    raise AssertionError("the group does not settle")


def fully_balanced(assignment: Mapping[str, frozenset[TopicPartition]]) -> bool:
    loads = sizes(assignment)
    return loads[-1] - loads[0] <= 1


def valid_and_balanced(members: Mapping[str, Member], assignment: Mapping[str, frozenset[TopicPartition]]) -> None:
    """Kafka's own oracle: where two loads differ by more than one, nothing of the larger could go to the smaller."""
    for name, given in assignment.items():
        assert all(part.topic in members[name].topics for part in given)
        for other, theirs in assignment.items():
            assert name == other or not given & theirs
            if len(given) - len(theirs) > 1:
                assert not {part.topic for part in given} & set(members[other].topics)


def rack_fixture(topics: Mapping[str, int], brokers: Sequence[str | None], replicas: int) -> ClusterView:
    """Replica j of partition i of a topic that starts at s is on broker (i + j + s) mod brokers, as in Java's cases."""
    views = {}
    start = 0
    for topic, count in topics.items():
        spots = [{brokers[(i + j + start) % len(brokers)] for j in range(replicas)} for i in range(count)]
        views[topic] = TopicView(count, tuple(frozenset(rack for rack in spot if rack) for spot in spots))
        start += count
    return ClusterView(views)


def far(view: ClusterView, members: Mapping[str, Member], assignment: Mapping[str, frozenset[TopicPartition]]) -> int:
    """How many partitions have no replica in the rack of who gets them."""
    return sum(
        members[name].rack is not None and members[name].rack not in view.topics[part.topic].racks[part.partition]
        for name, given in assignment.items()
        for part in given
    )


RACK_CONFIGS = ("no broker rack", "no consumer rack", "both")
"""Most of Java's cases run under all three and expect one result. "both" forces the rack-aware code to run."""


@dataclass(frozen=True)
class Group:
    """A case under one rack configuration: members "consumer1"… from keywords c1…, and what its rounds give."""

    strategy: str
    config: str = ""

    def view(self, topics: Mapping[str, int]) -> ClusterView:
        """Nine brokers in three racks, replication 3: every partition is in every rack."""
        racks = frozenset() if self.config in ("", "no broker rack") else frozenset("abc")
        return ClusterView({name: TopicView(n, (racks,) * n if racks else ()) for name, n in topics.items()})

    def members(self, **members: Member) -> dict[str, Member]:
        racked = self.config in ("no broker rack", "both")
        return {
            "consumer" + key[1:]: replace(one, rack=RACKS[at % 3] if racked else None)
            for at, (key, one) in enumerate(members.items())
        }

    def plan(self, topics: Mapping[str, int], members: Mapping[str, Member]) -> RoundPlan:
        return plan(self.strategy, self.view(topics), members, prefer_racks=self.config == "both")

    def settle(self, topics: Mapping[str, int], members: Mapping[str, Member]) -> Settled:
        settled = settle(self.strategy, self.view(topics), members, prefer_racks=self.config == "both")
        valid_and_balanced(members, settled.plan.target)
        return settled

    def transfers(self, planned: RoundPlan) -> dict[str, str]:
        """Java's "partitions transferring ownership", where the protocol has it."""
        if self.strategy == "sticky":
            return {}
        return {str(part): way.target for part, way in planned.withheld.items()}


def expect(assignment: Mapping[str, frozenset[TopicPartition]], **wanted: str) -> None:
    """Exactly these members with exactly these partitions; c1 is "consumer1"."""
    assert lists(assignment) == lists({"consumer" + key[1:]: tps(text) for key, text in wanted.items()})
