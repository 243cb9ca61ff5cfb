"""Closing from inside a callback: done when the callbacks under way have returned, without waiting for itself."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from polling import take

import holdfast
from holdfast.client import core
from holdfast.client.member import commits
from holdfast.client.member.control import ControlPlane
from holdfast.group.session import steps
from holdfast.model import ErrorCode, HoldfastError
from holdfast.testing import Broker
from holdfast.wire.api import Api
from inside import plane_of, reading_of
from patience import PATIENCE_S

QUICK_S, CLOSE_TIMEOUT_S = 60.0, 100.0
"""What waits for itself would take CLOSE_TIMEOUT_S, in place of the ten seconds of the product. Far above what a busy
machine adds to the milliseconds that it should take."""


@pytest.fixture(autouse=True)
def a_close_that_waits_for_itself_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.core.CLOSE_TIMEOUT_S", CLOSE_TIMEOUT_S)


def make(broker: Broker, group: str, **settings: Any) -> holdfast.Consumer:
    given = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return holdfast.Consumer({**given, **settings})


def poll_until_closed(consumer: holdfast.Consumer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(RuntimeError, match="Consumer closed"):
        while time.monotonic() < deadline:
            consumer.poll(0.05)


def test_a_close_in_on_assign_leaves_the_group_and_does_not_wait_for_itself(broker: Broker, topic: str) -> None:
    """Symptom: close() inside a callback took 10 s. Cause: the machine waits for the callback to return before it
    leaves, and the callback waited for the machine. Now it is done as soon as the callbacks have returned."""
    consumer = make(broker, f"closing-{topic}")
    heard: list[str] = []

    def assign(_consumer: Any, _partitions: Any) -> None:
        heard.append("assigned")
        began = time.monotonic()
        consumer.close()
        consumer.close()
        assert time.monotonic() - began < QUICK_S

    consumer.subscribe([topic], on_assign=assign, on_revoke=lambda *_: heard.append("revoked"))
    poll_until_closed(consumer)
    assert heard == ["assigned", "revoked"]
    assert broker.group(f"closing-{topic}").members == ()


def test_a_close_in_the_revoke_of_a_close_is_the_same_close(broker: Broker, topic: str) -> None:
    consumer = make(broker, f"closing-{topic}")
    heard: list[str] = []

    def revoke(_consumer: Any, _partitions: Any) -> None:
        heard.append("revoked")
        consumer.close()

    consumer.subscribe([topic], on_revoke=revoke)
    while not consumer.assignment():
        consumer.poll(0.05)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < QUICK_S
    assert heard == ["revoked"]


def test_a_close_in_on_commit_ends_the_poll_that_told_it(broker: Broker, topic: str) -> None:
    def told(_error: Any, _partitions: Any) -> None:
        consumer.close()

    consumer = make(broker, f"closing-{topic}", on_commit=told, **{"enable.auto.commit": False})
    consumer.subscribe([topic])
    message = None
    while message is None:
        message = consumer.poll(0.05)
    consumer.commit(message=message)
    poll_until_closed(consumer)


def test_what_close_could_not_say_inside_a_callback_comes_out_of_poll(broker: Broker, topic: str) -> None:
    consumer = make(broker, f"closing-{topic}")

    def revoke(_consumer: Any, _partitions: Any) -> None:
        raise RuntimeError("from the last revoke")

    consumer.subscribe([topic], on_assign=lambda *_: consumer.close(), on_revoke=revoke)
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(RuntimeError, match="from the last revoke"):
        while time.monotonic() < deadline:
            consumer.poll(0.05)


def test_consume_returns_what_it_has_when_a_callback_closes(broker: Broker, topic: str) -> None:
    consumer = make(broker, f"closing-{topic}")
    consumer.subscribe([topic], on_assign=lambda *_: consumer.close())
    assert consumer.consume(10, timeout=PATIENCE_S) == []
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.consume(1, timeout=0)


@pytest.mark.parametrize("way", ["unsubscribe", "drain"])
def test_leaving_in_a_callback_does_not_wait_for_it_either(broker: Broker, topic: str, way: str) -> None:
    consumer = make(broker, f"leaving-{topic}")
    heard: list[str] = []

    def assign(*_: Any) -> None:
        began = time.monotonic()
        if way == "drain":
            consumer.drain(timeout=CLOSE_TIMEOUT_S)
        elif not heard:
            consumer.unsubscribe()
        heard.append("assigned")
        assert time.monotonic() - began < QUICK_S

    consumer.subscribe([topic], on_assign=assign, on_revoke=lambda *_: heard.append("revoked"))
    deadline = time.monotonic() + PATIENCE_S
    while "revoked" not in heard:
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    assert consumer.assignment() == []
    consumer.close()
    assert heard[0] == "assigned" and heard.count("revoked") == 1


def test_with_the_drain_switched_off_it_is_a_plain_leave(broker: Broker, topic: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    consumer = make(broker, f"plain-{topic}", **{"holdfast.drain": False, "holdfast.trace.file": str(trace)})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    assert consumer.drain(timeout=30, reason="scaled down")
    consumer.close()
    steps = trace.read_text()
    assert '"leave-sent"' in steps and "scaled down" in steps and '"draining"' not in steps


def error_in(message: ck.Message | None) -> ck.KafkaError:
    assert message is not None
    error = message.error()
    assert error is not None
    return error


def test_an_older_process_with_the_same_instance_id_is_told_who_replaced_it(broker: Broker, topic: str) -> None:
    settings = {"group.instance.id": "pod-0", "heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
    older, newer = (make(broker, f"twins-{topic}", **settings) for _ in range(2))
    older.subscribe([topic])
    while not older.assignment():
        older.poll(0.05)
    newer.subscribe([topic])
    message = None
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        newer.poll(0.005)
        message = message or older.poll(0.005)
        if message is not None and message.error() is not None:
            break
        message = None
    error = error_in(message)
    assert error.code() == ck.KafkaError._FATAL and error.fatal()
    assert "FENCED_INSTANCE_ID" in error.str()
    assert "another process joined the group with the same group.instance.id" in error.str()
    for _ in range(3):
        assert error_in(older.poll(0)).fatal(), "every poll says so"
    (event,) = older.consume(10, 0)
    assert error_in(event).fatal()
    with pytest.raises(ck.KafkaException):
        older.subscribe([topic])
    newer.close()
    older.close()


def test_a_failure_that_comes_while_poll_waits_is_told_by_the_next_poll_too(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: once in a while poll(0) right behind the poll that told of a fatal error returned None. Cause: that poll
    had found nothing but the error when its time was up, and told the next one that there was nothing to look at."""
    consumer = make(broker, f"late-{topic}")
    consumer.subscribe([topic])
    take(consumer, 15)
    plane = plane_of(consumer)

    def fails_meanwhile(*_: Any, **__: Any) -> None:
        plane.failure = HoldfastError("FENCED_INSTANCE_ID", "somebody else has the id.", "Stop one.")
        time.sleep(0.02)  # longer than the poll may take

    monkeypatch.setattr(reading_of(consumer), "gather", fails_meanwhile)
    first = error_in(consumer.poll(0.01))
    second = error_in(consumer.poll(0))
    assert (first.code(), second.code()) == (ck.KafkaError._FATAL, ck.KafkaError._FATAL)
    plane.failure = None
    monkeypatch.undo()
    consumer.close()


def test_whoever_fails_while_it_closes_does_not_wait_for_a_leave(broker: Broker, topic: str) -> None:
    """Symptom: close() of a member that was fenced meanwhile took its whole ten seconds. Cause: it waited for a leave
    that a failed member never sends."""
    heard: list[str] = []
    consumer = make(broker, f"fenced-{topic}", **{"group.instance.id": "pod-0"})
    consumer.subscribe([topic], on_revoke=lambda *_: heard.append("revoked"), on_lost=lambda *_: heard.append("lost"))
    take(consumer, 15)
    refused = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID)
    began = time.monotonic()
    consumer.close()
    refused.clear()
    assert heard == ["revoked"], "it was asked to give up while it still was a member"
    assert time.monotonic() - began < QUICK_S


def test_a_defect_in_the_background_does_not_keep_a_close_from_committing(broker: Broker, topic: str) -> None:
    """Whatever poll was about to raise, the member is still one: it commits what was done and leaves."""
    heard: list[str] = []
    consumer = make(broker, f"broken-{topic}")
    consumer.subscribe([topic], on_revoke=lambda *_: heard.append("revoked"))
    take(consumer, 15)
    plane_of(consumer).failure = HoldfastError("CONTROL_PLANE_FAILED", "something broke.", "Report it.")
    consumer.close()
    assert heard == ["revoked"]
    assert broker.group(f"broken-{topic}").members == ()
    heir = make(broker, f"broken-{topic}")
    found = heir.committed([ck.TopicPartition(topic, number) for number in range(3)], timeout=30)
    heir.close()
    assert [one.offset for one in found] == [5, 5, 5]


@pytest.mark.parametrize("kind", [pytest.param(ck.Consumer, marks=pytest.mark.slow), holdfast.Consumer])
def test_on_commit_hears_of_every_commit_at_close_although_it_raises(broker: Broker, topic: str, kind: Any) -> None:
    """Symptom: of three commits on_commit heard of one. Cause: its exception ended the round of calls, which the next
    poll goes on with, and after close() there is none. Rule: whatever one raises, the others are made."""
    heard: list[int] = []

    def on_commit(_error: Any, partitions: list[ck.TopicPartition]) -> None:
        heard.append(partitions[0].offset)
        raise LookupError(f"at {partitions[0].offset}")

    keys = {"bootstrap.servers": broker.bootstrap, "group.id": f"closing-{topic}-{kind.__module__}"}
    consumer = kind({**keys, "enable.auto.commit": False, "on_commit": on_commit})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    for offset in (1, 2, 3):
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, offset)])
    with pytest.raises(LookupError, match="at"):
        consumer.close()
    assert sorted(heard) == [1, 2, 3]


def test_a_close_without_a_coordinator_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: with its broker gone, close() took 20 s. Cause: it waited 10 s for the leave, and then 10 s more for the
    commits. Rule: there is one limit for all that the coordinator has to confirm."""
    monkeypatch.setattr(core, "CLOSE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(steps, "REVOKE_MS", 100.0)
    waited: list[float] = []
    wait = commits.Offsets.wait

    def noted(offsets: commits.Offsets, timeout_s: float) -> None:
        waited.append(timeout_s)
        wait(offsets, timeout_s)

    with Broker() as own:
        own.topics.create("orders", 1)
        producer = ck.Producer({"bootstrap.servers": own.bootstrap, "log_level": 0})
        producer.produce("orders", b"0")
        assert producer.flush(30) == 0
        consumer = make(own, "closing", log_level=0)
        consumer.subscribe(["orders"])
        take(consumer, 1)
    monkeypatch.setattr(commits.Offsets, "wait", noted)
    consumer.close()
    assert waited[-1] == 0, "the leave has taken all the time there is"


def test_a_close_ends_what_another_thread_was_just_starting(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: after close() a control thread lived on. Cause: a worker asked the group for the first time, which
    starts one, and close() looked for it before it was there. Rule: close() waits for a start under way, and none
    follows."""
    begun, may_go_on = threading.Event(), threading.Event()
    start = ControlPlane.start

    def slowly(plane: ControlPlane) -> None:
        begun.set()
        assert may_go_on.wait(15 * PATIENCE_S)
        start(plane)

    def ask() -> None:
        with contextlib.suppress(RuntimeError, ck.KafkaException):  # an answer, or that the consumer is closed
            consumer.committed([ck.TopicPartition(topic, 0)], 15 * PATIENCE_S)

    monkeypatch.setattr(ControlPlane, "start", slowly)
    consumer = make(broker, f"closing-{topic}")
    asks, closes = threading.Thread(target=ask), threading.Thread(target=consumer.close)
    asks.start()
    assert begun.wait(15 * PATIENCE_S)
    closes.start()
    closes.join(0.2)  # time enough for one that does not wait
    may_go_on.set()
    asks.join()
    closes.join()
    assert f"holdfast-closing-{topic}" not in {thread.name for thread in threading.enumerate()}
