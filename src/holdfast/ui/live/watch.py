"""Watches one group for as long as a page shows it, and keeps its newest story ready for all viewers.

Rules. There is one watch per group, however many viewers it has. It looks at the group every half second, at once if a
trace reports a round, and less often if a look takes long: at most a fifth of the time is spent looking, and at most a
third making stories. Only the newest story is kept: a slow viewer misses those in between.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.model import HoldfastError, TraceRecord
from holdfast.observe.snapshot import GroupSnapshot
from holdfast.ui.live.chronicle import Chronicle
from holdfast.ui.live.tails import Tails
from holdfast.ui.live.topic import TraceTopic
from holdfast.ui.work import in_thread

log = logging.getLogger("holdfast.ui")

LOOK_S = 0.5
TICK_S = 0.05
"""How often trace files are checked for growth."""
FAULT_S = 2.0
"""After a fault of ours, how long until the next try."""
FILES_S = 1.0
"""How often to look for new files."""

SILENT_S = 3.0
"""How long a look may take before the page says so. The look itself goes on until the client gives up."""
NO_ANSWER = HoldfastError(
    "BROKERS_SILENT",
    f"the brokers have not answered for {SILENT_S:g} s.",
    "What is shown is how the group stood before. The page goes on by itself when they answer.",
)

Look = Callable[[str], Awaitable[GroupSnapshot]]


class Watch:
    """Watches one group."""

    def __init__(
        self, group: str, look: Look, tails: Tails, changed: Callable[[], None], topic: TraceTopic | None = None
    ) -> None:
        self.group = group
        self.viewers = 0
        self.looks = 0
        self.number = 0
        """The number of the newest story."""
        self.story: dict[str, Any] | None = None
        self.message = b""
        """The newest story as a server-sent event."""
        self._look = look
        self._tails = tails
        self._topic = topic
        self._read_to = 0
        """The number of the last record that was read from the topic."""
        self._changed = changed
        self._chronicle = Chronicle.begun(group, time.time() * 1000)
        self._looking: asyncio.Task[GroupSnapshot] | None = None
        self._look_at = self._asked_at = self._files_at = self._tell_at = 0.0
        self._told = -1
        self._problems: dict[str, HoldfastError] = {}
        self._again_at: dict[str, float] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                await self._carefully("traces", self._traces)
                self._ask()
                await self._carefully("story", self._tell)
                await asyncio.sleep(TICK_S)
        finally:
            if self._looking is not None:
                self._looking.cancel()

    async def _carefully(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        """A fault of ours must not end the watch: pages would show the last story for ever, and say that it is live.

        They are told instead, and the chronicle begins anew, because whatever it failed at is in it.
        """
        if time.monotonic() < self._again_at.get(part, 0.0):
            return
        try:
            await work()
        except Exception as error:
            log.exception("the %s of %s failed", part, self.group)
            self._again_at[part] = time.monotonic() + FAULT_S
            self._begin_anew()
            what = f"the {part} of the group failed: {type(error).__name__}: {error}."
            self._trouble(part, HoldfastError("PAGE_FAULT", what, "That is a fault of holdfast. The page goes on."))
        else:
            self._trouble(part, None)

    def _begin_anew(self) -> None:
        self._chronicle, self._told = Chronicle.begun(self.group, time.time() * 1000), -1

    async def _traces(self) -> None:
        now = time.monotonic()
        if now >= self._files_at:
            self._files_at = now + FILES_S
            self._tails.find()
        newest = 0 if self._topic is None else self._topic.newest(self.group)
        if newest == self._read_to and not self._tails.grown():
            return
        records = await in_thread(self._tails.read)
        if self._topic is not None:
            more, self._read_to = self._topic.read(self.group, after=self._read_to)
            records += more
        self._chronicle_now().traced(records, time.time() * 1000)
        if any(self._is_news(record) for record in records):
            self._look_at = 0.0

    def _chronicle_now(self) -> Chronicle:
        """The chronicle; a new one if this machine's clock was set back, because its newest would stay the newest."""
        if self._chronicle.is_past(time.time() * 1000):
            self._begin_anew()
        return self._chronicle

    def _is_news(self, record: TraceRecord) -> bool:
        return record.group == self.group and record.source == "coordinator"

    def _ask(self) -> None:
        """Take a finished look, or begin the next one."""
        now = time.monotonic()
        if self._looking is None:
            if now >= self._look_at:
                self._asked_at = now
                self._looking = asyncio.create_task(self._timed(now))
            return
        if not self._looking.done():
            if "look" not in self._problems and now - self._asked_at > SILENT_S:
                self._trouble("look", NO_ANSWER)
            return
        asked, self._looking = self._looking, None
        try:
            look = asked.result()
            self._chronicle_now().looked(look, time.time() * 1000)
            self._trouble("look", None)
        except HoldfastError as error:
            self._trouble("look", error)
        except Exception as error:
            log.exception("a look at %s failed", self.group)
            self._trouble(
                "look", HoldfastError("PAGE_FAULT", f"a look failed: {error}.", "That is a fault of holdfast.")
            )

    async def _timed(self, began: float) -> GroupSnapshot:
        self.looks += 1
        try:
            return await self._look(self.group)
        finally:
            now = time.monotonic()
            self._look_at = now + max(LOOK_S, 4 * (now - began))

    @property
    def problem(self) -> HoldfastError | None:
        """What is wrong now: the first of what the watch's parts report."""
        return next(iter(self._problems.values()), None)

    def _trouble(self, part: str, error: HoldfastError | None) -> None:
        before = self.problem
        if error is None:
            self._problems.pop(part, None)
        else:
            self._problems[part] = error
        if (self.problem and str(self.problem)) != (before and str(before)):
            self._changed()

    async def _tell(self) -> None:
        """Make the newest story, if there is anything new."""
        began = time.monotonic()
        if self._chronicle.version == self._told or began < self._tell_at or self._chronicle.begin_ms is None:
            return
        self._told = self._chronicle.version
        self.story, self.message = await in_thread(self._make)
        self.number += 1
        now = time.monotonic()
        self._tell_at = now + 2 * (now - began)
        self._changed()

    def _make(self) -> tuple[dict[str, Any], bytes]:
        story = self._chronicle.story()
        return story, message("story", {"group": self.group, "story": story})


def message(event: str, data: object) -> bytes:
    """One server-sent event."""
    return f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
