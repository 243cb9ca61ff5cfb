"""Live groups when something is wrong: clocks that differ or are set back, faults of our own, folders that go away.

The worst is a page that stands still and says that it is live.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ui_live import WALL, Told, chronicle, look, member_id, record

from holdfast.observe.snapshot import GroupSnapshot
from holdfast.trace import encode
from holdfast.ui.asked import moment_in
from holdfast.ui.live import hub as hub_module
from holdfast.ui.live import watch as watch_module
from holdfast.ui.live.chronicle import KEPT_MS
from holdfast.ui.live.hub import Hub
from holdfast.ui.live.tails import Tails
from holdfast.ui.live.topic import TraceTopic
from holdfast.ui.live.watch import Watch
from patience import PATIENCE_S


def test_a_host_whose_clock_is_ahead_does_not_make_everything_else_old() -> None:
    """Its first record was "now" from then on: all looks were too old to be kept, and the page stood still."""
    hour = 3_600_000.0
    seen = chronicle()
    for half in range(20):
        seen.looked(look({"c0": [0, 1], "c1": [2, 3]}), WALL + half * 500)
    seen.traced([record("member", "stable", hour, member_id("c1"), owned={"orders": [2, 3]})], WALL + 9_800)
    for half in range(20, 60):
        seen.looked(look({"c0": [0, 1, 2, 3]}), WALL + half * 500)
    told = Told(seen)
    assert told.story["end"] == KEPT_MS + 29_500, "the newest is a look"
    assert told.lane(2, 5_000) == ("working", "c1", "") and told.lane(2, 29_500) == ("working", "c0", "")


def test_records_of_a_clock_that_is_ahead_keep_their_order() -> None:
    hour = 3_600_000.0
    seen = chronicle()
    one = member_id("c1")
    steps = [
        record("member", "stable", hour, one, owned={"orders": [0]}),
        record("member", "revoking", hour + 5, one, partitions={"orders": [0]}),
        record("member", "stable", hour + 9, one, owned={"orders": [1]}),
    ]
    seen.traced(steps, WALL + 1_000)
    assert Told(seen).lane(1, 1_000) == ("working", "c1", "")
    assert Told(seen).lane(0, 1_000)[0] != "working"


class Machine:
    """A watch on a group that answers at once, on a machine whose clock can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owned: dict[str, list[int]] = {"c0": [0, 1, 2, 3]}
        self.set_ms = 0.0
        self.news = asyncio.Event()
        real = watch_module.time
        for name in ("LOOK_S", "TICK_S", "FAULT_S"):
            monkeypatch.setattr(watch_module, name, 0.01)

        class Clocks:
            monotonic = staticmethod(real.monotonic)
            time = staticmethod(lambda: real.time() + self.set_ms / 1_000)

        monkeypatch.setattr(watch_module, "time", Clocks)

    async def look(self, _: str) -> GroupSnapshot:
        return look(self.owned)

    def watched(self, play: Callable[[Watch], Awaitable[None]], tails: Tails | None = None) -> None:
        async def all_of_it() -> None:
            watch = Watch("billing", self.look, tails or Tails(()), self.news.set)
            running = asyncio.create_task(watch.run())
            try:
                await asyncio.wait_for(play(watch), PATIENCE_S)
            finally:
                running.cancel()

        asyncio.run(all_of_it())

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.news.clear()
            await self.news.wait()


def shows(watch: Watch, name: str) -> Callable[[], bool]:
    """Whether all lanes of the newest story are this member's."""

    def holds() -> bool:
        story = watch.story
        if not story:
            return False
        now = [lane["spans"][-1] for lane in story["partitions"]]
        return bool(now) and all(
            state == "working" and story["members"][owner]["name"] == name for _, state, owner, _ in now
        )

    return holds


def test_a_clock_that_is_set_back_does_not_hide_what_happens_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks of the next hour were put an hour back, behind one that stayed the newest."""
    machine = Machine(monkeypatch)

    async def play(watch: Watch) -> None:
        await machine.until(shows(watch, "c0"))
        machine.set_ms = -3_600_000.0
        machine.owned = {"c1": [0, 1, 2, 3]}
        await machine.until(shows(watch, "c1"))

    machine.watched(play)


@pytest.mark.parametrize("part", ["traced", "story"])
def test_a_fault_of_ours_is_told_and_the_page_goes_on(
    monkeypatch: pytest.MonkeyPatch, part: str, tmp_path: Path
) -> None:
    """An exception ended the watch with a line in the log. Its pages kept the last story, under "live"."""
    machine = Machine(monkeypatch)
    real = getattr(watch_module.Chronicle, part)
    fails: list[str] = []
    (tmp_path / "c0.jsonl").touch()

    def failing(self: Any, *words: Any) -> Any:
        if fails:
            raise KeyError(fails[0])
        return real(self, *words)

    monkeypatch.setattr(watch_module.Chronicle, part, failing)

    async def play(watch: Watch) -> None:
        await machine.until(shows(watch, "c0"))
        fails.append("nobody")
        with (tmp_path / "c0.jsonl").open("a") as file:
            file.write("{}\n")
        await machine.until(lambda: watch.problem is not None and watch.problem.code == "PAGE_FAULT")
        fails.clear()
        machine.owned = {"c1": [0, 1, 2, 3]}
        await machine.until(shows(watch, "c1"))
        await machine.until(lambda: watch.problem is None)

    machine.watched(play, Tails((tmp_path,)))


def test_a_list_of_groups_that_fails_is_told_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "LIST_S", 0.01)
    answers: list[Any] = [ValueError("damaged"), [{"group": "billing", "state": "Stable"}]]

    async def listed(_: Hub) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Hub, "list_groups", listed)

    async def play() -> None:
        hub = Hub({})
        async with hub.viewing(""):
            while hub.list_problem is None:
                await hub.news(1)
            assert hub.list_problem.code == "PAGE_FAULT"
            while not hub.listed:
                await hub.news(1)
        assert hub.list_problem is None
        await hub.close()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_a_folder_that_goes_away_and_a_pipe_among_the_traces_stop_nothing(tmp_path: Path) -> None:
    """A pipe is opened only when somebody writes to it: the page waited for that."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    tails = Tails((tmp_path, tmp_path / "gone"))
    tails.find()
    assert not tails.grown() and tails.read() == []

    class Going(type(tmp_path)):  # type: ignore[misc]  # a path of this system
        def iterdir(self) -> Any:
            raise FileNotFoundError(self)

    tails = Tails((Going(tmp_path),))
    tails.find()
    assert tails.read() == []


def test_a_record_of_the_topic_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch took the newest number before it read: what came in between was read twice, as two rebalances."""
    monkeypatch.setattr(TraceTopic, "run", lambda _: None)
    topic = TraceTopic({}, "traces")

    class Message:
        def __init__(self, step: str) -> None:
            self.step = step

        def error(self) -> None:
            return None

        def value(self) -> bytes:
            return encode(record("member", self.step, 1)).encode()

    def add(step: str) -> None:
        topic.take(Message(step))

    add("first")
    records, number = topic.read("billing", after=0)
    assert [each.step for each in records] == ["first"]
    add("second")
    records, number = topic.read("billing", after=number)
    assert [each.step for each in records] == ["second"] and topic.read("billing", after=number) == ([], 2)


def test_a_page_that_is_open_for_weeks_still_answers() -> None:
    """After eleven and a half days every question was refused: BAD_TIME."""
    weeks = 30 * 86_400_000.0
    assert moment_in({"at": weeks}) == weeks
