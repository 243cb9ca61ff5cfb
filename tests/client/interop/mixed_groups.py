"""What the tests of mixed groups share: the two grounds they run on, and who leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.broker import Broker
from holdfast.testing.members import MemberOptions
from holdfast.testing.scene import GroupScene
from holdfast.trace import BadLine, read_trace_file

KINDS = ("holdfast", "java", "confluent")

GROUNDS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("kafka", id="kafka", marks=pytest.mark.kafka),
]


@contextmanager
def ground(
    request: pytest.FixtureRequest,
    where: str,
    folder: Path,
    *,
    partitions: int,
    defaults: MemberOptions | None = None,
    rate: float = 300.0,
) -> Iterator[GroupScene]:
    """A group on trial, on a real Kafka or on an embedded broker of its own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    settings: dict[str, Any] = {"partitions": partitions, "folder": folder, "defaults": defaults, "rate": rate}
    if where == "kafka":
        kafka = request.getfixturevalue("kafka")
        kafka.create_topic(name, partitions=partitions)
        with GroupScene(kafka.bootstrap, name, **settings) as scene:
            yield scene
        return
    with Broker() as broker:
        broker.topics.create(name, partitions)
        with GroupScene(broker.bootstrap, name, **settings) as scene:
            yield scene


def steps(scene: GroupScene, name: str, step: str) -> list[Any]:
    """The records of one step in a holdfast member's trace."""
    half_written: list[BadLine] = []  # the member may be at its last line just now
    found = read_trace_file(scene.trace_of(name), on_bad=half_written.append)
    return [record for record in found if record.step == step]


def leader_seen_by(scene: GroupScene, name: str) -> str:
    """Who led the last round that this holdfast member took part in, as the coordinator told it."""
    leader = str(steps(scene, name, "joined")[-1].data["leader"])
    return next((member for member in scene.members if leader.startswith(f"{member}-")), leader)


def taken_over(scene: GroupScene, partitions: frozenset[int]) -> bool:
    """Whether those in the group own what others left behind."""
    return partitions <= frozenset().union(*(member.owned() for member in scene.members.values()))
