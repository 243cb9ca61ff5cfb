"""Consumers in a group: handovers, drains, evictions, fencing, and the watchdog, on the embedded broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from inside import watchdog_of
from patience import PATIENCE_S


class Member:
    """A consumer that remembers what it was told and given."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: Any) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.seen: list[tuple[int, int]] = []
        self.errors: list[ck.KafkaError] = []
        self.topic = topic
        self.consumer = holdfast.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,  # a first round waits for it; the second one never does
                **settings,
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._hear("assigned"), on_revoke=self._hear("revoked"), on_lost=self._hear("lost")
        )

    def _hear(self, what: str) -> Callable[[Any, list[ck.TopicPartition]], None]:
        return lambda _consumer, partitions: self.heard.append((what, sorted(p.partition for p in partitions)))

    @property
    def owned(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def step(self) -> None:
        message = self.consumer.poll(0.01)
        if message is not None and (error := message.error()) is not None:
            self.errors.append(error)
        elif message is not None:
            self.seen.append((message.partition() or 0, message.offset() or 0))


@pytest.fixture
def group(broker: Broker, topic: str) -> Iterator[Callable[..., Member]]:
    name = f"group-{next(COUNTER)}"
    made: list[Member] = []

    def member(**settings: Any) -> Member:
        made.append(Member(broker, name, topic, **settings))
        return made[-1]

    yield member
    for one in made:
        one.consumer.close()


def run(members: list[Member], until: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """Poll everybody in turn until it holds."""
    deadline = time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < deadline, [(m.owned, m.heard) for m in members]
        for member in members:
            member.step()


def shared(members: list[Member]) -> bool:
    """Everything is owned, by one each, and everybody has something."""
    owned = [member.owned for member in members]
    return all(owned) and sum(map(len, owned)) == 3 and set().union(*owned) == {0, 1, 2}


def test_a_second_member_takes_its_share_and_what_stays_is_never_revoked(group: Callable[..., Member]) -> None:
    first = group()
    run([first], lambda: len(first.seen) == 15)
    second = group()
    run([first, second], lambda: shared([first, second]))
    (revoked,) = [partitions for what, partitions in first.heard if what == "revoked"]
    assert revoked == sorted(second.owned)
    assert not {"lost"} & {what for what, _ in first.heard + second.heard}


def test_positions_change_hands_without_a_record_lost_or_doubled(group: Callable[..., Member]) -> None:
    first = group()
    run([first], lambda: len(first.seen) == 15)
    second = group()
    run([first, second], lambda: shared([first, second]))
    for _ in range(20):
        second.step()
    assert second.seen == []


def test_a_member_that_closes_hands_its_partitions_to_the_others(group: Callable[..., Member]) -> None:
    first, second = group(), group()
    run([first, second], lambda: shared([first, second]) and len(first.seen) + len(second.seen) == 15)
    second.consumer.close()
    run([first], lambda: first.owned == {0, 1, 2})
    assert sorted(first.seen + second.seen) == [(p, n) for p in range(3) for n in range(5)]


def test_a_drained_member_works_until_it_is_out(group: Callable[..., Member]) -> None:
    first, second = group(), group()
    run([first, second], lambda: shared([first, second]))
    assert not second.consumer.drain()
    run([first, second], second.consumer.drain)
    run([first], lambda: first.owned == {0, 1, 2})
    assert "revoked" in {what for what, _ in second.heard}


@pytest.mark.slow
def test_a_member_that_does_not_poll_is_out_and_comes_back_having_lost_everything(
    group: Callable[..., Member], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    settings = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    first = group(**settings, **{"holdfast.trace.file": str(trace)})
    run([first], lambda: len(first.seen) == 15)
    second = group()
    deadline = time.monotonic() + PATIENCE_S
    while second.owned != {0, 1, 2}:
        assert time.monotonic() < deadline
        second.step()
    assert "poll-expired" in {json.loads(line)["step"] for line in trace.read_text().splitlines()}
    with pytest.warns(holdfast.PitfallWarning, match=r"between two polls.*test_client_group\.py:\d+ in step"):
        run([first, second], lambda: shared([first, second]))
    lost = sorted(p for what, partitions in first.heard if what == "lost" for p in partitions)
    assert lost == [0, 1, 2]
    assert [error.code() for error in first.errors] == [ck.KafkaError._MAX_POLL_EXCEEDED], "as confluent tells it"
    assert "revoked" not in {what for what, _ in first.heard}, "nothing could be committed any more"


def test_of_two_processes_with_one_instance_id_the_older_is_fenced_and_told_why(group: Callable[..., Member]) -> None:
    settings = {"group.instance.id": "pod-0", "heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
    older = group(**settings)
    run([older], lambda: len(older.owned) == 3)
    newer = group(**settings)
    run([older, newer], lambda: bool(older.errors), limit_s=20)
    error = older.errors[0]
    assert error.code() == ck.KafkaError._FATAL
    assert error.fatal() and "FENCED_INSTANCE_ID" in error.str()
    assert "group.instance.id" in error.str()
    with pytest.raises(ck.KafkaException) as refused:
        older.consumer.commit(asynchronous=False)
    assert refused.value.args[0].code() == ck.KafkaError._FATAL, "as confluent-kafka; it was _NO_OFFSET"


def test_a_commit_of_somebody_elses_partition_is_refused(group: Callable[..., Member]) -> None:
    first, second = group(), group()
    run([first, second], lambda: shared([first, second]))

    def refused() -> int:
        foreign = ck.TopicPartition(first.topic, next(iter(second.owned)), 1)
        with pytest.raises(ck.KafkaException) as caught:
            first.consumer.commit(offsets=[foreign], asynchronous=False)
        return int(caught.value.args[0].code())

    run([first, second], lambda: refused() != ErrorCode.REBALANCE_IN_PROGRESS)  # the round may not be quite over
    assert refused() == ck.KafkaError._STATE


def test_pause_state_and_position_of_kept_partitions_survive_a_rebalance(group: Callable[..., Member]) -> None:
    """edge B52 librdkafka 4686: a subscription change resumed kept partitions from an old position."""
    first = group()
    run([first], lambda: len(first.seen) == 15)
    kept = [ck.TopicPartition(first.topic, p) for p in range(3)]
    first.consumer.pause(kept)
    second = group()
    run([first, second], lambda: shared([first, second]))
    still = [ck.TopicPartition(first.topic, p) for p in sorted(first.owned)]
    assert {p.offset for p in first.consumer.position(still)} == {5}
    for partition in still:
        first.consumer.seek(ck.TopicPartition(partition.topic, partition.partition, 0))
    for _ in range(20):
        first.step()
    assert len(first.seen) == 15, "what was paused stays paused"


def test_every_callback_is_made_although_one_raises_and_the_first_error_comes_out_of_poll(
    broker: Broker, topic: str
) -> None:
    """edge B38 K-9620: an exception in on_revoke left on_assign uncalled and the member half assigned."""
    name = f"raising-{topic}"
    made: list[str] = []
    first = Member(broker, name, topic)

    def revoke(_consumer: Any, _partitions: Any) -> None:
        made.append("revoke")
        raise RuntimeError("from on_revoke")

    def assign(_consumer: Any, _partitions: Any) -> None:
        made.append("assign")
        if "revoke" in made:
            raise RuntimeError("from on_assign")

    first.consumer.subscribe([topic], on_assign=assign, on_revoke=revoke)
    run([first], lambda: len(first.owned) == 3)
    second = Member(broker, name, topic)
    with pytest.raises(RuntimeError, match="from on_revoke"):
        run([first, second], lambda: False, limit_s=20)
    assert made[-2:] == ["revoke", "assign"], "the other call was made all the same"
    first.consumer.subscribe([topic])
    run([first, second], lambda: shared([first, second]))
    first.consumer.close()
    second.consumer.close()


VICTIM = """
import sys
from holdfast import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "auto.offset.reset": "earliest"})
consumer.subscribe([sys.argv[3]])
while True:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        print(message.partition(), message.offset(), flush=True)
"""


@pytest.mark.slow
def test_the_watchdog_of_a_killed_member_commits_and_leaves_in_its_name(broker: Broker, topic: str) -> None:
    """Without it the survivors would wait 45 s, the session timeout, and do again whatever was not committed."""
    name = f"killed-{topic}"
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, broker.bootstrap, name, topic], stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    with victim.stdout:
        for _ in range(15):
            assert victim.stdout.readline()
        survivor = Member(broker, name, topic)
        run([survivor], lambda: bool(survivor.owned))
        victim.kill()
        victim.wait()
    run([survivor], lambda: survivor.owned == {0, 1, 2}, limit_s=20)
    assert survivor.seen == [], "everything was committed where the victim stood"
    survivor.consumer.close()


def test_the_watchdog_is_small_and_ends_with_a_clean_close(group: Callable[..., Member]) -> None:
    member = group()
    run([member], lambda: bool(member.owned))
    watchdog = watchdog_of(member.consumer)
    status = Path(f"/proc/{watchdog.pid}/status").read_text()
    resident_kb = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident_kb < 20_000
    assert b"bootstrap" not in Path(f"/proc/{watchdog.pid}/cmdline").read_bytes()
    member.consumer.close()
    assert not Path(f"/proc/{watchdog.pid}").exists()


def test_a_static_member_has_no_watchdog_unless_it_asks_for_one(group: Callable[..., Member]) -> None:
    member = group(**{"group.instance.id": "pod-7"})
    run([member], lambda: bool(member.owned))
    assert watchdog_of(member.consumer) is None


def test_a_control_plane_that_died_is_heard_of_in_poll(
    group: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """edge B49 K-14729: the background task died and poll span for ever, returning nothing."""
    member = group()
    run([member], lambda: bool(member.owned))

    def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug in the background")

    with monkeypatch.context() as broken:
        broken.setattr(watchdog_of(member.consumer), "inform", dies)
        member.consumer.enforce_rebalance("wakes the background")
        with pytest.raises(ck.KafkaException, match="a bug in the background"):
            run([member], lambda: False, limit_s=10)


@pytest.mark.slow
def test_no_lock_is_held_across_a_callback(group: Callable[..., Member]) -> None:
    """edge B57, B58 kafka-python 1623, aiokafka 335: a lock held across poll and the listener deadlocked with the
    heartbeat. Here a callback may ask the group anything, and heartbeats go on meanwhile."""
    asked: list[object] = []
    settings = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
    member = group(**settings)

    def long_and_curious(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        time.sleep(1.0)
        asked.append((consumer.memberid(), len(consumer.committed(partitions, 5)), consumer.position(partitions)))

    member.consumer.subscribe([member.topic], on_assign=long_and_curious)
    run([member], lambda: bool(asked))
    assert member.consumer.memberid() is not None
    assert "lost" not in {what for what, _ in member.heard}
