"""Reading all members at once must say what the one-by-one codec says, compiled or not, and never raise."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys

import numpy as np
import pytest
from assign_cases import Member, joined
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.assign import STRATEGIES, kernels, plan_round, scan, topics_of
from holdfast.assign.columns import MAX_OTHERS, read
from holdfast.assign.order import hash_map_order
from holdfast.assign.warm import warm
from holdfast.model import ClusterView, HoldfastError, JoinedMember, Subscription, TopicPartition, TopicView
from holdfast.model.consumer_protocol import decode_assignment, decode_subscription, encode_subscription

NAMES = st.sampled_from(["t", "u", "topic-with-a-long-name", "ü", "\U0001f600", ""])
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(NAMES, max_size=4).map(tuple),
    owned=st.frozensets(st.builds(TopicPartition, NAMES, st.integers(-3, 6)), max_size=8),
    generation=st.integers(-1, 5),
    user_data=st.none() | st.binary(max_size=9),
    rack=st.none() | st.sampled_from(["a", "b", ""]),
)
VIEW = ClusterView({"t": TopicView(3), "u": TopicView(1), "ü": TopicView(2), "\U0001f600": TopicView(2)})


def as_one_reads(data: bytes) -> Subscription | None:
    try:
        return decode_subscription(data)
    except HoldfastError:
        return None


@settings(max_examples=150)
@given(
    messages=st.lists(
        st.tuples(SUBSCRIPTIONS, st.integers(0, 3), st.integers(0, 60), st.binary(max_size=3)), min_size=1, max_size=5
    )
)
@example(messages=[(Subscription(topics=(), rack="a"), 3, 41, b"\x80")])  # a rack that is not UTF-8
def test_all_members_at_once_read_as_one_by_one(messages: list[tuple[Subscription, int, int, bytes]]) -> None:
    """Also when messages are cut anywhere or have a tail."""
    datas = [encode_subscription(one, version) for one, version, _, _ in messages]
    datas = [
        data[: max(0, len(data) - cut + 40)] + tail for data, (_, _, cut, tail) in zip(datas, messages, strict=True)
    ]
    columns = read(VIEW, [JoinedMember(member_id=f"m{i}", metadata=data) for i, data in enumerate(datas)])
    claims: dict[int, set[TopicPartition]] = {i: set() for i in range(len(datas))}
    for m, pid in zip(columns.claim_member.tolist(), columns.claim_pid.tolist(), strict=True):
        topic = int(np.searchsorted(columns.first, pid, side="right")) - 1
        claims[m].add(TopicPartition(columns.topics[topic], pid - int(columns.first[topic])))
    for m, name, partition in columns.others:
        claims[m].add(TopicPartition(name, partition))
    for i, data in enumerate(datas):
        alone = as_one_reads(data)
        assert (f"m{i}" in columns.malformed) is (alone is None)
        if alone is None:
            assert not claims[i] and not columns.names[columns.block[i]] and columns.user_data(i) is None
            continue
        assert columns.names[columns.block[i]] == frozenset(alone.topics)
        assert claims[i] == {part for part in alone.owned if part.partition >= 0}
        assert columns.user_data(i) == alone.user_data
        assert (columns.racks[i] or None) == (alone.rack or None)
        if alone.generation >= 0:
            assert columns.generation[i] == alone.generation


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40), max_size=4))
def test_noise_never_breaks_a_plan(noise: list[bytes]) -> None:
    members = [JoinedMember(member_id=f"m{i}", metadata=data) for i, data in enumerate(noise)]
    members.append(JoinedMember(member_id="good", metadata=encode_subscription(Subscription(topics=("t",)))))
    for strategy in STRATEGIES:
        planned = plan_round(strategy, VIEW, members)
        assert set(planned.encode()) == {member.member_id for member in members}
        given_out = [part for parts in planned.assignment.values() for part in parts]
        assert len(given_out) == len(set(given_out))


def random_group(seed: int) -> tuple[ClusterView, dict[str, Member]]:
    rng = random.Random(seed)
    racks = "abc" if seed % 2 else ""
    topics = [f"topic-{i}" for i in range(12)]
    spots = [frozenset(rng.sample(racks, 2)) if racks else frozenset() for _ in range(30)]
    view = ClusterView({topic: TopicView(30, tuple(spots) if racks else ()) for topic in topics})
    members = {}
    for m in range(20):
        wanted = topics if seed % 3 == 0 else rng.sample(topics, rng.randint(1, 12))
        owned = {TopicPartition(topic, n) for topic in wanted for n in range(30) if rng.random() < 0.05}
        members[f"m{m}"] = Member(
            topics=tuple(wanted), owned=frozenset(owned), generation=rng.choice([4, 5]), rack=rng.choice("abc")
        )
    return view, members


@pytest.mark.slow
def test_compiled_and_interpreted_kernels_give_the_same_bytes() -> None:
    """They are the same functions; this is what says so."""
    for seed in range(6):
        view, members = random_group(seed)
        for strategy in STRATEGIES:
            interpreted = plan_round(strategy, view, joined(strategy, members)).encode()
            with kernels.compiling():
                compiled = plan_round(strategy, view, joined(strategy, members)).encode()
            assert compiled == interpreted


@pytest.mark.slow
def test_warming_up_compiles_every_kernel() -> None:
    """A kernel that `warm` forgets would be compiled by the first leader that needs it, during a rebalance."""
    warm()
    modules = [
        importlib.import_module(f"holdfast.assign.{name}")
        for name in ("answer", "eager", "equal", "flow", "scan", "sticky")
    ]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, kernels.Kernel)]
    assert len(found) >= 10
    assert [one.name for one in found if not one.compiled] == []


def test_a_small_group_is_planned_without_a_compiler() -> None:
    """Loading numba takes a second; the leader of a small group must not spend it."""
    program = """
import sys
from holdfast.assign import plan_round
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicView
from holdfast.model.consumer_protocol import encode_subscription
view = ClusterView({"t": TopicView(12)})
data = encode_subscription(Subscription(topics=("t",)))
plan_round("cooperative-sticky", view, [JoinedMember(member_id=f"m{i}", metadata=data) for i in range(4)]).encode()
assert not {"numba", "pyarrow", "kio", "confluent_kafka"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_members_with_the_larger_share_are_walked_as_a_java_hash_map() -> None:
    """Buckets of consumer1 to consumer4 in a table of 16 are 12, 11, 10 and 9; of 13 members in one of 32."""
    assert hash_map_order([f"consumer{i}" for i in range(1, 5)]) == [3, 2, 1, 0]
    thirteen = [f"c{i:02d}" for i in range(13)]
    assert sorted(hash_map_order(thirteen)) == list(range(13))
    assert hash_map_order([]) == []


def test_long_and_astral_ids_are_answered() -> None:
    ids = ["x" * 5_000, "\U0001f600", "～", "", "a b\n"]
    data = encode_subscription(Subscription(topics=("t",)))
    planned = plan_round("cooperative-sticky", VIEW, [JoinedMember(member_id=i, metadata=data) for i in ids])
    assert {name: len(decode_assignment(given).partitions) for name, given in planned.encode().items()} == {
        "": 1, "a b\n": 1, "x" * 5_000: 1, "\U0001f600": 0, "～": 0,
    }  # fmt: skip


def test_whoever_asks_for_the_topics_pays_for_no_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the leader of a group with 100,000 partitions stood still for a third of a second in each round, ten
    times as long as the plan took. Cause: to learn which topics to look up it read all claims against a cluster without
    topics, in which each is an object of its own. Invariant: topics are learnt without looking at claims."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(scan, "claims", never)
    owned = frozenset(TopicPartition("t", number) for number in range(50))
    members = [Subscription(topics=("t", "u"), owned=owned, generation=3), Subscription(topics=("v",))]
    assert topics_of(
        JoinedMember(member_id=f"m{number}", metadata=encode_subscription(each)) for number, each in enumerate(members)
    ) == {"t", "u", "v"}


def test_a_stranger_that_claims_what_nobody_can_see_is_not_read_for_ever() -> None:
    """Symptom: one stranger with a megabyte of claims on partitions that don't exist held up its leader for two
    seconds in each round, sixty of them for so long that it was expelled, and the next leader after it. Cause: each was
    an object of its own. Invariant: of one member so many count as a topic may hide, and it costs the others none."""
    endless = frozenset(TopicPartition("hidden", number) for number in range(MAX_OTHERS + 5_000))
    honest = frozenset({TopicPartition("hidden", 2**20)})
    members = [
        JoinedMember(
            member_id=name, metadata=encode_subscription(Subscription(topics=("hidden",), owned=owned, generation=3))
        )
        for name, owned in (("a", honest), ("b", endless), ("c", frozenset({TopicPartition("hidden", 2**20 + 1)})))
    ]
    columns = read(VIEW, members)
    assert [len([other for other in columns.others if other[0] == member]) for member in range(3)] == [1, MAX_OTHERS, 1]
    planned = plan_round("cooperative-sticky", VIEW, members)
    assert planned.assignment["a"] == honest
    assert planned.contested
