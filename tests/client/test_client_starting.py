"""What a member costs before its first record: modules that it loads, and questions that everybody waits for."""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import until

from holdfast import AsyncConsumer, Consumer
from holdfast.client.member import control
from holdfast.client.member import engine as engines
from holdfast.model import ClusterView
from holdfast.net.cluster import Cluster
from holdfast.net.driver import MemberDriver
from holdfast.net.metadata import ClusterInfo
from holdfast.testing import Broker
from inside import parts_of
from patience import PATIENCE_S

READS_ONE = """
import asyncio, sys
import confluent_kafka
from holdfast import AsyncConsumer

bootstrap, topic = sys.argv[1:]

async def main():
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(config) as consumer:
        consumer.subscribe([topic])
        while await consumer.poll(1.0) is None:
            pass

asyncio.run(main())
assert "pandas" not in sys.modules
"""


def test_a_consumer_that_reads_does_not_load_pandas(broker: Broker, topic: str) -> None:
    """Symptom: where pandas was installed, the first AsyncConsumer of a process took half a second more than others;
    and so did the first revoke of a partition with records that were not read yet, while everybody waited. Cause:
    `pyarrow.array` loads it, here for an array of no rows and for some row numbers. Rule: what needs no pandas does not
    load it. This program reads one record of fifteen, and closes."""
    ended = subprocess.run(
        [sys.executable, "-c", READS_ONE, broker.bootstrap, topic],
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_leader_that_looked_when_it_joined_does_not_ask_again_when_all_wait_for_its_plan(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: in a group of 400 the second round of a handover waited for a look at the topics. Cause: what was just
    fresh enough when the leader joined, and so was not looked at again, was too old when the others had joined too.
    Rule: a plan may go by what is older than that. Here nothing is fresh enough to join by, and all to plan by."""
    monkeypatch.setattr(control, "FRESH_S", 0.0)
    monkeypatch.setattr(control, "PLANS_BY_S", PATIENCE_S)
    refreshed = 0
    looks: list[tuple[float, int]] = []
    sound_view, sound_refresh = Cluster.view, Cluster.refresh

    async def refresh(self: Cluster, topics: Iterable[str] | None = ()) -> ClusterInfo:
        nonlocal refreshed
        refreshed += 1
        return await sound_refresh(self, topics)

    async def view(self: Cluster, topics: Iterable[str], *, within_s: float = 0.0) -> ClusterView:
        before = refreshed
        found = await sound_view(self, topics, within_s=within_s)
        looks.append((within_s, refreshed - before))
        return found

    monkeypatch.setattr(Cluster, "view", view)
    monkeypatch.setattr(Cluster, "refresh", refresh)
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic}) as leader:
        leader.subscribe([topic])
        until(leader, lambda: len(leader.assignment()) == 3)
    to_plan = [asked for within_s, asked in looks if within_s == PATIENCE_S]
    assert to_plan == [0] * len(to_plan) != []


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_control_plane_that_does_not_start_in_time_leaves_nothing_behind(
    broker: Broker, topic: str, kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: on an overloaded machine subscribe() raised that the control thread did not start, and the thread was
    there for good: it started late, and nobody knew it. Cause: only a start that failed was ended, not one that took
    too long. Rule: what is given up is ended, as soon as the loop gets to it."""
    ended = threading.Event()

    async def never(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(control, "poke_socket_for", never)  # a part of every start
    monkeypatch.setattr(control, "START_TIMEOUT_S", 0.1)
    group = f"late-{topic}"

    async def scene() -> None:
        consumer = kind({"bootstrap.servers": broker.bootstrap, "group.id": group})
        with pytest.raises(ck.KafkaException, match="did not start"):
            result = consumer.subscribe([topic])
            if inspect.isawaitable(result):
                await result
        assert ended.wait(PATIENCE_S)
        for thread in threading.enumerate():
            if thread.name == f"holdfast-{group}":
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
        result = consumer.close()
        if inspect.isawaitable(result):
            await result

    asyncio.run(scene())


def test_a_control_plane_that_takes_long_to_stop_does_not_keep_the_rest_from_closing(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: close() of an AsyncConsumer raised TimeoutError, and its fetcher went on. Cause: what was meant to go on
    in the background when it took too long raised instead, in the middle of closing. Rule: it goes on, and the rest
    is closed."""
    late, ended = threading.Event(), threading.Event()
    stop, let_go = MemberDriver.stop, engines.Engine.let_go
    users: list[Cluster] = []

    async def slowly(driver: MemberDriver) -> None:
        await asyncio.to_thread(late.wait, PATIENCE_S)
        await stop(driver)

    async def noted(engine: engines.Engine, cluster: Cluster) -> None:
        await let_go(engine, cluster)
        users.append(cluster)
        if len(users) == 2:  # the fetcher, and then the control plane
            ended.set()

    monkeypatch.setattr(MemberDriver, "stop", slowly)
    monkeypatch.setattr(engines.Engine, "let_go", noted)
    monkeypatch.setattr(control.ControlPlane.stop, "__defaults__", (0.1,))

    async def scene() -> None:
        consumer = AsyncConsumer({"bootstrap.servers": broker.bootstrap, "group.id": f"slow-{topic}"})
        await consumer.subscribe([topic])
        await consumer.close()
        assert parts_of(consumer).data.readers == []
        assert not ended.is_set()

    engine = engines.acquire()  # somebody else's: it goes on
    try:
        asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    finally:
        late.set()
        assert ended.wait(PATIENCE_S)
        engines.release(engine)


MUTE = "broker.invalid"


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The resolver has no answer for MUTE until this is set, at the latest when the test ends."""
    over = threading.Event()
    look_up = socket.getaddrinfo

    def looked_up(host: Any, *args: Any, **more: Any) -> Any:
        if host == MUTE:
            over.wait(PATIENCE_S)
            raise socket.gaierror("no answer")
        return look_up(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    yield over
    over.set()


def test_a_resolver_that_does_not_answer_stops_no_other_consumer(silence: threading.Event) -> None:
    """Symptom: while one AsyncConsumer looked for its broker's name, all others of the process sent no heartbeat; and
    after ten seconds subscribe() said that the control thread did not start. Cause: the name was looked up on the
    shared thread, to find the address for pokes. Rule: nothing that may block runs on a loop, and nobody waits long for
    what is only useful."""

    async def scene() -> None:
        consumer = AsyncConsumer({"bootstrap.servers": f"{MUTE}:9092", "group.id": "g", "log_level": 0})
        began = asyncio.ensure_future(consumer.subscribe(["orders"]))
        await asyncio.sleep(0.1)  # time enough to be in the look-up
        running = engines.acquire()
        await asyncio.wait_for(asyncio.wrap_future(running.submit(asyncio.sleep(0))), control.START_TIMEOUT_S)
        engines.release(running)
        await began
        silence.set()
        await consumer.close()

    asyncio.run(scene())


@pytest.mark.usefixtures("silence")
def test_a_resolver_that_does_not_answer_does_not_keep_a_consumer_from_subscribing() -> None:
    with Consumer({"bootstrap.servers": f"{MUTE}:9092", "group.id": "g", "log_level": 0}) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(0) is None
