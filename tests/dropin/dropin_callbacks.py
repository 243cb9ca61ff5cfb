"""What a program's callbacks do: the second of the three things that are crossed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import confluent_kafka as ck
from dropin_outcome import Partition
from dropin_run import Run

Action = Callable[[Run, Any, list[ck.TopicPartition], str], None]
"""run, the consumer that was given, partitions, the callback's name"""


@dataclass(frozen=True, slots=True)
class Callbacks:
    name: str
    actions: dict[str, Action] = field(default_factory=dict)
    given: tuple[str, ...] = ("on_assign", "on_revoke", "on_lost")
    reads: bool = True
    """Whether a program with these gets its records at all."""
    misused: str | None = None
    """The strategy under which confluent refuses what they do, and then has nothing to read."""

    def gets_records(self, strategy: str) -> bool:
        return self.reads and self.misused != strategy

    def of(self, run: Run) -> dict[str, Callable[..., None]]:
        return {name: _noting(run, name, self.actions.get(name)) for name in self.given}


def _noting(run: Run, name: str, action: Action | None) -> Callable[..., None]:
    """A callback that notes itself. An empty list is a round that changed nothing: how many there are is chance."""

    def called(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        if not partitions:
            return
        named = _named(partitions)
        run.held = run.held | set(named) if name == "on_assign" else run.held - set(named)
        run.note("callbacks", f"{name} {{}}", named)
        if action is not None:
            action(run, consumer, partitions, name)

    return called


def _named(partitions: list[ck.TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]


def _at(partitions: list[ck.TopicPartition], offset: int) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(each.topic, each.partition, offset) for each in partitions]


ELSEWHERE = 2
"""Where a callback starts reading instead: neither the beginning nor what is committed."""


def _assign(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("assign", lambda: consumer.assign(partitions), where=where)


def _assign_at(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("assign", lambda: consumer.assign(_at(partitions, ELSEWHERE)), where=where)


def _incremental(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("incremental_assign", lambda: consumer.incremental_assign(partitions), where=where)


def _incremental_at(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    wanted = _at(partitions, ELSEWHERE)
    run.call("incremental_assign", lambda: consumer.incremental_assign(wanted), where=where)


def _incremental_unassign(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("incremental_unassign", lambda: consumer.incremental_unassign(partitions), where=where)


def _unassign(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("unassign", consumer.unassign, where=where)


def _commit_sync(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("commit()", lambda: consumer.commit(asynchronous=False), where=where)


def _commit_async(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("commit()", lambda: consumer.commit(asynchronous=True), where=where)


def _commit_offsets(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    """The usual way: what was done of these partitions, before they go."""
    wanted = _done(run, partitions)
    run.call("commit(offsets)", lambda: consumer.commit(offsets=wanted, asynchronous=False), where=where)


def _store(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    wanted = _done(run, partitions)
    run.call("store_offsets", lambda: consumer.store_offsets(offsets=wanted), where=where)


def _done(run: Run, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
    return [
        ck.TopicPartition(topic, number, run.last[topic, number] + 1)
        for topic, number in _named(partitions)
        if (topic, number) in run.last
    ]


def _seek(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    for each in _at(partitions, ELSEWHERE):
        run.call("seek", partial(consumer.seek, each), where=where)


def _pause(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("pause", lambda: consumer.pause(partitions), where=where)


def _assign_paused(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    """The usual way to begin later: what is assigned can be paused, and nothing of it is read."""
    _assign(run, consumer, partitions, where)
    _pause(run, consumer, partitions, where)


def _incremental_paused(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    _incremental(run, consumer, partitions, where)
    _pause(run, consumer, partitions, where)


def _position(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    found = run.call("position", lambda: consumer.position(partitions), where=where)
    for each in found or []:
        run.note("answers", f"{where} position of {{}} {each.offset}", [(each.topic, each.partition)])


def _committed(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    found = run.call("committed", lambda: consumer.committed(partitions, timeout=3), where=where)
    for each in found or []:
        run.note("answers", f"{where} committed of {{}} {each.offset}", [(each.topic, each.partition)])


class Told(Exception):
    """What a callback raises."""


def _raise(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    raise Told(where)


def _interrupt(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    raise KeyboardInterrupt


def _close(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("close", consumer.close, where=where)


def _unsubscribe(run: Run, consumer: Any, partitions: list[ck.TopicPartition], where: str) -> None:
    run.call("unsubscribe", consumer.unsubscribe, where=where)


def _one(where: str, name: str, action: Action, *, reads: bool = True, misused: str | None = None) -> Callbacks:
    return Callbacks(f"{where}={name}", {where: action}, reads=reads, misused=misused)


COOPERATIVE, EAGER = "", "range"


CALLBACKS = {
    each.name: each
    for each in (
        Callbacks("none", given=()),
        Callbacks("nothing"),
        Callbacks("no-on_lost", given=("on_assign", "on_revoke")),
        _one("on_assign", "assign", _assign, misused=COOPERATIVE),
        _one("on_assign", "assign-at", _assign_at, misused=COOPERATIVE),
        _one("on_assign", "incremental_assign", _incremental, misused=EAGER),
        _one("on_assign", "incremental_assign-at", _incremental_at, misused=EAGER),
        _one("on_assign", "assign-pause", _assign_paused, reads=False, misused=COOPERATIVE),
        _one("on_assign", "incremental_assign-pause", _incremental_paused, reads=False, misused=EAGER),
        _one("on_assign", "seek", _seek),
        _one("on_assign", "pause", _pause),
        _one("on_assign", "position", _position),
        _one("on_assign", "committed", _committed),
        _one("on_assign", "commit", _commit_sync),
        _one("on_assign", "raise", _raise),
        _one("on_assign", "interrupt", _interrupt),
        _one("on_assign", "close", _close, reads=False),
        _one("on_assign", "unsubscribe", _unsubscribe, reads=False),
        _one("on_revoke", "commit-sync", _commit_sync),
        _one("on_revoke", "commit-async", _commit_async),
        _one("on_revoke", "commit-offsets", _commit_offsets),
        _one("on_revoke", "store_offsets", _store),
        _one("on_revoke", "incremental_unassign", _incremental_unassign, misused=EAGER),
        _one("on_revoke", "unassign", _unassign, misused=COOPERATIVE),
        _one("on_revoke", "seek", _seek),
        _one("on_revoke", "pause", _pause),
        _one("on_revoke", "position", _position),
        _one("on_revoke", "committed", _committed),
        _one("on_revoke", "raise", _raise),
        _one("on_revoke", "interrupt", _interrupt),
        _one("on_revoke", "close", _close),
    )
}
