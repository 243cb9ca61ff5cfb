"""The standby assignor: as balanced as cooperative-sticky, and what must move goes where its state is followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from assign_cases import cluster, tps
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assign import by_name, plan_round
from holdfast.assign.filled import filled
from holdfast.assign.following import (
    ALL,
    MAX_BYTES,
    NOTHING,
    Followed,
    Says,
    decode_says,
    decode_told,
    encode_says,
    encode_told,
)
from holdfast.assign.standby import FRESH, StandbyAssignor
from holdfast.model import (
    Assignment,
    ClusterView,
    GroupMetadata,
    JoinedMember,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    TopicView,
)
from holdfast.model.consumer_protocol import encode_subscription

HAS = Followed(100, ALL)


def _encodable(text: str) -> bool:
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


Plan = Mapping[str, Assignment]


def one(owned: str = "", follows: Mapping[str, Followed] | str = "", *, standby: int = 1, topics: str = "t", **more):  # type: ignore[no-untyped-def]
    """A member that owns and follows; a text of partitions means that it has all of their state."""
    named = dict.fromkeys(tps(follows), HAS) if isinstance(follows, str) else {}
    if not isinstance(follows, str):
        named = {next(iter(tps(name))): found for name, found in follows.items()}
    return Subscription(
        topics=tuple(topics.split()),
        owned=tps(owned),
        generation=3,
        user_data=encode_says(Says(standby, named)),
        **more,
    )


def owners(plan: Plan) -> dict[TopicPartition, str]:
    return {p: name for name, given_ in plan.items() for p in given_.partitions}


def followers(plan: Plan) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = {}
    for name, given_ in sorted(plan.items()):
        for partition in decode_told(given_.user_data):
            found.setdefault(partition, []).append(name)
    return found


def fed_back(members: Mapping[str, Subscription], plan: Plan) -> dict[str, Subscription]:
    """The members when all of a plan has come true."""
    return {
        name: replace(
            member,
            owned=plan[name].partitions,
            generation=member.generation + 1,
            user_data=encode_says(
                Says(decode_says(member.user_data).standby, dict.fromkeys(decode_told(plan[name].user_data), HAS))
            ),
        )
        for name, member in members.items()
    }


@dataclass(frozen=True)
class World:
    view: ClusterView
    members: dict[str, Subscription]


@st.composite
def worlds(draw: st.DrawFn, *, alike: bool = True) -> World:
    """A group in the middle of its life: some partitions have an owner, some have lost theirs, followers are anywhere
    and anyhow fresh."""
    count, standby = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    topics = draw(st.dictionaries(st.sampled_from("tuv"), st.integers(1, 12), min_size=1, max_size=2))
    partitions = [TopicPartition(t, n) for t, size in topics.items() for n in range(size)]
    names = [f"m{n}" for n in range(count)]
    owned: dict[str, set[TopicPartition]] = {name: set() for name in names}
    for partition in partitions:
        owner = draw(st.sampled_from([*names, None]))
        if owner is not None:
            owned[owner].add(partition)
    members = {}
    for name in names:
        wants = sorted(topics) if alike else draw(st.lists(st.sampled_from(sorted(topics)), unique=True, min_size=1))
        followed = draw(
            st.dictionaries(
                st.sampled_from(partitions),
                st.builds(Followed, st.integers(-1, 50), st.sampled_from([0, FRESH - 1, FRESH, ALL])),
                max_size=8,
            )
        )
        members[name] = Subscription(
            topics=tuple(wants),
            owned=frozenset(owned[name]),
            generation=draw(st.sampled_from([4, 4, 5])),
            user_data=draw(st.sampled_from([encode_says(Says(standby, followed)), None, b"foreign"])),
            rack=draw(st.sampled_from([None, "a", "b"])),
        )
    racks = draw(st.booleans())

    def view(size: int) -> TopicView:
        return TopicView(size, tuple(frozenset({draw(st.sampled_from("ab"))}) for _ in range(size)) if racks else ())

    return World(ClusterView({topic: view(size) for topic, size in topics.items()}), members)


@given(worlds() | worlds(alike=False))
def test_balance_is_that_of_cooperative_sticky_and_nothing_more_moves(world: World) -> None:
    """Numbers of partitions are the same, but for which of two members has one more; what cooperative-sticky leaves
    where it is, stays."""
    plan = StandbyAssignor().assign(world.view, world.members)
    plain = {name: replace(member, user_data=None) for name, member in world.members.items()}
    usual = by_name("cooperative-sticky").assign(world.view, plain)
    assert sorted(len(found.partitions) for found in plan.values()) == sorted(
        len(found.partitions) for found in usual.values()
    )
    assert set(owners(plan)) == set(owners(usual))
    for name, member in world.members.items():
        assert usual[name].partitions & member.owned <= plan[name].partitions | _contested(world)
        assert {p.topic for p in plan[name].partitions} <= set(member.topics)


def _contested(world: World) -> frozenset[TopicPartition]:
    """Nobody holds what two claim, or a stale claim names."""
    claims = Counter(p for member in world.members.values() for p in member.owned)
    return frozenset(p for p, n in claims.items() if n > 1)


@given(worlds() | worlds(alike=False))
def test_each_partition_has_one_owner_and_followers_that_are_not_it(world: World) -> None:
    plan = StandbyAssignor().assign(world.view, world.members)
    standby = max(decode_says(member.user_data).standby for member in world.members.values())
    assert sum(len(found.partitions) for found in plan.values()) == len(owners(plan))
    for partition, owner in owners(plan).items():
        following = followers(plan).get(partition, [])
        others = [n for n, m in world.members.items() if partition.topic in m.topics and n != owner]
        assert len(set(following)) == len(following) == min(standby, len(others))
        assert set(following) <= set(others)


@given(worlds())
def test_nobody_follows_more_than_a_fair_share_and_one(world: World) -> None:
    plan = StandbyAssignor().assign(world.view, world.members)
    counts = Counter(name for found in followers(plan).values() for name in found)
    fair = -(-sum(counts.values()) // len(world.members))
    assert max(counts.values(), default=0) <= fair + 1, counts


@given(worlds() | worlds(alike=False))
def test_the_same_again_moves_nothing_and_changes_no_follower(world: World) -> None:
    plan = StandbyAssignor().assign(world.view, world.members)
    second = StandbyAssignor().assign(world.view, fed_back(world.members, plan))
    assert owners(second) == owners(plan)
    assert followers(second) == followers(plan)


@given(st.integers(2, 6), st.integers(1, 14), st.data())
def test_when_an_owner_dies_its_partitions_go_where_they_are_followed(
    count: int, partitions: int, data: st.DataObject
) -> None:
    """A partition of the dead one goes elsewhere only if its follower has its share already, of its own or of what it
    followed. Nobody gets what others follow while his own goes elsewhere."""
    names = [f"m{n}" for n in range(count)]
    blank = {name: one(standby=1) for name in names}
    living = fed_back(blank, StandbyAssignor().assign(cluster(t=partitions), blank))
    gone = living.pop(data.draw(st.sampled_from(names)))
    follower = {p: data.draw(st.sampled_from(sorted(living))) for p in sorted(gone.owned)}
    for name, member in living.items():
        followed = {p: HAS for p, its in follower.items() if its == name}
        living[name] = replace(member, user_data=encode_says(Says(1, followed)))
    after = StandbyAssignor().assign(cluster(t=partitions), living)
    most = max(len(found.partitions) for found in after.values())
    for partition, owner in owners(after).items():
        if partition in follower and owner != (name := follower[partition]):
            got = after[name].partitions - living[name].owned
            assert all(follower[p] == name for p in got), "it got what it did not follow instead"
            assert len(after[name].partitions) == most or len(after[owner].partitions) <= len(after[name].partitions)


# -- the stories


def test_a_follower_that_lacks_half_of_the_state_is_not_preferred() -> None:
    """A handover to it would take about as long as one to anybody: then least movement decides."""
    fresh = {"a": one("t-0"), "b": one("t-1", {"t-2": Followed(90, FRESH - 1)}), "c": one("", {"t-2": HAS})}
    assert owners(StandbyAssignor().assign(cluster(t=3), fresh))[TopicPartition("t", 2)] == "c"
    members = {"a": one("t-0 t-3", {"t-4": HAS}), "b": one("t-1 t-2", {"t-4": Followed(90, FRESH - 1)})}
    assert owners(StandbyAssignor().assign(cluster(t=5), members))[TopicPartition("t", 4)] == "a"
    swapped = {"a": one("t-0 t-3", {"t-4": Followed(90, FRESH - 1)}), "b": one("t-1 t-2", {"t-4": Followed(90, FRESH)})}
    assert owners(StandbyAssignor().assign(cluster(t=5), swapped))[TopicPartition("t", 4)] == "b"


def test_of_two_followers_the_one_with_more_of_the_state_is_preferred_then_the_one_with_fewer_partitions() -> None:
    def who(b: Followed, c: Followed, owned: str) -> str:
        members = {"b": one("t-1", {"t-0": b}), "c": one(owned, {"t-0": c})}
        return owners(StandbyAssignor().assign(cluster(t=3), members))[TopicPartition("t", 0)]

    assert who(HAS, Followed(100, 700), "t-2") == "b"
    assert who(Followed(100, 700), HAS, "t-2") == "c"
    assert who(Followed(99, ALL), HAS, "t-2") == "c"
    assert who(HAS, HAS, "") == "c"


def test_a_follower_takes_over_from_a_member_that_drains() -> None:
    """A draining member claims its partitions still, and may not keep them. Both of its rounds must mean the same
    successor: the follower holds the state in the second one too, although it is no follower any more."""
    members = {
        "drains": one("t-0 t-1", standby=1),
        "b": one("t-2 t-3", "t-1"),
        "c": one("t-4 t-5", "t-0"),
    }

    def joined() -> list[JoinedMember]:
        return [JoinedMember(member_id=n, metadata=encode_subscription(m)) for n, m in members.items()]

    draining = frozenset({"drains"})
    plan = plan_round(filled(StandbyAssignor()), cluster(t=6), joined(), draining)
    target = {str(p): name for name, found in plan.target.items() for p in found}
    assert (target["t-0"], target["t-1"]) == ("c", "b")
    assert set(plan.withheld) == tps("t-0 t-1")
    assert not plan.target["drains"]
    assert decode_told(plan.assignor_user_data["drains"]) == frozenset(), "whoever leaves follows nothing"
    members["drains"] = replace(members["drains"], owned=frozenset())
    second = plan_round(filled(StandbyAssignor()), cluster(t=6), joined(), draining)
    assert tps("t-0") <= second.assignment["c"]
    assert tps("t-1") <= second.assignment["b"]


def test_a_member_without_it_does_not_follow_and_counts_for_balance() -> None:
    """Foreign, damaged or newer user data means that it follows nothing. It still gets its partitions."""
    for data in (None, b"", b"\x00\x00\x00\x04", b"hfs\x02\x01", b"hfs\x01\x09", encode_says(Says(1))[:-1] + b"\xff"):
        members = {"a": one("t-0 t-1"), "b": replace(one(), user_data=data)}
        plan = StandbyAssignor().assign(cluster(t=4), members)
        assert sorted(len(found.partitions) for found in plan.values()) == [2, 2]


def test_as_many_followers_as_the_most_demanding_member_wants_whoever_leads() -> None:
    """In a deploy that changes the number, two leaders in a row must not plan differently."""
    members = {"a": one("t-0", standby=0), "b": one("t-1", standby=2), "c": one("t-2", standby=1)}
    plan = StandbyAssignor().assign(cluster(t=3), members)
    assert all(len(found) == 2 for found in followers(plan).values())
    off = {name: one(str(p), standby=0) for name, p in (("a", "t-0"), ("b", "t-1"))}
    assert followers(StandbyAssignor().assign(cluster(t=2), off)) == {}


def test_who_gives_a_partition_up_and_stays_follows_it() -> None:
    """It has all of its state at hand: nobody could be quicker."""
    members = {"a": one("t-0 t-1 t-2 t-3", standby=1), "b": one(standby=1), "c": one(standby=1)}
    plan = StandbyAssignor().assign(cluster(t=4), members)
    moved = [p for p, owner in owners(plan).items() if owner != "a"]
    assert moved
    assert any(followers(plan)[p] == ["a"] for p in moved)


def test_followers_stay_who_they_are_when_somebody_comes() -> None:
    """Whoever begins to follow reads all of the state: only what a newcomer takes off others changes hands."""
    rest = {"a": one("t-0", "t-1"), "b": one("t-1", "t-2"), "c": one("t-2", "t-0")}
    plan = StandbyAssignor().assign(cluster(t=3), rest)
    assert followers(plan) == {TopicPartition("t", n): [who] for n, who in enumerate("cab")}
    plan = StandbyAssignor().assign(cluster(t=3), rest | {"d": one()})
    assert followers(plan) == {TopicPartition("t", n): [who] for n, who in enumerate("cab")}


def test_a_follower_in_another_rack_is_not_preferred_where_racks_are_planned_by() -> None:
    """Cooperative-sticky would move the partition back to its rack with the next round: two moves instead of none."""
    racks = (frozenset({"a"}), frozenset({"b"}))
    members = {"m0": one("", "t-1", rack="a"), "m1": one("", "t-0", rack="b")}
    apart = StandbyAssignor().assign(ClusterView({"t": TopicView(2, racks)}), members)
    assert owners(apart) == {TopicPartition("t", 0): "m0", TopicPartition("t", 1): "m1"}
    together = StandbyAssignor().assign(cluster(t=2), members)
    assert owners(together) == {TopicPartition("t", 0): "m1", TopicPartition("t", 1): "m0"}


def test_whoever_followed_too_much_is_relieved() -> None:
    """Members that went left one with all there is to follow."""
    members = {
        "a": one("t-0 t-1 t-2 t-3 t-4", "t-5 t-6 t-7 t-8 t-9 t-10 t-11 t-12 t-13 t-14"),
        "b": one("t-5 t-6 t-7 t-8 t-9"),
        "c": one("t-10 t-11 t-12 t-13 t-14"),
    }
    counts = Counter(n for found in followers(StandbyAssignor().assign(cluster(t=15), members)).values() for n in found)
    assert max(counts.values()) <= 6


# -- words on the wire


@given(
    st.integers(0, 3),
    st.dictionaries(
        st.builds(TopicPartition, st.text(min_size=1, max_size=8).filter(_encodable), st.integers(0, 2**31 - 1)),
        st.builds(Followed, st.integers(-1, 2**62), st.integers(0, ALL)),
    ),
)
def test_what_members_say_is_read_as_it_was_said(standby: int, followed: dict[TopicPartition, Followed]) -> None:
    assert decode_says(encode_says(Says(standby, followed))) == Says(standby, followed)
    assert decode_told(encode_told(followed)) == frozenset(followed)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda data: b"hfs\x01\x01" + data))
def test_no_bytes_make_the_leader_stumble(data: bytes) -> None:
    assert decode_says(data).standby <= 3
    assert isinstance(decode_told(data), frozenset)
    members = {"a": one("t-0"), "b": replace(one(), user_data=data)}
    assert len(owners(StandbyAssignor().assign(cluster(t=3), members))) == 3


def test_what_does_not_fit_is_not_told() -> None:
    many = {TopicPartition(f"topic-{n % 7}", n): HAS for n in range(20_000)}
    data = encode_says(Says(1, many))
    assert len(data) <= MAX_BYTES
    read = decode_says(data)
    assert 4_000 < len(read.followed) < 20_000
    assert read.followed.items() <= many.items()
    assert len(encode_told(many)) <= MAX_BYTES


def test_damaged_words_say_nothing() -> None:
    said = encode_says(Says(1, {TopicPartition("t", 1): HAS}))
    assert decode_says(said[:-1]) == NOTHING
    assert decode_says(said + b"\x00") == NOTHING
    assert decode_says(said.replace(b"\x03\xe8", b"\x03\xe9")) == NOTHING, "more than all of it"
    assert decode_says(encode_told(tps("t-1"))) == NOTHING


def test_it_is_an_assignor_like_any_other() -> None:
    heard: list[frozenset[TopicPartition]] = []
    own = filled(StandbyAssignor(lambda: Says(1, {TopicPartition("t", 4): HAS}), heard.append))
    assert own.protocols == (RebalanceProtocol.COOPERATIVE,)
    assert decode_says(own.subscription_user_data(frozenset(), frozenset(), -1)).followed == {
        TopicPartition("t", 4): HAS
    }
    metadata = GroupMetadata(group="g", member_id="m", instance_id=None, generation=1)
    own.on_assignment(Assignment(user_data=encode_told(tps("t-4 t-5"))), metadata)
    own.on_assignment(Assignment(user_data=None), metadata)
    assert heard == [tps("t-4 t-5"), frozenset()]
