"""What the Python member programs share: commands, signals, what is owned, how far it was processed, and the log.

It knows no Kafka client: each program translates its client's callbacks and records into calls of `Session`.

The lock: some clients run callbacks on a thread of their own. A batch is processed under the lock and against what is
owned at that moment, so a revocation falls before or after a batch, never inside it; then what is committed at
revocation is exactly what was processed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from holdfast.testing.members.log import LogWriter
from holdfast.testing.members.options import MemberOptions, parse_arguments

POLL_S = 0.1
"""How long a poll may wait, and so how soon a command is heard."""

FROZEN_S = 3.0
"""A batch is logged in microseconds. If it took this long, the process was stopped. Half of a test's session."""

BATCH = 500
"""Records taken per poll, Kafka's default of max.poll.records."""


class Session:
    """One member's run."""

    def __init__(self, kind: str, argv: list[str]) -> None:
        self.options: MemberOptions
        self.options, path = parse_arguments(argv)
        self.log = LogWriter(path)
        self._lock = threading.RLock()
        self._owned: set[int] = set()
        self._uncommitted: dict[int, int] = {}
        self._stop = threading.Event()
        self._join = threading.Event()
        self._hang_s = 0.0
        self._drain = threading.Event()
        self._metrics = threading.Event()
        self._next_commit = time.monotonic() + self.options.commit_every_ms / 1000
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        threading.Thread(target=self._obey, name="commands", daemon=True).start()
        self._kind = kind
        if not self.options.join_on_command:
            self._join.set()

    def await_join(self) -> None:
        """Says that all is loaded and the consumer made, and returns when the member is to join."""
        self.log.event("ready", f"{self._kind} {os.getpid()}")
        self._join.wait()
        self.log.event("joining")

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def draining(self) -> bool:
        return self._drain.is_set()

    def take_metrics_request(self) -> bool:
        """True once for each time that the member was told to log its metrics."""
        wanted = self._metrics.is_set()
        self._metrics.clear()
        return wanted

    def take_hang_s(self) -> float:
        """How many seconds the poll loop is to stop now, mostly 0."""
        hang_s, self._hang_s = self._hang_s, 0.0
        if hang_s:
            self.log.event("hang", f"{hang_s * 1000:.0f}")
        return hang_s

    def processed(self, batch: Iterable[tuple[int, int]], *, handed_at: float | None = None) -> None:
        """Processes (partition, offset) records: writes them down. Those of partitions no longer owned are dropped.

        `handed_at` is when the client handed them out, by the monotonic clock: this process may have been frozen since.
        """
        with self._lock:
            kept = []
            for partition, offset in batch:
                if partition in self._owned:
                    kept.append((partition, offset))
                    self._uncommitted[partition] = offset + 1
                else:
                    self.log.event("dropped", f"{partition} {offset}")
            if kept:
                held_s = 0.0 if handed_at is None else time.monotonic() - handed_at
                self.log.records(kept, held_s=held_s if held_s > FROZEN_S else 0.0)

    def assigned(self, partitions: Iterable[int]) -> None:
        with self._lock:
            added = set(partitions)
            self.log.partitions("assigned", added)
            self._owned |= added

    def revoked(self, partitions: Iterable[int]) -> dict[int, int]:
        """Gives partitions up and returns the offsets to commit before the callback ends."""
        with self._lock:
            gone = set(partitions)
            self.log.partitions("revoked", gone)
            self._owned -= gone
            return {partition: self._uncommitted.pop(partition) for partition in sorted(gone & set(self._uncommitted))}

    def lost(self, partitions: Iterable[int]) -> None:
        with self._lock:
            gone = set(partitions)
            self.log.partitions("lost", gone)
            self._owned -= gone
            for partition in gone:
                self._uncommitted.pop(partition, None)

    def due_offsets(self) -> dict[int, int]:
        """The offsets to commit in passing, if it is time; empty otherwise."""
        every_s = self.options.commit_every_ms / 1000
        if not every_s or time.monotonic() < self._next_commit:
            return {}
        self._next_commit = time.monotonic() + every_s
        with self._lock:
            return dict(self._uncommitted)

    def committed(self, offsets: dict[int, int]) -> None:
        """These offsets were acknowledged."""
        with self._lock:
            self.log.partitions("committed", offsets)
            for partition, offset in offsets.items():
                if self._uncommitted.get(partition) == offset:
                    del self._uncommitted[partition]

    def commit_failed(self, error: BaseException) -> None:
        self.log.event("commit-failed", f"{type(error).__name__}: {error}")

    def _end(self) -> None:
        self._stop.set()
        self._join.set()

    def _obey(self) -> None:
        for line in sys.stdin:
            words = line.split()
            match words:
                case ["join"]:
                    self._join.set()
                case ["hang", seconds, *_]:
                    self._hang_s = float(seconds)
                case ["drain", *_]:
                    self._drain.set()
                case ["metrics", *_]:
                    self._metrics.set()
                case ["close", *_]:
                    self._end()
                case _:
                    sys.stderr.write(f"unknown command: {line}")
        self._end()


def refuse(kind: str, assignors: Iterable[str]) -> None:
    """Ends the program: this client has no such assignor."""
    sys.exit(f"{kind} has no assignor {', '.join(sorted(assignors))}")


def pythonic_settings(kind: str, options: MemberOptions, assignors: Mapping[str, object]) -> dict[str, Any]:
    """A consumer's arguments, where the client takes Kafka's keys with underscores and assignors as classes.

    What comes from `config` is text; digits are passed on as a number.
    """
    unknown = set(options.assignors) - set(assignors)
    if unknown:
        refuse(kind, unknown)
    named = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "auto_offset_reset": options.reset,
        "enable_auto_commit": False,
        "partition_assignment_strategy": [assignors[name] for name in options.assignors] or None,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "max_poll_interval_ms": options.max_poll_ms,
        "group_instance_id": options.instance_id,
        "client_rack": options.rack,
        "client_id": options.client_id,
    }
    extra = {key: int(value) if value.isdigit() else value for key, value in options.config.items()}
    return {key: value for key, value in named.items() if value is not None} | extra


class AsyncCallbacks:
    """The callbacks of clients that await their listener, in our words. Each client adds its own way to commit."""

    def __init__(self, session: Session, commit: Callable[[dict[int, int]], Awaitable[object]]) -> None:
        """`commit` raises what the client raises, which must be among `refusals` to count as an answer."""
        self._session = session
        self._commit = commit

    refusals: tuple[type[Exception], ...] = ()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._session.assigned(partition.partition for partition in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self.commit(self._session.revoked(partition.partition for partition in revoked))

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._session.lost(partition.partition for partition in lost)

    async def commit(self, offsets: dict[int, int]) -> None:
        """Commits and waits; the log says how it went."""
        if not offsets:
            return
        try:
            await self._commit(offsets)
        except self.refusals as error:
            self._session.commit_failed(error)
        else:
            self._session.committed(offsets)
