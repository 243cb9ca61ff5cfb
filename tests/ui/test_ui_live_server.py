"""Live groups by server-sent events: who may look, what it costs the broker, and what happens to the slow."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ui_live import member, record, served

from holdfast.model import HoldfastError
from holdfast.testing import Broker
from holdfast.trace import TraceFile
from holdfast.ui.app import TOKEN_HEADER
from holdfast.ui.live import hub as hub_module
from holdfast.ui.live.feed import events
from holdfast.ui.live.hub import MOST_VIEWERS, Hub
from holdfast.ui.live.tails import Tails
from holdfast.ui.live.watch import Watch, message
from holdfast.ui.serving import Live, PageServer, listen
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for

HOSTILE = "<img src=x onerror=alert(1)>"


class Viewer:
    """One page that looks, without a browser."""

    def __init__(self, server: PageServer, group: str, token: str | None = None) -> None:
        host, _, port = server.link().partition("//")[2].partition("/")[0].partition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        headers = {TOKEN_HEADER: server.token if token is None else token}
        self.connection.request("POST", "/api/live/events", json.dumps({"group": group}), headers)
        self.answer = self.connection.getresponse()

    def events(self) -> Iterator[tuple[str, Any]]:
        name = ""
        while line := self.answer.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    def story(self, holds: Callable[[Any], bool] = lambda story: True) -> Any:
        """The next story that is as wanted."""
        return next(data["story"] for name, data in self.events() if name == "story" and holds(data["story"]))

    def close(self) -> None:
        # The answer keeps the socket open; ours must be gone for the server.
        with contextlib.suppress(OSError):
            self.answer.close()
        self.connection.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=3)
        yield running


def works(name: str, partitions: int) -> Callable[[Any], bool]:
    """Whether this member works on so many."""

    def holds(story: Any) -> bool:
        names = [each["name"] for each in story["members"]]
        now = [lane["spans"][-1] for lane in story["partitions"]]
        working: int = sum(state == "working" and names[owner] == name for _, state, owner, _ in now)
        return working == partitions

    return holds


@pytest.mark.slow
def test_a_group_is_listed_and_shown_with_traces_and_without(broker: Broker, tmp_path: Path) -> None:
    trace = {"holdfast.trace.file": str(tmp_path / "c0.jsonl")}
    with member(broker, "c0", **trace), served(broker) as bare, served(broker, traces=(tmp_path,)) as full:
        for server, witnesses in ((bare, 1), (full, 2)):
            viewer = Viewer(server, "billing")
            story = viewer.story(works("c0", 3))
            assert len(story["witnesses"]) == witnesses
            viewer.close()
        listing = Viewer(bare, "")
        wait_for(
            lambda: next(iter(listing.events())) == ("groups", [{"group": "billing", "state": "Stable"}]), "the list"
        )
        listing.close()


@pytest.mark.slow
def test_the_members_traces_may_come_from_a_topic(broker: Broker) -> None:
    broker.topics.create("traces", partitions=2)
    with member(broker, "c0", **{"holdfast.trace.topic": "traces"}), served(broker, trace_topic="traces") as server:
        for _ in range(2):  # whoever opens the group later is told what was before
            viewer = Viewer(server, "billing")
            story = viewer.story(lambda story: works("c0", 3)(story) and len(story["witnesses"]) == 2)
            assert "the members' traces" in story["witnesses"]
            viewer.close()


def test_who_has_no_token_sees_nothing_and_nothing_is_done_by_get(broker: Broker) -> None:
    with served(broker, groups=("billing",)) as server:
        for path in ("events", "questions", "plan", "picture", "act"):
            viewer = Viewer(server, "billing", token="guessed")
            assert viewer.answer.status == 403 and b"BAD_TOKEN" in viewer.answer.read()
            viewer.connection.request("GET", f"/api/live/{path}", headers={TOKEN_HEADER: server.token})
            answer = viewer.connection.getresponse()
            assert answer.status == 405 and "default-src 'none'" in answer.headers["content-security-policy"]
            viewer.close()
        other = Viewer(server, "secret")
        assert b"GROUP_NOT_SHOWN" in other.answer.read()
        other.connection.request(
            "POST", "/api/live/act", json.dumps({"act": "kill", "member": "c0"}), {TOKEN_HEADER: server.token}
        )
        assert b"READ_ONLY" in other.connection.getresponse().read()
        other.close()


@pytest.mark.slow
def test_twenty_viewers_cost_the_broker_no_more_than_one(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "GRACE_S", 0.05)
    asked: list[Api] = []
    broker.faults.call(Api.DESCRIBE_GROUPS, lambda _: asked.append(Api.DESCRIBE_GROUPS))
    with member(broker, "c0"), served(broker) as server:
        hub = server.hub
        assert hub is not None
        viewers = [Viewer(server, "billing") for _ in range(20)]
        for viewer in viewers:
            viewer.story(works("c0", 3))
        assert hub.viewers == 20 and len(hub.watching) == 1
        (watch,) = hub.watching
        for viewer in viewers:
            viewer.story()
        assert len(asked) <= watch.looks + 1 and watch.looks < 20, "looks do not follow the number of viewers"
        for viewer in viewers:
            viewer.close()
        wait_for(lambda: hub.idle, "nobody to be watched for")
        assert hub.viewers == 0


@pytest.mark.slow
def test_a_broker_that_is_gone_shows_and_heals(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.ui.live.watch.SILENT_S", 0.2)
    with served(broker) as server:
        viewer = Viewer(server, "billing")
        with member(broker, "c0"):
            viewer.story(works("c0", 3))
            broker.faults.drop(Api.DESCRIBE_GROUPS)
            problem = next(data for name, data in viewer.events() if name == "problem" and data is not None)
            assert problem["code"] == "BROKERS_SILENT" and "by itself" in problem["do"]
            broker.faults.clear()
            broker.faults.disconnect(Api.DESCRIBE_GROUPS, times=1)
            assert next(data for name, data in viewer.events() if name == "problem") is None
            viewer.story(works("c0", 3))
        viewer.close()


def test_too_many_viewers_are_refused(broker: Broker) -> None:
    with served(broker) as server:
        viewers = [Viewer(server, "") for _ in range(MOST_VIEWERS)]
        one_more = Viewer(server, "")
        assert one_more.answer.status == 503 and b"TOO_MANY_VIEWERS" in one_more.answer.read()
        for viewer in (*viewers, one_more):
            viewer.close()


def test_the_names_of_strangers_are_data(broker: Broker) -> None:
    with member(broker, HOSTILE, group=HOSTILE), served(broker) as server:
        viewer = Viewer(server, HOSTILE)
        story = viewer.story(works(HOSTILE, 3))
        assert story["members"][0]["name"] == HOSTILE
        body = json.dumps({"group": HOSTILE, "at": story["end"]})
        asker = Viewer(server, "")
        asker.close()
        asker.connection.request("POST", "/api/live/picture", body, {TOKEN_HEADER: server.token})
        drawn = asker.connection.getresponse().read().decode()
        assert "<svg" in drawn and "<img" not in drawn
        asker.close()
        viewer.close()


def test_a_slow_viewer_misses_what_was_between_and_keeps_nobody_waiting() -> None:
    """There is no queue: the newest story is all that is kept for anybody."""

    async def play() -> list[bytes]:
        hub = Hub({})
        watch = Watch("g", hub.look, Tails(()), hub.changed)
        feed = events(hub, watch, asyncio.Event())
        got = [await anext(feed), await anext(feed)]
        for number in (1, 2, 3):
            watch.number, watch.message = number, message("story", number)
            hub.changed()
        got.append(await anext(feed))
        return got

    assert asyncio.run(play())[2] == message("story", 3)


def test_the_end_of_the_server_ends_the_streams(broker: Broker) -> None:
    with served(broker) as server:
        viewer = Viewer(server, "")
    assert viewer.answer.read() is not None
    viewer.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_by_a_signal_leaves_nothing_behind(number: signal.Signals) -> None:
    """Seen once: SIGTERM ended the demo alone. Its broker and its producer went on for an hour. So they did after
    SIGHUP, which comes when the terminal's window is closed."""
    words = ["demo", "--live", "--members", "1", "--port", "0", "-o", "json"]
    started = subprocess.Popen(
        [Path(sys.executable).parent / "holdfast", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert started.stdout is not None
    host, _, port = json.loads(started.stdout.readline())["bootstrap"].partition(":")
    started.send_signal(number)
    try:
        assert started.wait(PATIENCE_S) == 128 + number
    finally:
        started.kill()
        started.wait()
        started.stdout.close()

    def is_gone() -> bool:
        with contextlib.closing(socket.socket()) as tried:
            return tried.connect_ex((host, int(port))) != 0

    wait_for(is_gone, "the broker's end")


# Trace files


def test_a_trace_is_read_as_it_grows_over_rotations_and_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "c0.jsonl"
    tails = Tails((tmp_path,))
    tails.find()
    assert tails.read() == []
    with TraceFile(path, max_bytes=400, keep=2) as file:
        for number in range(12):
            file.write(record("member", f"step-{number}", number))
            tails.find()
            assert [each.step for each in tails.read()] == [f"step-{number}"]
    with path.open("ab") as torn:
        torn.write(b'{"v":1,"at":1,"source":"member","st')
    assert tails.read() == []
    with path.open("ab") as rest:
        rest.write(b'ep":"late"}\nnot a record\n')
    assert [each.step for each in tails.read()] == ["late"]
    assert not tails.grown() and len(tails.bad) == 1


def test_of_a_long_trace_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.ui.live.tails.MOST_BYTES", 1_000)
    with TraceFile(tmp_path / "old.trace") as file:
        for number in range(100):
            file.write(record("member", f"step-{number}", number))
    tails = Tails((tmp_path / "old.trace",))
    tails.find()
    found = tails.read()
    assert 0 < len(found) < 20 and found[-1].step == "step-99" and tails.bad == []


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening, pytest.raises(HoldfastError, match="NO_TRACE"):
        PageServer(listening, Live({"bootstrap.servers": "127.0.0.1:1"}, traces=(tmp_path / "no",)))
