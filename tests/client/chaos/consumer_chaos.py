"""The conductor of the chaos: a group of processes, dice from a seed, and a life that they decide.

What is played: joins, clean leaves, drains, kills (the watchdog speaks for the dead), murders (the watchdog dies too),
freezes (SIGSTOP) shorter than the session and longer, hangs (not polling) shorter than max.poll.interval.ms and longer.
Several at once: nothing waits for the group to settle, but one member at least is left alone at any time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import confluent_kafka as ck
import consumer_chaos_member
from consumer_chaos_judge import MAX_POLL_MS, SESSION_MS, Fault, Findings, judge, short

from holdfast.spark.pipeline.processes import children_of
from holdfast.testing.groupcheck import lost
from holdfast.testing.members import MemberLog, MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from patience import PATIENCE_S

OURS = ("holdfast", "asyncio")
READS = {"holdfast": ("poll", "consume", "arrow"), "asyncio": ("poll", "consume", "arrow"), "confluent": ("poll",)}
FEWEST, MOST = 3, 6
PAUSE_S = (0.5, 3.0)
"""Between two events: shorter than a round of a group with a slow member, so that events fall into rounds."""

SHORT_S = (0.5, 4.0)
"""A freeze or a hang that is no fault: after the last heartbeat, 3 s ago at most, well within the session of 10 s."""
LONG_FREEZE_S = (SESSION_MS / 1000 + 2, SESSION_MS / 1000 + 8)
LONG_HANG_S = (MAX_POLL_MS / 1000 + 2, MAX_POLL_MS / 1000 + 8)

WAYS: Mapping[str, int] = {
    "leave": 2,
    "drain": 3,
    "kill": 3,
    "murder": 1,
    "freeze": 2,
    "short freeze": 3,
    "hang": 2,
    "short hang": 3,
}
"""What may become of a member, and how often against the rest."""


@dataclass(slots=True)
class Played:
    """What was done to whom."""

    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)


class Chaos:
    """One topic, one group of the same name, members of these kinds."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        folder: Path,
        kinds: tuple[str, ...],
        seed: int,
        strategy: str = "",
        rate: float = 300.0,
        ways: Mapping[str, int] = WAYS,
    ) -> None:
        """Without a `strategy` members have their default. A kind that `kinds` names twice comes twice as often."""
        self.played = Played()
        self._dice = random.Random(seed)
        self._bootstrap, self._topic, self._folder = bootstrap, topic, folder
        self._kinds, self._ways = kinds, ways
        self._strategy = (strategy,) if strategy else ()
        self._all: dict[str, MemberProcess] = {}
        self._well: set[str] = set()
        """In the group, as far as we have to do with it."""
        self._due: list[tuple[float, Callable[[], None]]] = []
        """What ends later, by the monotonic clock: thaws, and hangs that are over."""
        self._ending: set[str] = set()
        self._began = time.time()
        self.producer = SteadyProducer(bootstrap, topic, partitions=partitions, rate=rate)

    def __enter__(self) -> Chaos:
        self.producer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self._all.values():
            member.kill()
        self.producer.__exit__(kind, error, at)

    # -- the life

    def live(self, seconds: float, first: Iterable[str] = ()) -> None:
        """Plays events for so long; `first` these, whatever the dice say."""
        for _ in range(FEWEST):
            self.join()
        ends = time.monotonic() + seconds
        for way in first:
            self._pass(self._dice.uniform(*PAUSE_S))
            self.play(way, self._dice.choice(sorted(self._well)))
            self.join()
        while time.monotonic() < ends:
            self._pass(self._dice.uniform(*PAUSE_S))
            self.event()

    def event(self) -> None:
        size = len(self._well)
        if size < 2 or (size < MOST and self._dice.random() < 0.4):
            self.join()
            return
        way = self._dice.choices(list(self._ways), weights=list(self._ways.values()))[0]
        name = self._dice.choice(sorted(self._well))
        if way == "drain" and self._kind(name) not in OURS:
            way = "leave"
        self.play(way, name)

    def play(self, way: str, name: str) -> None:
        """One event of a member's life, now."""
        member = self._all[name]
        self._tell(way, name)
        self._well.discard(name)
        match way:
            case "leave" | "drain":
                self._ending.add(name)
                member.drain() if way == "drain" else member.close()
            case "kill" | "murder":
                self._kill(way, member)
            case "freeze" | "short freeze":
                self._freeze(member, self._dice.uniform(*(LONG_FREEZE_S if way == "freeze" else SHORT_S)))
            case "hang" | "short hang":
                seconds = self._dice.uniform(*(LONG_HANG_S if way == "hang" else SHORT_S))
                member.hang(seconds)
                self._due.append((time.monotonic() + seconds, lambda: self._well.add(name)))

    def join(self) -> str:
        kind = self._dice.choice(self._kinds)
        reads = self._dice.choice(READS.get(kind, ("poll",)))
        name = f"{kind}-{len(self._all) + 1}"
        options = MemberOptions(
            bootstrap=self._bootstrap,
            group=self._topic,
            topic=self._topic,
            client_id=name,
            assignors=self._strategy,
            session_ms=SESSION_MS,
            max_poll_ms=MAX_POLL_MS,
            commit_every_ms=0,
            config=self._config(kind, name),
        )
        if kind == "java":
            member = MemberProcess(kind, options, name=name, folder=self._folder)
        else:
            program = [consumer_chaos_member.__file__, "--kind", kind, "--reads", reads]
            ours = "holdfast" if kind in OURS else "confluent"
            member = MemberProcess(ours, options, name=name, folder=self._folder, program=program)
        self._all[name] = member
        self._well.add(name)
        self._tell("join", f"{name} ({reads})")
        return name

    def _config(self, kind: str, name: str) -> dict[str, str]:
        if kind in OURS:
            return {"holdfast.trace.file": str(self._folder / f"{name}.trace.jsonl")}
        return {"enable.auto.commit": "true"} if kind == "java" else {"log_level": "2"}

    def _kill(self, way: str, member: MemberProcess) -> None:
        start_ms = time.time() * 1000
        victims = [*(children_of(member.pid) if way == "murder" else ()), member.pid]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        member.kill()  # and is waited for
        kind = "killed" if way == "kill" else "murdered"
        self.played.faults.append(Fault(member.name, kind, start_ms, time.time() * 1000))

    def _freeze(self, member: MemberProcess, seconds: float) -> None:
        start_ms = time.time() * 1000
        member.pause()

        def thaw() -> None:
            # The time before it runs again. Where this process was slow to go on, the time after it was later than what
            # the member did with the records in its hands, and nothing excused those.
            end_ms = time.time() * 1000
            member.resume()
            self.played.faults.append(Fault(member.name, "frozen", start_ms, end_ms))
            self._well.add(member.name)

        self._due.append((time.monotonic() + seconds, thaw))

    def _pass(self, seconds: float) -> None:
        """Lets time go by, does what comes due in it, and looks whether everybody lives who should."""
        ends = time.monotonic() + seconds
        while True:
            self._see_to_all()
            left = ends - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def _see_to_all(self) -> None:
        for due in [each for each in self._due if each[0] <= time.monotonic()]:
            self._due.remove(due)
            due[1]()
        for name in sorted(self._ending):
            if not self._all[name].running:
                self._all[name].terminate()  # raises unless it closed cleanly
                self._ending.discard(name)
        for name in sorted(self._well):
            self._all[name].wait_for(lambda: True, "to live") if self._all[name].running else self._mourn(name)

    def _mourn(self, name: str) -> None:
        self._all[name].terminate()  # says how it ended, with its output
        raise AssertionError(f"{name} closed though nobody asked it to")

    # -- the end

    def finish(self) -> Findings:
        """Nothing more happens: everybody comes back, does what is there, and leaves. Then all is judged."""
        deadline = time.monotonic() + PATIENCE_S
        while self._due or self._ending:
            self._wait_on(deadline, f"the last events to end: {sorted(self._ending)}")
        if not self._well:
            self.join()
        self.producer.stop()
        acknowledged = self.producer.acknowledged()
        assert sum(map(len, acknowledged.values())) > 0, "nothing was produced, so nothing is proven"
        deadline = time.monotonic() + PATIENCE_S
        while (missing := lost(acknowledged, self.logs())) and time.monotonic() < deadline:
            self._pass(0.2)
        for name in sorted(self._well):
            self._all[name].terminate()
        foreign = frozenset(name for name in self._all if self._kind(name) not in OURS)
        self._write_down(acknowledged)
        findings = judge(acknowledged, self.logs(), self.played.faults, foreign)
        ends = {p: max(offsets) + 1 for p, offsets in acknowledged.items()}
        assert missing or not short(ends, self._committed(), self.logs(), foreign)
        return findings

    def _write_down(self, acknowledged: Mapping[int, Sequence[int]]) -> None:
        """Beside the members' logs, so that a run that failed can be judged again."""
        faults = [[each.member, each.kind, each.start_ms, each.end_ms] for each in self.played.faults]
        ends = {partition: max(offsets, default=-1) + 1 for partition, offsets in acknowledged.items()}
        kept = {"faults": faults, "ends": ends, "story": self.played.story}
        (self._folder / "played.json").write_text(json.dumps(kept, indent=1))

    def _wait_on(self, deadline: float, what: str) -> None:
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        self._pass(0.2)

    def _committed(self) -> dict[int, int]:
        """Where the group stands when everybody has left."""
        asking = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._topic, "log_level": 2})
        wanted = [ck.TopicPartition(self._topic, number) for number in self.producer.acknowledged()]
        try:
            return {each.partition: each.offset for each in asking.committed(wanted, timeout=PATIENCE_S)}
        finally:
            asking.close()

    def logs(self) -> list[MemberLog]:
        return [member.log() for _, member in sorted(self._all.items())]

    def story(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in sorted(self.played.counts.items()))
        return "\n".join([f"events: {counts}", *self.played.story])

    def _kind(self, name: str) -> str:
        return name.rsplit("-", 1)[0]

    def _tell(self, what: str, who: str) -> None:
        self.played.counts[what] += 1
        self.played.story.append(f"{time.time() - self._began:7.2f} {time.time() * 1000:.0f} {what} {who}")
