"""Members of several groups on one real broker, each with its output kept as a log; and what the doctor reads of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.doctor.events import Event
from holdfast.doctor.scanning import scan
from holdfast.testing.kafka import RealKafka
from holdfast.testing.members import MemberOptions, MemberProcess
from patience import PATIENCE_S

COOPERATIVE = ("cooperative-sticky",)


class Groups:
    """Members of several groups on one broker, each with its output kept as a log."""

    def __init__(self, kafka: RealKafka, folder: Path) -> None:
        self._kafka = kafka
        self._folder = folder
        self._members: list[MemberProcess] = []

    def add(self, kind: str, group: str, name: str, **options: Any) -> MemberProcess:
        settings: dict[str, Any] = {
            "session_ms": 6_000,
            "heartbeat_ms": 500,
            "max_poll_ms": 6_000,
            "assignors": COOPERATIVE,
        }
        settings |= {"client_id": name, **options}
        config = dict(settings.pop("config", {}))
        if kind == "holdfast":
            config["holdfast.trace.file"] = str(self._folder / f"{name}.jsonl")
        made = MemberOptions(bootstrap=self._kafka.bootstrap, group=group, topic=group, config=config, **settings)
        # Its own log of records has a name of its own, too: a second life must not be taken for the first.
        member = MemberProcess(kind, made, name=f"{name}-{len(self._members)}", folder=self._folder)
        self._members.append(member)
        return member

    def stop(self) -> None:
        for member in self._members:
            member.kill()


def events_of_logs(folder: Path) -> list[Event]:
    """The broker's log, what members printed, and traces. Some have the time of day alone: the file's own time tells
    the day."""
    logs = [folder / "broker.log", *sorted(folder.glob("*.out")), *sorted(folder.glob("*.jsonl"))]
    events: list[Event] = []
    for path in logs:
        events += scan(path.read_bytes(), file=path.name, last_ms=path.stat().st_mtime * 1000).events
    return events


def until_told(log: Callable[[], str], told: str, times: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while log().count(told) < times:
        assert time.monotonic() < deadline, f"the broker did not say {told!r} {times} times"
        time.sleep(0.05)
