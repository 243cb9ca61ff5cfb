"""A group on trial: members of any kind as processes, a steady producer, and a verdict from the members' own logs.

    with GroupScene(bootstrap, "orders", partitions=6, folder=tmp_path) as scene:
        scene.add("java-0", "java")
        scene.add("ours-0", "holdfast")
        scene.wait_shared()
        scene.kill("ours-0")
        scene.wait_shared()
        assert scene.finish().clean

It knows no broker: give it the address of one, and create the topic first. Every change of the group is waited for by
what the members wrote down, never by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.model import HoldfastError
from holdfast.testing.groupcheck import lost
from holdfast.testing.members import MemberLog, MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from holdfast.testing.verdict import Verdict, judge

WAIT_LIMIT_S = 100.0
"""A change takes milliseconds to a session timeout of 6 s; beside other work, many times that. Then it has failed."""

AUTO_COMMIT = {"enable.auto.commit": "true"}
"""For a holdfast member: then its watchdog commits for it, and its positions are handed over in rounds."""


class GroupScene:
    """One topic, one group of the same name."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        folder: Path,
        rate: float = 300.0,
        defaults: MemberOptions | None = None,
    ) -> None:
        """`defaults` are the options of every member, under its own name; without them sessions are short."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.folder = folder
        self.members: dict[str, MemberProcess] = {}
        """Those in the group now."""
        self._all: dict[str, MemberProcess] = {}
        self._killed: set[str] = set()
        self._spoken_for: set[str] = set()
        self._zombies: set[str] = set()
        self._auto_commits: set[str] = set()
        self._defaults = replace(
            defaults or quick_options(bootstrap, topic), bootstrap=bootstrap, group=topic, topic=topic
        )
        self.producer = SteadyProducer(bootstrap, topic, partitions=partitions, rate=rate)

    def __enter__(self) -> GroupScene:
        self.producer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self._all.values():
            member.kill()
        self.producer.__exit__(kind, error, at)

    # -- who comes and goes

    def add(self, name: str, kind: str, *, config: Mapping[str, str] | None = None, **options: Any) -> MemberProcess:
        """Starts a member. A holdfast member writes its trace beside its log, `trace_of` reads it."""
        told = dict(config or {})
        if kind == "holdfast":
            told.setdefault("holdfast.trace.file", str(self._trace_path(name)))
            if told.get("enable.auto.commit") == "true":
                self._auto_commits.add(name)
                options.setdefault("commit_every_ms", 0)
        settings = replace(self._defaults, client_id=name, config=told, **options)
        member = self._all[name] = self.members[name] = MemberProcess(kind, settings, name=name, folder=self.folder)
        return member

    def leave(self, name: str) -> None:
        """A clean close, waited for."""
        self.members.pop(name).terminate()

    def drain(self, name: str) -> None:
        """A holdfast member hands over and leaves; waited for."""
        member = self.members.pop(name)
        member.drain()
        member.wait_event("closed", limit_s=WAIT_LIMIT_S)
        member.terminate()

    def kill(self, name: str) -> None:
        """SIGKILL. A holdfast member that commits by itself is spoken for by its watchdog."""
        self.members.pop(name).kill()
        self._killed.add(name)
        if name in self._auto_commits:
            self._spoken_for.add(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP, until `thaw`. Out of `members` meanwhile; what a foreign client does on waking is not judged."""
        member = self.members.pop(name)
        if member.kind != "holdfast":
            self._zombies.add(name)
        member.pause()

    def thaw(self, name: str) -> None:
        member = self.members[name] = self._all[name]
        member.resume()

    def hang(self, name: str, seconds: float) -> MemberProcess:
        """Stop the poll loop for that long; the member is out of `members` until `back`."""
        member = self.members.pop(name)
        member.hang(seconds)
        return member

    def back(self, name: str) -> None:
        """A member that hung or was frozen is waited for again."""
        self.members[name] = self._all[name]

    # -- waiting for what they write down

    def wait_shared(self, limit_s: float = WAIT_LIMIT_S) -> None:
        """Until the members own every partition once, evenly, and every partition was processed by its owner since."""
        self.wait(self._is_shared, f"{sorted(self.members)} to share {self.partitions} partitions evenly", limit_s)
        seen = {name: len(member.records()) for name, member in self.members.items()}

        def flows() -> bool:
            return all(
                member.owned() <= {record.partition for record in member.records()[seen[name] :]}
                for name, member in self.members.items()
            )

        self.wait(flows, "a record of every partition to be processed by its owner", limit_s)

    def _is_shared(self) -> bool:
        owned = [member.owned() for member in self.members.values()]
        sizes = [len(each) for each in owned]
        everything = sorted(partition for each in owned for partition in each)
        return everything == list(range(self.partitions)) and max(sizes) - min(sizes) <= 1 and min(sizes) > 0

    def wait(self, holds: Callable[[], bool], what: str, limit_s: float = WAIT_LIMIT_S) -> None:
        """Until it holds. Fails when the time is up, and at once when a member has ended that should be there."""
        deadline = time.monotonic() + limit_s
        while not holds():
            ended = sorted(name for name, member in self.members.items() if not member.running)
            if ended or time.monotonic() > deadline:
                how = f"{', '.join(ended)} ended" if ended else f"{limit_s:.0f} s went by"
                owned = {name: sorted(member.owned()) for name, member in sorted(self.members.items())}
                said = "\n".join(f"{name}: {member.output()[-1500:]}" for name, member in sorted(self._all.items()))
                raise HoldfastError(
                    "GROUP_NOT_THERE", f"{how} while waiting for {what}; {owned}.\n{said}", "Read the output above."
                )
            time.sleep(0.05)

    # -- what they wrote down

    def logs(self) -> list[MemberLog]:
        """All members' logs, also of those that have left."""
        return [log.refresh() for _, member in sorted(self._all.items()) for log in member.logs]

    def log(self, name: str) -> MemberLog:
        return self._all[name].log()

    def trace_of(self, name: str) -> Path:
        return self._trace_path(name)

    def finish(self) -> Verdict:
        """Stops producing, waits until all that was acknowledged has been processed, closes everybody, and judges."""
        self.producer.stop()
        acknowledged = self.producer.acknowledged()
        assert sum(map(len, acknowledged.values())) > 0, "nothing was produced, so nothing is proven"
        self.wait(lambda: not lost(acknowledged, self.logs()), "every acknowledged record to be processed")
        for name in sorted(self.members):
            self.leave(name)
        return judge(
            acknowledged,
            self.logs(),
            killed=self._killed,
            spoken_for=self._spoken_for,
            zombies=self._zombies,
            foreign={name for name, member in self._all.items() if member.kind != "holdfast"},
        )

    def _trace_path(self, name: str) -> Path:
        return self.folder / f"{name}.trace.jsonl"


def quick_options(bootstrap: str, topic: str) -> MemberOptions:
    """With Kafka's defaults a dead member is noticed after 45 s; a test can't wait that long."""
    return MemberOptions(
        bootstrap=bootstrap,
        group=topic,
        topic=topic,
        assignors=("cooperative-sticky",),
        session_ms=6_000,
        heartbeat_ms=300,
        commit_every_ms=200,
    )
