"""The assignor of pipelines with warm standbys: cooperative-sticky that prefers members which follow the state. Pure.

Cooperative-sticky decides how many partitions each member gets, and which stay where they are. A partition that has to
move, because its owner died, drains or has too many, goes to a member that follows its state, if that changes no
member's number of partitions (or only which of two members has one more). Then every partition gets its followers:
members other than its owner, first those that follow it already, about equally many for each member.

A follower that has less than half of the state at hand is not preferred: a handover to it would take more than half as
long as one to any other member.

It uses only the interface that users' own assignors have (docs/assignors.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.assign.assignors import by_name
from holdfast.assign.claims import newest_claims
from holdfast.assign.following import ALL, NOTHING, Says, decode_says, decode_told, encode_says, encode_told
from holdfast.model import (
    Assignment,
    ClusterView,
    GroupMetadata,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)

NAME = "holdfast-standby"

FRESH = ALL // 2
"""How much of a state a follower must have at hand to be preferred, in thousandths: see above."""

Owners = dict[TopicPartition, str]


class StandbyAssignor:
    """`says` returns what this member tells the leader; `told` is called with what the leader tells it to follow."""

    name = NAME
    version = 1
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(
        self,
        says: Callable[[], Says] = lambda: NOTHING,
        told: Callable[[frozenset[TopicPartition]], None] = lambda _partitions: None,
    ) -> None:
        self._says, self._told = says, told

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> bytes | None:
        return encode_says(self._says())

    def on_assignment(self, assignment: Assignment, membership: GroupMetadata) -> None:
        self._told(decode_told(assignment.user_data))

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        round_ = _Round.of(cluster, members)
        round_.prefer_followers()
        followers = round_.followers()
        return {
            member: Assignment(
                partitions=frozenset(p for p, owner in round_.target.items() if owner == member),
                user_data=encode_told(p for p, found in followers.items() if member in found),
            )
            for member in sorted(members)
        }


@dataclass(slots=True)
class _Round:
    cluster: ClusterView
    members: Mapping[str, Subscription]
    says: Mapping[str, Says]
    takers: Mapping[str, list[str]]
    """Per topic its subscribers, sorted."""
    holder: Owners
    """The member that holds a partition now and may keep it."""
    target: Owners
    load: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def of(cluster: ClusterView, members: Mapping[str, Subscription]) -> _Round:
        plain = {name: replace(one, user_data=None) for name, one in members.items()}
        planned = by_name("cooperative-sticky").assign(cluster, plain)
        target = {p: name for name, given in planned.items() for p in given.partitions}
        takers: dict[str, list[str]] = {}
        for name in sorted(members):
            for topic in members[name].topics:
                takers.setdefault(topic, []).append(name)
        says = {name: decode_says(one.user_data) for name, one in members.items()}
        target = dict(sorted(target.items()))
        return _Round(cluster, members, says, takers, _holders(members), target, Counter(target.values()))

    # -- owners

    def prefer_followers(self) -> None:
        """Give partitions that move to members that have their state at hand, as far as balance allows."""
        arriving: dict[str, list[TopicPartition]] = {}
        for partition, owner in self.target.items():
            if self.holder.get(partition) != owner:
                arriving.setdefault(owner, []).append(partition)
        placed = -1
        while placed:  # a move may make room for another partition's
            placed = 0
            for partition in sorted(p for found in arriving.values() for p in found):
                if self._try_place(partition, arriving):
                    arriving[self.target[partition]].remove(partition)
                    placed += 1

    def _try_place(self, partition: TopicPartition, arriving: dict[str, list[TopicPartition]]) -> bool:
        """Plan the partition for one of its followers; False if that can't be. `arriving`: per member the partitions
        that move to it, which may be exchanged."""
        return any(
            self.target[partition] == follower or self._try_give(partition, follower, arriving)
            for follower in self._fresh(partition)
        )

    def _try_give(self, partition: TopicPartition, follower: str, arriving: dict[str, list[TopicPartition]]) -> bool:
        """Plan it for this follower: as its one more, if it has one less than the present owner, or in exchange for
        another partition that moves to the follower. False if neither can be."""
        owner = self.target[partition]
        near = self._far(partition, follower) <= self._far(partition, owner)
        if self.load[owner] == self.load[follower] + 1 and near:
            self._move(partition, follower, arriving)
            return True
        for other in arriving.get(follower, ()):
            now = self._far(partition, owner) + self._far(other, follower)
            then = self._far(partition, follower) + self._far(other, owner)
            if owner in self.takers[other.topic] and then <= now:
                self._move(other, owner, arriving)
                self._move(partition, follower, arriving)
                return True
        return False

    def _move(self, partition: TopicPartition, member: str, arriving: dict[str, list[TopicPartition]]) -> None:
        before = self.target[partition]
        arriving[before].remove(partition)
        arriving.setdefault(member, []).append(partition)
        self.target[partition] = member
        self.load[before] -= 1
        self.load[member] += 1

    def _fresh(self, partition: TopicPartition) -> list[str]:
        """The members with enough of its state at hand, best first; among equals the one with fewest partitions."""
        found = [
            (-one.held, -one.offset, self.load[name], name)
            for name in self.takers[partition.topic]
            if (one := self.says[name].followed.get(partition)) is not None and one.held >= FRESH
        ]
        return [name for *_, name in sorted(found)]

    def _far(self, partition: TopicPartition, member: str) -> bool:
        """Whether the member reads it from another rack. Cooperative-sticky plans by racks, and would move it back."""
        racks = self.cluster.topics[partition.topic].racks
        own = self.members[member].rack
        return bool(own and partition.partition < len(racks) and own not in racks[partition.partition])

    # -- followers

    def followers(self) -> dict[TopicPartition, list[str]]:
        """Who follows each partition from now on."""
        standby = max((one.standby for one in self.says.values()), default=0)
        wanted = {p: min(standby, len(self._may_follow(p))) for p in self.target}
        takes = {name for names in self.takers.values() for name in names}
        book = _Followers(wanted, fair=-(-sum(wanted.values()) // max(1, len(takes))))
        for partition in self.target:
            may = set(self._may_follow(partition))
            for name in self._following(partition):
                if name in may and book.lacks(partition, name):
                    book.add(partition, name)
            gives_up = self.holder.get(partition)  # it has all of the state
            if gives_up in may and book.lacks(partition, gives_up) and book.count[gives_up] < book.fair:
                book.add(partition, gives_up)
        for partition in self.target:
            while (least := book.least(partition, self._may_follow(partition))) is not None:
                book.add(partition, least)
        book.relieve(self._may_follow)
        return book.chosen

    def _may_follow(self, partition: TopicPartition) -> list[str]:
        return [name for name in self.takers[partition.topic] if name != self.target[partition]]

    def _following(self, partition: TopicPartition) -> list[str]:
        """Who follows it now, the freshest first."""
        found = [(one.followed[partition], name) for name, one in self.says.items() if partition in one.followed]
        return [name for _, name in sorted(found, key=lambda f: (-f[0].held, -f[0].offset, f[1]))]


@dataclass(slots=True)
class _Followers:
    wanted: Mapping[TopicPartition, int]
    fair: int
    chosen: dict[TopicPartition, list[str]] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chosen = {partition: [] for partition in self.wanted}

    def add(self, partition: TopicPartition, name: str) -> None:
        self.chosen[partition].append(name)
        self.count[name] += 1

    def lacks(self, partition: TopicPartition, name: str) -> bool:
        """Whether the partition wants another follower, and this member is not one yet."""
        return len(self.chosen[partition]) < self.wanted[partition] and name not in self.chosen[partition]

    def least(self, partition: TopicPartition, may: list[str]) -> str | None:
        """The member that follows fewest, if the partition lacks a follower."""
        chosen = self.chosen[partition]
        if len(chosen) >= self.wanted[partition]:
            return None
        return min((name for name in may if name not in chosen), key=lambda name: (self.count[name], name))

    def relieve(self, may: Callable[[TopicPartition], list[str]]) -> None:
        """Move followers from members with more than one above the fair share to members below it."""
        moved = True
        while moved:
            moved = False
            for partition in self.chosen:
                while self._try_relieve(partition, may(partition)):
                    moved = True

    def _try_relieve(self, partition: TopicPartition, may: list[str]) -> bool:
        chosen = self.chosen[partition]
        free = [name for name in may if name not in chosen and self.count[name] < self.fair]
        most = max(chosen, key=lambda name: (self.count[name], name), default=None)
        if most is None or self.count[most] <= self.fair + 1 or not free:
            return False
        least = min(free, key=lambda name: (self.count[name], name))
        chosen[chosen.index(most)] = least
        self.count[most] -= 1
        self.count[least] += 1
        return True


def _holders(members: Mapping[str, Subscription]) -> Owners:
    """Who holds what, and may keep it."""
    holders = newest_claims((p, one.generation, name) for name, one in sorted(members.items()) for p in one.owned)
    return {p: name for p, name in holders.items() if p.topic in members[name].topics}
