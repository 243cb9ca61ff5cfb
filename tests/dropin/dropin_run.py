"""One run of a program on one class: its consumer, what it does with it, and what is noted.

A program says what it waits for (`read`, `until`), never how long. A wait that is in vain ends at a generous limit and
is noted under `ended`: no clock decides a run that goes well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from dropin_kinds import KINDS
from dropin_outcome import Partition, Recorder, code, raised
from dropin_world import BATCH, PARTITIONS, World

if TYPE_CHECKING:
    from dropin_callbacks import Callbacks
    from dropin_offsets import Keeping
    from dropin_partner import KillablePartner, Partner

LIMIT_S = 8.0
"""Longer than anything takes on either class, also on a busy machine: the slowest is librdkafka's look for a
coordinator, once a second."""

POLL_S = 0.05

IDLE_S = 0.4
"""How long to poll where nothing is expected: whatever comes in it is a difference, and nothing has to come."""

COMMIT_S = 4.0
"""How long an automatic commit of every 100 ms may take before it is taken for missing."""

TRY_S = 4.0
"""How long to wait for what one class may never do: it is noted that it did not."""

STRATEGIES = {"": "cooperative-sticky", "range": "range"}


class Run:
    """A program's hands."""

    def __init__(self, world: World, kind: str, keeping: Keeping, callbacks: Callbacks, strategy: str = "") -> None:
        self.world = world
        self.kind = kind
        self.keeping = keeping
        self.callbacks = callbacks
        self.strategy = strategy
        self.recorder = Recorder()
        self.consumer: Any = None
        self.partner: Partner | KillablePartner | None = None
        self.closed = False
        self.last: dict[Partition, int] = {}
        """The offset of the last record of each partition."""
        self.topics = [world.topic]
        self.held: set[Partition] = set()
        """As the callbacks say."""

    # Making one

    def config(self, **more: Any) -> dict[str, Any]:
        given = {
            "bootstrap.servers": self.world.bootstrap,
            "group.id": self.world.group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": STRATEGIES[self.strategy],
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "client.id": "subject",
        }
        return {**given, **self.world.login, **more}

    def open(self, **more: Any) -> None:
        """The consumer, and its subscription or its partitions."""
        settings = self.config(**self.keeping.config, on_commit=self._on_commit, error_cb=self._on_error, **more)
        try:
            self.consumer = KINDS[self.kind](settings)
        except Exception as error:
            self.note("made", raised(error))
            self.closed = True
            return
        if self.keeping.by_hand:
            wanted = [ck.TopicPartition(self.world.topic, number) for number in range(PARTITIONS)]
            self.call("assign", lambda: self.consumer.assign(wanted))
        else:
            self.subscribe()

    def subscribe(self) -> None:
        calls = self.callbacks.of(self)
        self.call("subscribe", lambda: self.consumer.subscribe(self.topics, **calls))

    # Notes

    def note(self, aspect: str, text: str, partitions: list[Partition] | None = None) -> None:
        self.recorder.note(aspect, text, partitions or [])

    def phase(self, name: str) -> None:
        self.recorder.phase = name

    def call(self, name: str, what: Callable[[], Any], *, where: str = "") -> Any:
        """Do it and note how it went; what it returned is the caller's to note."""
        shown = f"{where} {name}".strip()
        try:
            result = what()
        except BaseException as error:
            self.note("calls", f"{shown} raises {raised(error)}")
            return None
        self.note("calls", f"{shown} ok")
        return result

    def _on_commit(self, error: ck.KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        codes = {code(error)} if error else {code(each.error) for each in partitions if each.error} or {"ok"}
        for each in sorted(codes):
            self.note("on_commit", each)

    def _on_error(self, error: ck.KafkaError) -> None:
        """Only what an application acts on: which connections broke meanwhile is librdkafka's own affair."""
        if error.code() in (ck.KafkaError._AUTHENTICATION, ck.KafkaError._FATAL) or error.fatal():
            self.note("error_cb", code(error))

    # Polling

    def poll(self, timeout: float = POLL_S) -> None:
        try:
            message = self.consumer.poll(timeout)
        except RuntimeError as error:
            self.note("raised", raised(error))
            self.closed = True
            return
        except BaseException as error:
            self.note("raised", raised(error))
            return
        if message is not None:
            self.got(message)

    def got(self, message: ck.Message) -> None:
        error = message.error()
        if error is not None:
            self.note("errors", code(error))
            return
        topic, number, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None and number is not None and offset is not None and value is not None
        assert int(value) == offset, "a record came with another one's offset"
        self.recorder.record("me", (topic, number), offset)
        self.last[topic, number] = offset
        self.keeping.each(self, message)

    def until(self, holds: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> bool:
        """Poll until it holds; note it if it never does.

        The limit is one of polls as well: on a starved machine they take longer, and so does everything else.
        """
        deadline = time.monotonic() + limit_s
        polls = 0
        while not self.closed:
            if holds():
                return True
            if (time.monotonic() > deadline and polls > limit_s / POLL_S) or self.fatal:
                self.note("ended", f"in vain: {what}")
                return False
            self.poll()
            polls += 1
        return False

    @property
    def fatal(self) -> bool:
        """Whether the program was told that nothing will come any more."""
        return self.recorder.has("errors", "(fatal)") or self.recorder.has("raised", "(fatal)")

    def idle(self, seconds: float = IDLE_S) -> None:
        """Poll for a while; nothing is waited for."""
        deadline = time.monotonic() + seconds
        while not self.closed and time.monotonic() < deadline:
            self.poll()

    def read(self) -> None:
        """Poll until everything produced so far was got by somebody, and keep the offsets."""
        if self.callbacks.gets_records(self.strategy):
            self.until(self.all_done, "every record")
        else:
            self.until(lambda: self.recorder.has("callbacks"), "a callback")
            self.idle()
        if not self.closed:
            self.keeping.batch(self)

    def all_done(self) -> bool:
        done = self.recorder.done()
        return all(count - 1 in done.get(partition, ()) for partition, count in self.world.produced.items())

    def more(self) -> None:
        """Another batch in every partition, read to its end."""
        if not self.closed:
            partitions = sum(1 for topic, _ in self.world.produced if topic == self.world.topic)
            self.world.produce(self.world.topic, partitions, BATCH)
            self.read()

    # The end

    def close(self) -> None:
        """Close on a thread of its own, so that one that hangs is seen and does not hang us."""
        self.phase("end")
        if self.consumer is None:
            return
        failed: list[BaseException] = []
        thread = threading.Thread(target=self._close, args=(failed,), daemon=True)
        thread.start()
        thread.join(3 * LIMIT_S)
        if thread.is_alive():
            self.note("ended", "close hangs")
        for error in failed:
            self.note("raised", f"close {raised(error)}")

    def _close(self, failed: list[BaseException]) -> None:
        try:
            self.consumer.close()
        except BaseException as error:
            failed.append(error)

    def look(self, *, committed: bool = True) -> None:
        """What is left behind, as somebody else sees it."""
        if committed:
            self.note_committed()
        self.note("members", str(self.world.members()))

    def note_committed(self) -> None:
        for partition, (offset, metadata, epoch) in sorted(self.world.committed().items()):
            self.note("committed", f"{{}} at {offset}" + (f" with {metadata!r}" if metadata else ""), [partition])
            self.note("epochs", f"committed with leader epoch {epoch}")

    def sum_up(self) -> None:
        """Records done twice; and those that nobody did and nobody will, because more was committed."""
        committed = self.world.committed()
        for partition, offsets in sorted(self.recorder.done().items()):
            twice = sorted({offset for offset in offsets if offsets.count(offset) > 1})
            if twice:
                self.note("redone", f"{{}} {len(twice)}", [partition])
        for partition, (offset, _, _) in sorted(committed.items()):
            done = set(self.recorder.done().get(partition, ()))
            lost = [
                number for number in range(min(offset, self.world.produced.get(partition, 0))) if number not in done
            ]
            if lost:
                self.note("unread", f"{{}} {len(lost)}", [partition])
