"""Somebody else in the group: a member of the same class, on a thread or, to be killed, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from dropin_kinds import KINDS
from dropin_outcome import Recorder

from patience import PATIENCE_S


class Partner:
    """Reads, commits automatically and has no callbacks. What it gets is noted as the partner's."""

    def __init__(self, kind: str, config: dict[str, Any], topics: list[str], recorder: Recorder) -> None:
        self.held = 0
        self._kind = kind
        self._config = config
        self._topics = topics
        self._recorder = recorder
        self._leaving = threading.Event()
        self._working = threading.Event()
        self._working.set()
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._work, name="partner", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        consumer = KINDS[self._kind](self._config)
        consumer.subscribe(self._topics)
        while not self._leaving.is_set():
            if not self._working.is_set():
                self._rest(consumer)
                continue
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._recorder.record("partner", (message.topic(), message.partition()), message.offset())
            self.held = len(consumer.assignment())
        consumer.close()
        self.held = 0

    def rest(self) -> None:
        """Commit and poll no more, and stay a member: how much of what others leave behind it would read is chance."""
        self._working.clear()
        if self._leaving.is_set():
            return
        assert self._resting.wait(PATIENCE_S), f"a partner of {self._kind} did not come to rest in {PATIENCE_S:g} s"

    def _rest(self, consumer: Any) -> None:
        if not self._resting.is_set():
            with contextlib.suppress(ck.KafkaException):  # nothing new to commit
                consumer.commit(asynchronous=False)
            self._resting.set()
        self._leaving.wait(0.05)

    def leave(self) -> None:
        """Close it, and return when it has."""
        self._leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"a partner of {self._kind} did not close in {PATIENCE_S:g} s"


class KillablePartner:
    """The same in a process, which is killed without a word."""

    def __init__(self, kind: str, config: dict[str, Any], topics: list[str], recorder: Recorder) -> None:
        self.held = 0
        self._said = False
        self._recorder = recorder
        here = Path(__file__).parent
        paths = [str(here), str(here.parent)]
        program = f"import sys; sys.path[:0] = {paths!r}; import dropin_partner; dropin_partner.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, kind, repr(config), ",".join(topics)], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._listen, name="partner", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *rest = line.split()
            self._said = True
            if what == "held":
                self.held = int(rest[0])
            else:
                topic, partition, offset = rest
                self._recorder.record("partner", (topic, int(partition)), int(offset))

    def rest(self) -> None:
        """Killed by now."""

    def leave(self) -> None:
        ended = self._process.poll()
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.held = 0
        assert self._said, f"the partner never did anything; it ended with {ended}"


def main() -> None:
    """The process: a line for each record and whenever what it holds has changed."""
    from ast import literal_eval

    kind, config, topics = sys.argv[1:]
    consumer = KINDS[kind](literal_eval(config))
    consumer.subscribe(topics.split(","))
    held = 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            print("record", message.topic(), message.partition(), message.offset(), flush=True)
        if len(consumer.assignment()) != held:
            held = len(consumer.assignment())
            print("held", held, flush=True)
