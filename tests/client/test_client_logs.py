"""What an operator reads in the log: rounds with their cause, faults with what to do. Nothing was logged before."""

from __future__ import annotations

import logging
import socket
import time

import confluent_kafka as ck
import pytest
from polling import take, until

import holdfast
from holdfast.client.telemetry import connections as health
from holdfast.client.telemetry.connections import OncePerMinute, Outage
from holdfast.client.telemetry.logs import FAULTS, TOLD, TraceLog
from holdfast.model import TraceRecord
from holdfast.net.errors import NetError
from holdfast.testing import Broker
from holdfast.trace import read_trace_file


def record(step: str, **more: object) -> TraceRecord:
    return TraceRecord(at=1.0, source="member", step=step, group="billing", member="pod-1", generation=5, **more)  # type: ignore[arg-type]


def test_a_round_is_logged_with_its_result_and_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    log = TraceLog()
    log.write(record("rejoin", cause="the group is rebalancing"))
    log.write(record("synced", data={"owned": {"orders": [1]}, "added": {"orders": [4]}, "revoked": {}}))
    assert caplog.messages == [
        "pod-1 of group billing, generation 5 rebalanced: added=orders[4] owned=orders[1] revoked=- "
        "· because the group is rebalancing"
    ]


@pytest.mark.parametrize("step", sorted(FAULTS))
def test_a_fault_is_a_warning_that_says_what_to_do(step: str, caplog: pytest.LogCaptureFixture) -> None:
    TraceLog().write(record(step, cause="nobody answered"))
    ((_, level, text),) = caplog.record_tuples
    assert level == logging.WARNING
    assert "because nobody answered" in text and text.endswith(FAULTS[step][1])


def test_the_end_of_a_membership_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    TraceLog().write(record("failed", cause="FENCED_INSTANCE_ID: another process joined. Stop it."))
    assert [(level, "Stop it." in text) for _, level, text in caplog.record_tuples] == [(logging.ERROR, True)]


def test_every_other_step_is_there_for_whoever_debugs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    TraceLog().write(record("join-sent", cause="subscribed"))
    assert [level for _, level, _ in caplog.record_tuples] == [logging.DEBUG]


def test_what_strangers_chose_as_names_can_not_break_a_line(caplog: pytest.LogCaptureFixture) -> None:
    TraceLog().write(record("note-ignored", cause="a\nb\x1b[31m"))
    assert "\n" not in caplog.messages[0] and "\x1b" not in caplog.messages[0]


def test_no_step_has_two_levels() -> None:
    assert not TOLD.keys() & FAULTS.keys()


def test_a_living_consumer_logs_and_its_trace_has_the_time_of_day(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Traces of two machines could not be laid side by side: their clocks began at different starts."""
    caplog.set_level(logging.INFO, "holdfast")
    path = tmp_path_factory.mktemp("trace") / "trace"
    before = time.time() * 1_000.0 - 1.0
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"logs-{topic}",
            "client.id": "pod-7",
            "auto.offset.reset": "earliest",
            "holdfast.trace.file": str(path),
        }
    )
    consumer.subscribe([topic])
    take(consumer, 15)
    until(consumer, lambda: consumer.metrics()["rebalance-total"] == 1)
    consumer.close()
    assert any("pod-7" in text and f"rebalanced: added={topic}[0-2]" in text for text in caplog.messages)
    assert any("left the group" in text for text in caplog.messages)
    walls = [each.wall for each in read_trace_file(path, on_bad=lambda line: pytest.fail(str(line)))]
    assert all(wall is not None and before <= wall <= time.time() * 1_000.0 + 1.0 for wall in walls)


# -- nobody there

HERE, THERE = ("here", 1), ("there", 2)
GONE = NetError("CONNECTION_FAILED", "No connection to here:1: Connection refused.", "Check it.", retriable=True)


class Outages:
    """One consumer's view of two brokers, on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self._outage = Outage("pod-1 of group billing", clock=lambda: self.now)

    def heard(self, address: tuple[str, int], error: NetError | None) -> None:
        self._outage.heard(address, error, [HERE, THERE])

    def fail(self, *, until: float) -> None:
        """Every half second, as the tries to connect go."""
        while self.now < until:
            for address in (HERE, THERE):
                self.heard(address, GONE)
            self.now += 0.5


def test_brokers_that_can_t_be_reached_are_told_after_two_seconds_and_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Outages()
    world.fail(until=2.0)
    assert caplog.messages == []
    world.fail(until=60.0)
    assert caplog.messages == [
        "pod-1 of group billing can't reach any broker: No connection to here:1: Connection refused. Check it. "
        "It goes on trying."
    ]
    world.fail(until=130.0)
    assert len(caplog.messages) == 3


def test_while_one_broker_can_be_reached_or_is_soon_back_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    world = Outages()
    for _ in range(20):
        world.now += 1.0
        world.heard(HERE, GONE)
    assert caplog.messages == [], "there was still another"
    world.heard(THERE, GONE)
    world.now += 1.9
    world.heard(THERE, None)
    assert caplog.messages == []


def test_the_end_of_an_outage_is_told_and_the_next_one_counts_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    world = Outages()
    world.fail(until=5.0)
    world.heard(HERE, None)
    assert caplog.messages[1:] == ["pod-1 of group billing reaches a broker again, after 5 s."]
    world.fail(until=6.5)
    assert len(caplog.messages) == 2
    world.fail(until=9.0)
    assert len(caplog.messages) == 3


def test_a_broker_that_does_not_let_us_in_is_left_to_poll(caplog: pytest.LogCaptureFixture) -> None:
    world = Outages()
    for _ in range(20):
        world.now += 1.0
        for address in (HERE, THERE):
            world.heard(address, NetError("AUTHENTICATION_FAILED", "No.", "Check.", retriable=False))
    assert caplog.messages == []


def test_a_consumer_pointed_at_nobody_says_so_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ninety seconds poll returned None and the log said nothing: it looked like a consumer without work."""
    monkeypatch.setattr(health, "OUTAGE_S", 0.0)
    consumer = holdfast.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.id": "pod-9", "log_level": 0}
    )
    consumer.subscribe(["orders"])
    until(consumer, lambda: "pod-9 of group g can't reach any broker" in caplog.text)
    consumer.close()
    assert "127.0.0.1:1: Connection refused" in caplog.text


@pytest.mark.parametrize("group", ["g", None])
def test_a_consumer_that_only_assigns_says_so_too_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    """Only a member's control plane spoke to the log. A consumer that assigns by hand has none, and whoever had no
    error_cb took an outage for a quiet day. librdkafka tells that all brokers are gone, and never that one is back."""
    monkeypatch.setattr(health, "OUTAGE_S", 0.0)
    caplog.set_level(logging.INFO, "holdfast")
    heard: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group, "client.id": "pod-9", "log_level": 0}
    consumer = holdfast.Consumer({**settings, "error_cb": lambda error: heard.append(error.code())})
    consumer.assign([ck.TopicPartition("orders", 0, 0)])
    until(consumer, lambda: "can't reach any broker" in caplog.text)
    for _ in range(20):
        consumer.poll(0.05)
    assert caplog.text.count("can't reach any broker") == 1, "once, not with every try"
    assert "Connection refused" in caplog.text
    until(consumer, lambda: {ck.KafkaError._TRANSPORT, ck.KafkaError._ALL_BROKERS_DOWN} <= set(heard))  # as ever
    with Broker(port=port):
        until(consumer, lambda: "pod-9" in caplog.text and "reaches a broker again" in caplog.text)
        consumer.close()
    levels = [record.levelname for record in caplog.records if "broker" in record.getMessage()]
    assert levels == ["WARNING", "INFO"]


def test_what_lasts_is_warned_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """An AsyncConsumer wrote that its broker is down once a second, for ever."""
    seconds = iter(range(200))
    log = OncePerMinute(clock=lambda: next(seconds) / 2)
    for _ in range(61):
        log.warn("1/1 brokers are down")
        log.warn("here:1: Connection refused")
    assert caplog.messages == ["1/1 brokers are down", "here:1: Connection refused"] * 2
