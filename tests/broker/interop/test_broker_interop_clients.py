"""Every client of today on the embedded broker: its own admin, producer and consumer groups, alone and mixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from clients import (
    ASSIGNORS,
    COMPRESSIONS,
    HOLDFAST,
    KINDS,
    GroupScene,
    create_and_produce,
    read_all,
    read_with,
    values,
)

from holdfast.testing.broker import Broker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated"),  # kafka-python's own, when it is imported
]

JAVA_KINDS = {"java"}


def kinds(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.java) if name in JAVA_KINDS else name for name in names]


def pairs() -> Sequence[object]:
    return [
        pytest.param(kind, assignor, marks=pytest.mark.java) if kind in JAVA_KINDS else (kind, assignor)
        for kind in KINDS
        for assignor in ASSIGNORS[kind]
    ] + [("holdfast", assignor) for assignor in HOLDFAST]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("kind", kinds(KINDS))
def test_a_client_creates_a_topic_and_produces_with_every_compression(broker: Broker, kind: str) -> None:
    topic = f"made-by-{kind}"

    create_and_produce(kind, broker.bootstrap, topic)

    expected = sorted(value for compression in COMPRESSIONS for value in values(compression))
    assert broker.topics.count(topic) == len(expected)
    assert len(broker.topics.offsets(topic)) == 3
    assert sorted(read_all(broker.bootstrap, topic, len(expected))) == expected


@pytest.mark.parametrize("kind", ["aiokafka", "kafka-python"])
def test_a_client_reads_what_another_one_compressed(broker: Broker, kind: str) -> None:
    topic = f"read-by-{kind}"
    create_and_produce("confluent", broker.bootstrap, topic)
    expected = sorted(value for compression in COMPRESSIONS for value in values(compression))

    assert sorted(read_with(kind, broker.bootstrap, topic, len(expected))) == expected


@pytest.mark.parametrize(("kind", "assignor"), pairs())
def test_a_group_survives_members_that_come_go_and_die(
    broker: Broker, tmp_path: Path, kind: str, assignor: str
) -> None:
    name = f"{kind}-{assignor}"
    with GroupScene(broker, tmp_path, topic=name, group=name) as scene:
        scene.add("one", kind, (assignor,))
        scene.add("two", kind, (assignor,))
        scene.wait_shared()
        assert broker.group(name).protocol == assignor

        scene.add("three", kind, (assignor,))
        scene.wait_shared()
        scene.remove("two")
        scene.wait_shared()
        scene.kill("three")
        scene.wait_shared()
        scene.settle()


@pytest.mark.parametrize("kind", kinds(KINDS))
def test_a_group_resumes_where_it_committed(broker: Broker, tmp_path: Path, kind: str) -> None:
    name = f"resume-{kind}"
    with GroupScene(broker, tmp_path, topic=name, group=name) as scene:
        scene.add("first", kind, ("range",)).wait_records(50)
        scene.remove("first")
        scene.add("second", kind, ("range",)).wait_records(50)
        scene.settle()
        scene.remove("second")

        first, second = scene.logs()
        ended = {record.partition: record.offset for record in first.records}
        began: dict[int, int] = {}
        for record in second.records:
            began.setdefault(record.partition, record.offset)
        assert began.keys() >= ended.keys()
        assert began == {partition: ended.get(partition, -1) + 1 for partition in began}


@pytest.mark.parametrize("kind", kinds(KINDS))
def test_static_members_restart_without_a_rebalance(broker: Broker, tmp_path: Path, kind: str) -> None:
    name = f"static-{kind}"
    with GroupScene(broker, tmp_path, topic=name, group=name) as scene:
        # Longer than a JVM takes to start again on a loaded machine: the session is what a static member has for it.
        scene.add("one", kind, ("range",), instance_id="i-1", session_ms=45_000)
        scene.add("two", kind, ("range",), instance_id="i-2", session_ms=45_000)
        scene.wait_shared()
        owned = scene.members["two"].owned()
        generation = scene.generation()
        rounds = len(scene.members["one"].log().named("assigned"))

        scene.kill("two")
        scene.add("again", kind, ("range",), instance_id="i-2", session_ms=45_000).wait_assigned(len(owned))

        assert scene.members["again"].owned() == owned
        assert scene.generation() == generation
        assert len(scene.members["one"].log().named("assigned")) == rounds
        scene.settle()


@pytest.mark.java
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_the_four_kinds_share_one_group(broker: Broker, tmp_path: Path, assignor: str) -> None:
    name = f"mixed-{assignor}"
    with GroupScene(broker, tmp_path, topic=name, group=name, partitions=8) as scene:
        for kind in KINDS:
            scene.add(kind, kind, (assignor,))
        scene.wait_shared()
        scene.remove("aiokafka")
        scene.wait_shared()
        scene.kill("kafka-python")
        scene.wait_shared()
        scene.settle()


@pytest.mark.java
def test_the_kinds_that_can_cooperate_share_one_cooperative_group(broker: Broker, tmp_path: Path) -> None:
    cooperative = [kind for kind in KINDS if "cooperative-sticky" in ASSIGNORS[kind]]
    with GroupScene(broker, tmp_path, topic="mixed-coop", group="mixed-coop", partitions=6) as scene:
        for kind in cooperative:
            scene.add(kind, kind, ("cooperative-sticky",))
        scene.wait_shared()
        scene.remove(cooperative[0])
        scene.wait_shared()
        scene.settle()


@pytest.mark.java
def test_the_kinds_that_have_sticky_share_one_sticky_group(broker: Broker, tmp_path: Path) -> None:
    sticky = [kind for kind in KINDS if "sticky" in ASSIGNORS[kind]]
    with GroupScene(broker, tmp_path, topic="mixed-sticky", group="mixed-sticky", partitions=6) as scene:
        for kind in sticky:
            scene.add(kind, kind, ("sticky",))
        scene.wait_shared()
        scene.remove(sticky[0])
        scene.wait_shared()
        scene.settle()


@pytest.mark.java
def test_java_members_get_the_partitions_of_their_racks(tmp_path: Path) -> None:
    """KIP-881 on one machine: replicas alternate between two racks, and so do the members' partitions."""
    alternating = [[0], [1], [0], [1]]
    with (
        Broker(racks=("a", "b")) as racked,
        GroupScene(racked, tmp_path, topic="racked", group="racked", partitions=4, assignments=alternating) as scene,
    ):
        scene.add("in-a", "java", ("range",), rack="a")
        scene.add("in-b", "java", ("range",), rack="b")
        scene.wait_shared()
        assert scene.members["in-a"].owned() == {0, 2}
        assert scene.members["in-b"].owned() == {1, 3}
        scene.settle()


@pytest.mark.parametrize("kind", kinds(KINDS))
def test_a_group_goes_on_in_its_generation_after_a_restart_of_the_broker(tmp_path: Path, kind: str) -> None:
    """A Java client that finds none of its brokers up begins anew with its bootstrap servers and forgets all topics
    (metadata.recovery.strategy). As leader it then calls a round, because "cached metadata has changed". That is its
    doing, and not the coordinator's, so it is switched off here."""
    calm = {"metadata.recovery.strategy": "none"} if kind == "java" else {}
    logs = tmp_path / "logs"
    logs.mkdir()
    with (
        Broker(data=tmp_path / "data") as durable,
        GroupScene(durable, logs, topic="kept", group="kept") as scene,
    ):
        for name in ("one", "two"):
            scene.add(name, kind, ("range",), session_ms=45_000, config=calm)
        scene.wait_shared()
        generation = scene.generation()
        before = scene.producer.sent

        durable.restart()

        scene.wait(lambda: scene.producer.sent > before + 100, "the producer to go on")
        scene.settle()
        assert scene.generation() == generation
