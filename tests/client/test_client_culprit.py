"""An application that hangs: the member leaves, the trace shows where, and the next poll comes back to the group."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from unwarned import no_warning

import holdfast
from holdfast.client.config.warning import PitfallWarning
from holdfast.client.telemetry.stack import PollingStack
from holdfast.model import TraceRecord
from holdfast.testing import Broker
from patience import PATIENCE_S

POLL_INTERVAL_MS = 700


def test_an_application_that_hangs_is_found_at_the_line_where_it_hangs(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Who looks at a rebalance storm wants to know what the culprit was doing: the trace has its thread's stack."""
    trace = tmp_path / "trace.jsonl"
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"hung-{topic}",
        "max.poll.interval.ms": POLL_INTERVAL_MS,
        "session.timeout.ms": POLL_INTERVAL_MS,
        "heartbeat.interval.ms": 100,
        "holdfast.trace.file": str(trace),
    }
    lost: list[Any] = []
    with holdfast.Consumer(settings) as consumer:
        consumer.subscribe([topic], on_lost=lambda _consumer, partitions: lost.extend(partitions))
        while not consumer.assignment():
            consumer.poll(0.05)
        hang_in_a_database(trace)
        with pytest.warns(PitfallWarning, match="hang_in_a_database"):
            consumer.poll(0.05)
        while len(consumer.assignment()) < 3 or not lost:
            consumer.poll(0.05)
        assert len(lost) == 3, "what it held was lost, and it came back for more"
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    (expired,) = [one for one in steps if one["step"] == "poll-expired"]
    assert expired["culprit"] == expired["member"]
    assert expired["data"]["stack"][-1].endswith("in hang_in_a_database")
    assert any(
        frame.endswith("in test_an_application_that_hangs_is_found_at_the_line_where_it_hangs")
        for frame in expired["data"]["stack"]
    )
    reasons = [one.get("cause") for one in steps if one["step"] == "rejoin"]
    assert "the application polls again" in reasons


def hang_in_a_database(trace: Path) -> None:
    """Until the member has had enough."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and '"poll-expired"' not in trace.read_text():
        time.sleep(0.05)


def test_frames_name_places_and_never_values() -> None:
    """A source line may hold a password; file, line and function don't."""
    written: list[TraceRecord] = []
    stuck = PollingStack(written.append)
    stuck.thread = threading.get_ident()
    record = TraceRecord(at=1.0, source="member", step="poll-expired", data={"owned": {}})
    stuck.write(record)  # a password in the source: hunter2
    assert stuck.where is not None
    assert "hunter2" not in json.dumps(dict(written[0].data))
    assert stuck.where.startswith(__file__)


def test_other_records_pass_as_they_are_and_a_thread_that_is_gone_has_no_stack() -> None:
    written: list[TraceRecord] = []
    stuck = PollingStack(written.append)
    other = TraceRecord(at=1.0, source="member", step="stable")
    stuck.write(other)
    stuck.thread = 1
    stuck.write(TraceRecord(at=1.0, source="member", step="poll-expired"))
    assert written[0] is other
    assert dict(written[1].data) == {"stack": []}
    assert stuck.where is None


def test_a_consumer_that_polls_in_time_is_not_bothered(broker: Broker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"well-{topic}"}
    with no_warning(), holdfast.Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.05)
