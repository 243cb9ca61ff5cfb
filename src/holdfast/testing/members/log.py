"""The log that every member program writes, and its reader.

One line per record processed, flushed before the next poll, so what is in the log was processed and survives a kill:

    PARTITION OFFSET TIME_MS                      7 10423 1763251200123.417

One line per event, time second, partitions as a comma list or `-` for none:

    #ready TIME KIND PID            loaded, the consumer made; has not joined
    #joining TIME                   subscribed
    #assigned TIME PARTITIONS       the callback, as the client called it (cooperative: only what was added)
    #revoked TIME PARTITIONS        the callback began: from here on nothing of these is processed
    #lost TIME PARTITIONS
    #committed TIME PARTITIONS      acknowledged by the coordinator
    #commit-failed TIME TEXT
    #dropped TIME PARTITION OFFSET  the client handed over a record of a partition it had just revoked
    #held TIME MS                   the process was frozen with a batch in its hands: the records of this very time
    #hang TIME MS, #awake TIME      the poll loop stood still, as told
    #metrics TIME JSON              the client's metrics, as told
    #closing TIME, #closed TIME     a clean end
    #error TIME TEXT                the program gave up

Times are milliseconds since the epoch with microseconds after the point; members on one machine share the clock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

PARTITION_EVENTS = frozenset({"assigned", "revoked", "lost", "committed"})


@dataclass(frozen=True, slots=True)
class Record:
    """One record that a member processed."""

    partition: int
    offset: int
    time_ms: float


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a member's life."""

    name: str
    time_ms: float
    partitions: tuple[int, ...] = ()
    """Sorted; for the events that carry a list."""
    text: str = ""
    """Whatever else the line said."""


def parse_line(line: str) -> Record | Event:
    """One line of a log. A malformed one raises ValueError: a log that can't be trusted proves nothing."""
    if not line.startswith("#"):
        partition, offset, time_ms = line.split(" ")
        return Record(int(partition), int(offset), float(time_ms))
    name, time_ms, *rest = line[1:].split(" ", 2)
    text = rest[0] if rest else ""
    if name not in PARTITION_EVENTS:
        return Event(name, float(time_ms), text=text)
    numbers = () if text in {"", "-"} else tuple(sorted(int(number) for number in text.split(",")))
    return Event(name, float(time_ms), numbers)


class MemberLog:
    """A member's log, read as it grows. Only complete lines count: a killed member may leave half a one."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.records: list[Record] = []
        self.events: list[Event] = []
        self._read_to = 0

    @classmethod
    def of_text(cls, name: str, text: str) -> MemberLog:
        """A log from its text, for checks by hand."""
        log = cls(name, Path("/dev/null"))
        log._take(text)
        return log

    def refresh(self) -> MemberLog:
        """Reads what was written since the last time."""
        if not self.path.exists():
            return self
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            fresh = file.read()
        complete = fresh.rfind(b"\n") + 1
        self._read_to += complete
        self._take(fresh[:complete].decode())
        return self

    @property
    def owned(self) -> frozenset[int]:
        """What the member owns at the end of what was read, by its own callbacks."""
        held: set[int] = set()
        for event in self.events:
            if event.name == "assigned":
                held.update(event.partitions)
            elif event.name in {"revoked", "lost"}:
                held.difference_update(event.partitions)
        return frozenset(held)

    def without(self, times_ms: Collection[float]) -> MemberLog:
        """The same log less the records of these times."""
        log = MemberLog(self.name, self.path)
        log.events = self.events
        log.records = [record for record in self.records if record.time_ms not in times_ms]
        return log

    def named(self, name: str) -> list[Event]:
        """The events of one name, in order."""
        return [event for event in self.events if event.name == name]

    def _take(self, text: str) -> None:
        for line in text.splitlines():
            found = parse_line(line)
            if isinstance(found, Record):
                self.records.append(found)
            else:
                self.events.append(found)


class LogWriter:
    """Writes a Python member's log. Unbuffered: each call is one write to the kernel, which a kill can't take back."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()

    def records(self, batch: Iterable[tuple[int, int]], *, held_s: float = 0.0) -> None:
        """(partition, offset) of records processed now; `held_s` after the client handed them out, if that is long."""
        now = f"{time.time() * 1000:.3f}"
        held = f"#held {now} {held_s * 1000:.0f}\n" if held_s else ""
        self._file.write((held + "".join(f"{partition} {offset} {now}\n" for partition, offset in batch)).encode())

    def event(self, name: str, text: str = "") -> None:
        line = f"#{name} {time.time() * 1000:.3f} {text}".rstrip().replace("\n", " ")
        self._file.write(f"{line}\n".encode())

    def partitions(self, name: str, partitions: Iterable[int]) -> None:
        self.event(name, ",".join(str(partition) for partition in sorted(partitions)) or "-")
