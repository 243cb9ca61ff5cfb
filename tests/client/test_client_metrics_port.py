"""`holdfast.metrics.port`: consumers that can be scraped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.client.config.errors import ConfigError
from holdfast.client.config.settings import parse
from holdfast.client.telemetry import metrics_port
from holdfast.client.telemetry.metrics_port import MOST_AT_ONCE, MetricsPort, merged
from holdfast.testing import Broker
from holdfast.testing.kafka_node import free_port
from patience import PATIENCE_S, wait_for


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=2)
        yield running


def settings(broker: Broker, name: str, port: int, **more: Any) -> dict[str, Any]:
    common = {"bootstrap.servers": broker.bootstrap, "group.id": f"scraped-{port}", "client.id": name}
    return {**common, "holdfast.metrics.port": port, "holdfast.watchdog": False, **more}


def scraped(port: int) -> dict[str, dict[str, float]]:
    """Values by metric and client. Prometheus's own parser reads them: a second TYPE line of a metric is an error."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    assert len([line for line in text.splitlines() if line.startswith("# TYPE")]) == len(
        {line for line in text.splitlines() if line.startswith("# TYPE")}
    )
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, {})[one.labels["client_id"]] = one.value
    return found


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_consumers_of_one_process_share_a_port_until_the_last_one_closes(broker: Broker) -> None:
    port = free_port()
    first = holdfast.Consumer(settings(broker, "c0", port))
    second = holdfast.Consumer(settings(broker, "c1", port))
    for consumer in (first, second):
        consumer.subscribe(["orders"])
    wait_for(lambda: (first.poll(0.02), second.poll(0.02)) and len(first.assignment()) == len(second.assignment()) == 1)

    found = scraped(port)
    assert found["kafka_consumer_coordinator_assigned_partitions"] == {"c0": 1.0, "c1": 1.0}
    assert found["kafka_consumer_coordinator_rebalance_total"]["c0"] >= 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)

    first.close()
    assert list(scraped(port)["kafka_consumer_coordinator_assigned_partitions"]) == ["c1"]
    second.close()
    assert free(port)
    with_it = holdfast.Consumer(settings(broker, "c2", port))  # at once: the port was given back
    assert list(scraped(port)["kafka_consumer_coordinator_assigned_partitions"]) == ["c2"]
    with_it.close()


def test_it_is_off_unless_asked_for(broker: Broker) -> None:
    before = {thread.name for thread in threading.enumerate()}
    consumer = holdfast.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "quiet"})
    try:
        assert "holdfast-metrics" not in {thread.name for thread in threading.enumerate()} - before
    finally:
        consumer.close()


def test_a_taken_port_is_refused_when_the_consumer_is_made(broker: Broker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(holdfast.HoldfastError) as refused:
            holdfast.Consumer(settings(broker, "c0", taken.getsockname()[1]))

    assert refused.value.code == "METRICS_PORT" and "holdfast.metrics.port" in refused.value.do


def test_a_consumer_that_does_not_come_to_be_gives_its_port_back(broker: Broker) -> None:
    """The port is opened first, so that a taken one is told; a key that librdkafka refuses then left it open."""
    port = free_port()
    with pytest.raises(Exception, match=r"no\.such"):
        holdfast.Consumer(settings(broker, "c0", port, **{"no.such.key": "1"}))

    wait_for(lambda: gc.collect() >= 0 and free(port))


def test_a_consumer_that_was_dropped_is_not_kept_alive_by_being_watched(broker: Broker) -> None:
    port = free_port()
    holdfast.Consumer(settings(broker, "dropped", port))

    wait_for(lambda: gc.collect() >= 0 and free(port))


def test_an_asyncio_consumer_can_be_scraped_too(broker: Broker) -> None:
    port = free_port()

    async def scene() -> None:
        consumer = holdfast.AsyncConsumer(settings(broker, "a0", port))
        await consumer.subscribe(["orders"])
        try:
            found = await asyncio.to_thread(scraped, port)
            assert list(found["kafka_consumer_coordinator_assigned_partitions"]) == ["a0"]
        finally:
            await consumer.close()

    asyncio.run(scene())
    assert free(port)


@pytest.mark.parametrize("value", [-1, 70_000, "metrics", None])
def test_what_is_no_port_is_refused(value: object) -> None:
    with pytest.raises(holdfast.HoldfastError, match=r"holdfast\.metrics\.port"):
        holdfast.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "holdfast.metrics.port": value})


def test_a_label_with_a_line_separator_of_unicode_stays_one_line() -> None:
    """str.splitlines() cuts at U+2028 too: half a sample, and Prometheus refuses the whole scrape."""
    text = '# TYPE lag gauge\nlag{client_id="a\u2028b\x85c"} 1\n'

    assert merged([text]) == text


def test_an_empty_host_is_refused_and_not_every_address() -> None:
    with pytest.raises(ConfigError, match=r"holdfast\.metrics\.host.* is empty"):
        parse({"group.id": "g", "holdfast.metrics.host": ""})


def test_an_address_of_ipv6_can_be_listened_on() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no ::1")
        port = probe.getsockname()[1]

    consumer = StandIn()
    opened = MetricsPort(consumer, ("::1", port))
    try:
        opened.show()
        with urllib.request.urlopen(f"http://[::1]:{port}/metrics", timeout=60) as answer:
            assert answer.read() == b"# TYPE lag gauge\nlag 1\n"
    finally:
        opened.close()


class StandIn:
    """A consumer, as far as a metrics port needs one."""

    def __init__(self, text: str = "# TYPE lag gauge\nlag 1\n") -> None:
        self._text = text

    def metrics_text(self) -> str:
        return self._text


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests end sooner, so that a test can wait for it."""
    monkeypatch.setattr(metrics_port, "REQUEST_S", 1.0)


def served(consumer: StandIn) -> tuple[MetricsPort, int]:
    port = free_port()
    opened = MetricsPort(consumer, ("127.0.0.1", port))
    opened.show()
    return opened, port


def ended(client: socket.socket) -> bool:
    """Whether the server has closed it. Sends one byte more of a request that never ends."""
    try:
        client.sendall(b"a")
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_clients_that_never_finish_their_requests_are_few_and_not_for_long(quick: None) -> None:
    """Symptom: 150 clients that sent a byte every two seconds were 150 threads of the application, for as long as they
    liked. Cause: the limit was the socket's, which begins again with each byte, and nothing counted. Rule: so many at
    once, and so long in all."""
    consumer = StandIn()
    opened, port = served(consumer)
    before = threading.active_count()
    clients = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(MOST_AT_ONCE + 20)]
    try:
        most = 0
        for client in clients:
            client.settimeout(0.001)
            with contextlib.suppress(OSError):  # turned away
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            most = max(most, threading.active_count() - before)
        open_ = clients
        deadline = time.monotonic() + PATIENCE_S
        while open_:
            assert time.monotonic() < deadline, f"{len(open_)} are still served"
            most = max(most, threading.active_count() - before)
            open_ = [client for client in open_ if not ended(client)]
        assert 0 < most <= MOST_AT_ONCE
        wait_for(lambda: threading.active_count() <= before)
        assert scraped_text(port) == "# TYPE lag gauge\nlag 1\n"
    finally:
        for client in clients:
            client.close()
        opened.close()


def test_a_client_that_goes_away_leaves_no_traceback(quick: None, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor does one that asks and never reads."""
    consumer = StandIn('# TYPE lag gauge\nlag{member="' + "x" * 20_000_000 + '"} 1\n')  # more than a socket holds
    opened, port = served(consumer)
    before = threading.active_count()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            wait_for(lambda: threading.active_count() > before)
            wait_for(lambda: threading.active_count() <= before)  # while the connection is still open
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            wait_for(lambda: threading.active_count() > before)
        wait_for(lambda: threading.active_count() <= before)
        wait_for(lambda: "lag" in scraped_text(port))
    finally:
        opened.close()
    assert capfd.readouterr().err == ""


def scraped_text(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text
