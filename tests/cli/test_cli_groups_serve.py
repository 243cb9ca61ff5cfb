"""`holdfast groups serve`: what Prometheus would scrape, while a group lives."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request

import pytest
from cli_members import PARTITIONS, Members
from cli_world import Commands, end, spoken

from holdfast.testing import Broker
from patience import wait_for

pytestmark = pytest.mark.slow


def scraped(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def test_rebalances_and_their_culprits_are_scraped_as_they_happen(commands: Commands, broker: Broker) -> None:
    members = Members(broker.bootstrap)
    broker.topics.create(members.topic, PARTITIONS)
    members.add("cooperative-sticky", "c0")
    serving = commands.start("groups", "serve", members.group, "--port", "0", "--every", "0.05")
    try:
        (said,) = spoken(serving)
        address = said.removeprefix("Serving ")
        assert address.startswith("http://127.0.0.1:") and address.endswith("/metrics")
        name = members.group
        wait_for(lambda: f'holdfast_group_state{{group="{name}",state="Stable"}} 1' in scraped(address), "it is seen")

        members.add("cooperative-sticky", "c1")
        culprit = f'holdfast_group_disturbances_total{{group="{name}",cause="join",member="c1@127.0.0.1"}} 1'
        wait_for(lambda: culprit in scraped(address), "who joined is named")

        with pytest.raises(urllib.error.HTTPError, match="404"):
            scraped(address.replace("/metrics", "/other"))
        host, port = address.removeprefix("http://").removesuffix("/metrics").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as stranger:
            stranger.sendall(b"x" * 100_000 + b"\r\n\r\n")  # no HTTP, and too much of it
        assert name in scraped(address), "whoever speaks no HTTP disturbs nobody"
        serving.send_signal(signal.SIGTERM)
        assert end(serving).code == 0
    finally:
        members.stop()


def test_a_port_that_is_taken_is_one_line(commands: Commands) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = commands.run("groups", "serve", "--port", str(taken.getsockname()[1]))

    assert refused.code == 1 and refused.err.startswith("holdfast: METRICS_PORT: ") and refused.err.count("\n") == 1
