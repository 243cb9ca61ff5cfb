"""Members of the four other clients on a real Kafka: they share, hand over, hang and die, and their logs show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.testing.groupcheck import doubled, lost, overlaps
from holdfast.testing.kafka import RealKafka
from holdfast.testing.members import Event, MemberLog, MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from holdfast.testing.verdict import Verdict, judge

pytestmark = [pytest.mark.java, pytest.mark.kafka]

PARTITIONS = 6
RATE = 300.0


class Group:
    """One topic, one group, a steady producer, and members that are ended with the test."""

    def __init__(self, kafka: RealKafka, stack: ExitStack, name: str, folder: Path) -> None:
        self.kafka = kafka
        self.name = name
        self.folder = folder
        self.members: list[MemberProcess] = []
        self._stack = stack
        kafka.create_topic(name, partitions=PARTITIONS)
        self.producer = stack.enter_context(SteadyProducer(kafka.bootstrap, name, partitions=PARTITIONS, rate=RATE))

    def add(self, kind: str, *, members: int = 1, **options: Any) -> MemberProcess:
        told: dict[str, Any] = {
            "assignors": ("cooperative-sticky",),
            "session_ms": 6000,
            "heartbeat_ms": 300,
            "commit_every_ms": 200,
        }
        settings = MemberOptions(
            bootstrap=self.kafka.bootstrap,
            group=self.name,
            topic=self.name,
            **(told | options),
        )
        name = f"{kind}-{len(self.members)}"
        member = MemberProcess(kind, settings, name=name, members=members, folder=self.folder)
        self.members.append(self._stack.enter_context(member))
        return member

    def finish(self, last: MemberProcess) -> dict[int, list[int]]:
        """Stops producing and waits until all that was acknowledged has been processed by somebody."""
        self.producer.stop()
        acknowledged = self.producer.acknowledged()
        last.wait_for(lambda: not lost(acknowledged, self.logs()), "to process what is left")
        return acknowledged

    def verdict(self) -> Verdict:
        """Nobody here is ours: what a client says itself that it could not commit may come again."""
        logs = self.logs()
        return judge(self.producer.acknowledged(), logs, foreign={log.name for log in logs})

    def story(self) -> str:
        return "\n".join(f"{log.name} {event}" for log in self.logs() for event in log.events[-20:])

    def logs(self) -> list[MemberLog]:
        return [log.refresh() for member in self.members for log in member.logs]


def callbacks(member: MemberProcess) -> list[Event]:
    return [event for event in member.events() if event.name in {"assigned", "revoked", "lost"}]


@pytest.fixture
def group(kafka: RealKafka, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    with ExitStack() as stack:
        yield Group(kafka, stack, name, tmp_path)


@pytest.mark.parametrize(
    ("kind", "assignor"),
    [
        ("java", "cooperative-sticky"),
        ("confluent", "cooperative-sticky"),
        ("kafka-python", "cooperative-sticky"),
        ("aiokafka", "range"),
    ],
)
def test_two_members_share_and_the_one_that_closes_hands_over_cleanly(group: Group, kind: str, assignor: str) -> None:
    first = group.add(kind, assignors=(assignor,))
    first.wait_assigned(PARTITIONS)
    first.wait_records(PARTITIONS)
    second = group.add(kind, assignors=(assignor,))
    assert first.wait_assigned(PARTITIONS // 2).isdisjoint(second.wait_assigned(PARTITIONS // 2))
    second.wait_records(PARTITIONS)
    first.terminate()
    second.wait_assigned(PARTITIONS)

    assert sum(map(len, group.finish(second).values())) > 0
    verdict = group.verdict()
    assert verdict.clean, f"{verdict}\n{group.story()}"


@pytest.mark.parametrize(
    ("assignor", "kinds"),
    [("cooperative-sticky", ("java", "confluent", "kafka-python")), ("range", ("aiokafka", "java", "confluent"))],
    ids=["cooperative", "eager"],
)
def test_a_group_mixed_of_several_clients_shares_and_hands_over_cleanly(
    group: Group, assignor: str, kinds: Sequence[str]
) -> None:
    for kind in kinds:
        group.add(kind, assignors=(assignor,)).wait_assigned()
    for member in group.members:
        member.wait_assigned(PARTITIONS // len(kinds))
    group.members[0].terminate()
    for member in group.members[1:]:
        member.wait_assigned(PARTITIONS // 2)

    group.finish(group.members[-1])

    verdict = group.verdict()
    assert verdict.clean, f"{verdict}\n{group.story()}"


def test_one_jvm_hosts_several_members_and_each_obeys_for_itself(group: Group) -> None:
    host = group.add("java", members=3)
    for index in range(3):
        host.wait_assigned(PARTITIONS // 3, index=index)
    host.close(1)
    host.wait_event("closed", index=1)
    for index in (0, 2):
        host.wait_assigned(PARTITIONS // 2, index=index)
    assert host.running

    host.terminate()

    assert all(log.named("closed") for log in host.logs)
    assert overlaps(group.logs()) == []


def test_a_member_that_hangs_past_its_poll_interval_loses_its_partitions_to_the_other(group: Group) -> None:
    stuck = group.add("confluent", max_poll_ms=6000)
    stuck.wait_assigned(PARTITIONS)
    other = group.add("confluent")
    other.wait_assigned(PARTITIONS // 2)
    stuck.wait_assigned(PARTITIONS // 2)

    stuck.hang(9)
    stuck.wait_event("hang")
    other.wait_assigned(PARTITIONS)
    stuck.wait_event("lost")

    group.finish(other)


def test_a_killed_members_log_is_whole_and_its_partitions_go_on_after_the_session_timeout(group: Group) -> None:
    doomed = group.add("confluent")
    doomed.wait_assigned(PARTITIONS)
    survivor = group.add("confluent")
    survivor.wait_assigned(PARTITIONS // 2)
    doomed.wait_assigned(PARTITIONS // 2)
    doomed.kill()
    survivor.wait_assigned(PARTITIONS)

    group.finish(survivor)

    assert doomed.log().named("closed") == []
    with pytest.raises(HoldfastError, match="without a clean close"):
        doomed.terminate()


@pytest.mark.parametrize("kind", ["java", "confluent"])
def test_a_static_member_that_restarts_takes_its_partitions_back_and_disturbs_nobody(group: Group, kind: str) -> None:
    other = group.add(kind, session_ms=30_000, instance_id="other")
    other.wait_assigned(PARTITIONS)
    restarted = group.add(kind, session_ms=30_000, instance_id="restarted")
    before = restarted.wait_assigned(PARTITIONS // 2)
    other.wait_assigned(PARTITIONS // 2)
    restarted.terminate()
    told = len(callbacks(other))

    again = group.add(kind, session_ms=30_000, instance_id="restarted")

    assert again.wait_assigned(PARTITIONS // 2) == before
    group.finish(again)
    assert len(callbacks(other)) == told
    assert doubled(group.logs()) == []


def test_a_member_told_to_wait_joins_when_it_hears_the_word(group: Group) -> None:
    member = group.add("confluent", join_on_command=True)
    member.wait_ready()
    assert not member.log().named("joining")

    member.join()

    member.wait_assigned(PARTITIONS)


def test_a_member_that_ends_early_fails_the_wait_with_its_output(group: Group) -> None:
    member = group.add("confluent", assignors=("sticky",))

    with pytest.raises(HoldfastError, match=r"(?s)MEMBER_FAILED.*librdkafka has no assignor sticky"):
        member.wait_assigned()
