"""The simulated network: messages between named places, and a client's connection to the broker.

What can go wrong: delay and jitter, loss (of a question, or of an answer whose effect has happened), duplication,
one-way partitions, resets. What can't: messages of one connection never overtake each other, and what was sent on a
connection that has been reset never arrives. That is TCP, and groups rely on it.

Nothing here knows what a message means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from random import Random
from typing import Any, Protocol

from holdfast.group.messages import Answer, Request
from holdfast.sim.clock import Clock, Timer

BROKER = "broker"
"""The broker's place in the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProfile:
    """How every link behaves."""

    delay_ms: float = 0.5
    """One way, at least."""
    jitter_ms: float = 0.0
    """On top of it, exponentially distributed with this mean."""
    loss: float = 0.0
    duplicate: float = 0.0


class Network:
    """Carries messages."""

    def __init__(self, clock: Clock, random: Random, profile: NetworkProfile) -> None:
        self.clock = clock
        self.profile = profile
        self._random = random
        self._last_arrival: dict[tuple[str, str, str], float] = {}
        self._cut: dict[tuple[str, str], int] = {}
        """Links that carry nothing -> by how many faults at once."""

    def carry(self, source: str, target: str, lane: str, deliver: Callable[..., None], *args: Any) -> None:
        """Take one message from `source` to `target`, behind everything sent before on the same lane."""
        profile, clock = self.profile, self.clock
        if self._cut and (source, target) in self._cut:
            return
        if profile.loss and self._random.random() < profile.loss:
            return
        arrival = clock.now + profile.delay_ms
        if profile.jitter_ms:  # exponentially distributed, drawn as `Random.expovariate` does
            arrival = clock.now + (profile.delay_ms - log(1.0 - self._random.random()) / (1.0 / profile.jitter_ms))
        key = (source, target, lane)
        last = self._last_arrival.get(key)
        if last is not None and last > arrival:
            arrival = last
        self._last_arrival[key] = arrival
        clock.at(arrival, deliver, *args)
        if profile.duplicate and self._random.random() < profile.duplicate:
            clock.at(arrival, deliver, *args)

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets through in this direction."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        faults = self._cut.pop((source, target), 0) - 1
        if faults > 0:
            self._cut[source, target] = faults

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut

    def heal(self, profile: NetworkProfile) -> None:
        """Everything works from now on."""
        self._cut.clear()
        self.profile = profile


class Process(Protocol):
    """The process at the client's end: it may be frozen or dead when something arrives."""

    @property
    def name(self) -> str: ...

    def run(self, call: Callable[..., None], *args: Any) -> None: ...


class Server(Protocol):
    """The broker at the other end."""

    def receive(self, connection: Connection, epoch: int, number: int, request: Request) -> None: ...

    def hung_up(self, connection: Connection, epoch: int) -> None: ...


OnAnswer = Callable[[Answer], None]
OnFailure = Callable[[str], None]


class Connection:
    """A client's connection to the broker: questions go out with a number, answers come back with it.

    A question that is not answered in time costs the whole connection, as with real clients: whatever else was under
    way on it fails too, and nothing of it arrives later.
    """

    def __init__(self, network: Network, process: Process, server: Server, lane: str) -> None:
        self._network = network
        self._process = process
        self._server = server
        self.lane = lane
        self.epoch = 0
        self._number = 0
        self._pending: dict[int, tuple[OnAnswer, OnFailure, Timer]] = {}

    @property
    def client(self) -> str:
        return self._process.name

    @property
    def pending(self) -> int:
        return len(self._pending)

    def ask(self, request: Request, timeout_ms: float, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        self._number = number = self._number + 1
        network, process = self._network, self._process
        timer = network.clock.after(timeout_ms, process.run, self._timed_out, number)
        self._pending[number] = (on_answer, on_failure, timer)
        network.carry(process.name, BROKER, self.lane, self._server.receive, self, self.epoch, number, request)

    def answer(self, epoch: int, number: int, answer: Answer) -> None:
        """The broker answers; called at the broker's end."""
        process = self._process
        self._network.carry(BROKER, process.name, self.lane, process.run, self._answered, epoch, number, answer)

    def broken(self, epoch: int, reason: str) -> None:
        """The broker's end is gone; the client hears of it if the network lets it."""
        self._network.carry(BROKER, self._process.name, self.lane, self._process.run, self._broken, epoch, reason)

    def close(self, reason: str) -> None:
        """Hang up at the client's end. All that is under way fails."""
        old = self.epoch
        self.epoch += 1
        failed, self._pending = self._pending, {}
        self._network.carry(self._process.name, BROKER, self.lane, self._server.hung_up, self, old)
        for _, on_failure, timer in failed.values():
            timer.cancel()
            on_failure(reason)

    def drop(self) -> None:
        """The process at the client's end has died: its system hangs up, and nobody is told."""
        for _, _, timer in self._pending.values():
            timer.cancel()
        self._pending = {}
        self._network.carry(self._process.name, BROKER, self.lane, self._server.hung_up, self, self.epoch)
        self.epoch += 1

    def _answered(self, epoch: int, number: int, answer: Answer) -> None:
        waiting = self._pending.pop(number, None) if epoch == self.epoch else None
        if waiting is not None:
            on_answer, _, timer = waiting
            timer.cancel()
            on_answer(answer)

    def _timed_out(self, number: int) -> None:
        if number in self._pending:
            self.close("no answer in time")

    def _broken(self, epoch: int, reason: str) -> None:
        if epoch == self.epoch:
            self.close(reason)
