"""The processes of `holdfast bench assign`: each case is prepared in one process and measured in a fresh one.

A case is a file: a JSON line with the topics and the members' ids and sizes, then the members' subscription bytes. So a
measuring process starts from bytes, as a leader does, and its first plan includes every import.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import ClusterView, JoinedMember, Subscription, TopicView
from holdfast.model.consumer_protocol import encode_subscription

if TYPE_CHECKING:
    from holdfast.bench.assign import Scale

WARM_S = 4
"""How long warm runs are repeated, ours and Java's, so that bad luck on a busy machine does not decide."""

NOTHING = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""An assignment of nothing."""


def wanted(scale: Scale) -> dict[str, list[str]]:
    """Who subscribes to what; the last member is the one that joins. If they differ: a random half, by a fixed seed.

    A half is easy for Java. If members subscribe to anything from one topic to all, its first plan takes minutes.
    """
    topics = topic_names(scale)
    names = [f"consumer-{i:06d}" for i in range(scale.members + 1)]
    if not scale.differing:
        return dict.fromkeys(names, topics)
    rng = random.Random(scale.members)
    return {name: sorted(rng.sample(topics, len(topics) // 2)) for name in names}


def topic_names(scale: Scale) -> list[str]:
    return [f"topic-{i:05d}" for i in range(scale.topics)]


def joining(topics: Sequence[str], given: bytes, generation: int, heads: dict[tuple[str, ...], bytes]) -> bytes:
    """A subscription that owns what an assignment gave. The list of partitions has the same bytes in both formats."""
    key = tuple(topics)
    if key not in heads:
        heads[key] = encode_subscription(Subscription(topics=key), version=0)[2:]
    return b"".join((b"\0\3", heads[key], given[2:-4], generation.to_bytes(4, "big", signed=True), b"\xff\xff"))


def prepare(scale: Scale, folder: Path) -> None:
    """Write the cases of one scale. Planning the fresh group here also compiles the kernels into numba's cache."""
    people = wanted(scale)
    topics = dict.fromkeys(topic_names(scale), scale.partitions)
    *staying, _ = people
    heads: dict[tuple[str, ...], bytes] = {}
    fresh = {name: joining(people[name], NOTHING, -1, heads) for name in staying}
    write(folder / "fresh", topics, fresh)
    given = _planned(topics, fresh)
    rejoined = {name: joining(people[name], given[name], 1, heads) for name in staying}
    newcomer = {name: joining(people[name], NOTHING, -1, heads) for name in people if name not in rejoined}
    write(folder / "join", topics, {**rejoined, **newcomer})
    write(folder / "leave", topics, {name: rejoined[name] for name in staying[1:]})
    _planned(topics, {**rejoined, **newcomer})


def _planned(topics: Mapping[str, int], members: Mapping[str, bytes]) -> dict[str, bytes]:
    from holdfast.assign import plan_round

    view = ClusterView({topic: TopicView(count) for topic, count in topics.items()})
    joined = [JoinedMember(member_id=name, metadata=data) for name, data in members.items()]
    return plan_round("cooperative-sticky", view, joined).encode()


def write(path: Path, topics: Mapping[str, int], members: Mapping[str, bytes]) -> None:
    head = {"topics": topics, "members": [[name, len(data)] for name, data in members.items()]}
    path.write_bytes(json.dumps(head).encode() + b"\n" + b"".join(members.values()))


def load(path: Path) -> tuple[ClusterView, list[JoinedMember]]:
    head, _, data = path.read_bytes().partition(b"\n")
    described = json.loads(head)
    members = []
    at = 0
    for name, size in described["members"]:
        members.append(JoinedMember(member_id=name, metadata=data[at : at + size]))
        at += size
    return ClusterView({topic: TopicView(count) for topic, count in described["topics"].items()}), members


def measure(path: Path, repeats: int) -> dict[str, float]:
    """Seconds from subscription bytes to assignment bytes: of the process's first plan, and of the best later one."""
    view, members = load(path)
    start = time.perf_counter()
    from holdfast.assign import plan_round

    plan = plan_round("cooperative-sticky", view, members)
    plan.encode()
    first = time.perf_counter() - start
    moved = len(plan.moved)
    del plan
    best = float("inf")
    begin = time.perf_counter()
    runs = 0
    while runs < repeats or time.perf_counter() - begin < WARM_S:
        start = time.perf_counter()
        plan_round("cooperative-sticky", view, members).encode()
        best = min(best, time.perf_counter() - start)
        runs += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold_s": first, "warm_s": best, "peak_mb": peak, "moved": moved}


def main(args: Sequence[str]) -> None:
    """`prepare FOLDER SCALE…` or `measure FILE REPEATS`; the answer is a line of JSON."""
    if args[0] == "prepare":
        from holdfast.bench.assign import Scale

        prepare(Scale(**json.loads(args[2])), Path(args[1]))
        print("{}")
    else:
        print(json.dumps(measure(Path(args[1]), int(args[2]))))


if __name__ == "__main__":
    main(sys.argv[1:])
