"""What becomes of mistakes of our own: the client is told, one traceback is logged, and nobody else notices."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from raw_client import RawClient

from holdfast.broker import apis
from holdfast.broker.clock import ManualClock, SystemClock
from holdfast.model import ErrorCode
from holdfast.testing.broker import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response
from patience import PATIENCE_S


def broken(api: Api, monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    module = apis.module(api)
    monkeypatch.setitem(apis.loaded_modules, api, apis.Module(handle, module.refuse, module.decode))


def test_a_handler_that_fails_is_an_unknown_server_error(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    broken(Api.LIST_GROUPS, monkeypatch, fail)
    with caplog.at_level(logging.ERROR), RawClient(holdfast_broker) as client:
        assert client.ask(Api.LIST_GROUPS).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.ask(Api.API_VERSIONS, version=0).error_code == 0
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_answer_that_can_t_be_encoded_costs_its_own_connection_only(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken(Api.LIST_GROUPS, monkeypatch, lambda *_: {"error_code": "not a number"})
    with RawClient(holdfast_broker) as bystander, RawClient(holdfast_broker) as client:
        client.send(client.request(Api.LIST_GROUPS, 5, {}))
        assert client.is_closed()
        assert bystander.ask(Api.API_VERSIONS, version=0).error_code == 0
    assert any("can't be sent" in message for message in caplog.messages)


def test_a_fetch_that_fails_after_it_waited_is_answered_too(
    holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A parked request runs again outside its handler's call; what goes wrong there must not leave its client
    waiting."""
    from holdfast.broker.apis import fetch

    holdfast_broker.topics.create("orders", 1)
    asked = FetchTopic(topic="orders", partitions=(FetchPartition(partition=0, offset=0),))
    with RawClient(holdfast_broker) as client, RawClient(holdfast_broker) as writer:
        client.send_fetch(FetchRequest(max_wait_ms=30_000, topics=(asked,)))
        deadline = time.monotonic() + PATIENCE_S
        while holdfast_broker.call(lambda state: len(state.waiting)) == 0 and time.monotonic() < deadline:
            time.sleep(0.005)

        encode, failed = fetch.encode_fetch_response, list[bool]()

        def fail_once(*given: Any) -> Any:
            if not failed:
                failed.append(True)
                raise RuntimeError("a mistake of ours")
            return encode(*given)

        monkeypatch.setattr(fetch, "encode_fetch_response", fail_once)
        writer.produce("orders", [b"x"])

        answer = decode_fetch_response(12, client.receive())
    assert answer.error == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_groups_clock_is_steady_and_the_records_clock_is_the_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after a laptop woke up, every record was refused as from the future. Cause: one monotonic clock, which
    stands still in sleep, for groups and records alike. Invariant: records are judged by the machine's own time.
    """
    clock = SystemClock()
    before = clock.now_ms()
    monkeypatch.setattr("holdfast.broker.clock.time.time_ns", lambda: (int(before) + 8 * 3_600_000) * 1_000_000)

    assert clock.wall_ms() - before >= 8 * 3_600_000 - 1
    assert clock.now_ms() - before < 60_000


def test_a_manual_clock_runs_its_timers_in_order_each_at_its_own_time() -> None:
    clock = ManualClock(0.0)
    seen: list[tuple[str, float]] = []
    clock.call_at(20, lambda: seen.append(("late", clock.now_ms())))

    def makes_another() -> None:
        clock.call_at(15, lambda: seen.append(("made on the way", clock.now_ms())))

    clock.call_at(10, makes_another)
    clock.call_at(12, lambda: seen.append(("cancelled", 0.0))).cancel()

    clock.advance(19)
    assert seen == [("made on the way", 15.0)]
    clock.advance(1)
    assert seen[1:] == [("late", 20.0)]
