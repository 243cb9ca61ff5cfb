"""What happens to a program: the last of the three things that are crossed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dropin_partner import KillablePartner, Partner
from dropin_run import LIMIT_S, Run
from dropin_world import BATCH, PARTITIONS, World, embedded_world

from holdfast.wire.api import Api

KAFKAS_LEAST_SESSION_MS = 6_000
"""Kafka's group.min.session.timeout.ms: a shorter session is refused there."""

Step = Callable[[Run], None]


def prepare(run: Run) -> None:
    run.world.create(run.world.topic)
    run.world.produce(run.world.topic)


def _quiet(run: Run) -> None:
    """Nothing more happens."""


@dataclass(frozen=True, slots=True)
class Happening:
    """`prepare` comes before the consumer is made, `during` when it has read what was there, `closing` before close."""

    name: str
    during: Step = _quiet
    prepare: Step = prepare
    closing: Step = _quiet
    start: Step = Run.read
    world: dict[str, Any] = field(default_factory=dict)
    kafka: bool = True
    """Whether a real Kafka can do it."""
    group: bool = True
    """Whether it concerns members only."""
    settings: dict[str, Any] = field(default_factory=dict)
    chance: frozenset[str] = frozenset()
    """Aspects that vary from run to run on confluent's own class: they can't be compared."""

    @contextmanager
    def embedded(self, folder: Path) -> Iterator[World]:
        options: dict[str, Any] = {key: (folder if value == "folder" else value) for key, value in self.world.items()}
        with embedded_world(**options) as world:
            yield world


def play(run: Run, happening: Happening) -> None:
    """The program: read, let it happen, read on, close. What it leaves behind is noted when all faults are over."""
    happening.prepare(run)
    run.phase("start")
    run.open(**happening.settings)
    if not run.closed:
        happening.start(run)
    run.phase("during")
    if not run.closed:
        happening.during(run)
    run.phase("end")
    if run.partner is not None:
        run.partner.rest()
    if not run.closed:
        happening.closing(run)
    run.close()
    if run.partner is not None:
        run.partner.leave()
    if run.world.embedded:
        run.world.broker.faults.clear()
    run.look()
    run.sum_up()


# Others come and go


def _balanced(run: Run) -> bool:
    assert run.partner is not None
    mine = len(run.consumer.assignment()) if not run.closed else 0
    return mine > 0 and run.partner.held > 0 and mine + run.partner.held == PARTITIONS


def _alone(run: Run) -> bool:
    return len(run.consumer.assignment()) == PARTITIONS


def _come(run: Run) -> None:
    run.partner = Partner(run.kind, run.config(), run.topics, run.recorder)
    run.until(lambda: _balanced(run), "both to have their share")


def _join(run: Run) -> None:
    _come(run)
    run.phase("after")
    run.more()


def _leave(run: Run) -> None:
    _come(run)
    run.phase("after")
    run.more()
    assert run.partner is not None
    run.phase("later")
    run.partner.leave()
    run.until(lambda: _alone(run), "to have everything back")
    run.more()


def _kill(run: Run) -> None:
    session_ms = 2_000 if run.world.embedded else KAFKAS_LEAST_SESSION_MS
    config = run.config(**{"session.timeout.ms": session_ms})
    run.partner = KillablePartner(run.kind, config, run.topics, run.recorder)
    run.until(lambda: _balanced(run), "both to have their share", 2 * LIMIT_S)
    run.phase("later")
    run.partner.leave()
    run.until(lambda: _alone(run), "to have everything back", 2 * LIMIT_S)
    run.more()


def _resubscribe(run: Run) -> None:
    run.call("unsubscribe", run.consumer.unsubscribe)
    run.idle()
    run.note_committed()
    run.note("assigned", str(len(run.consumer.assignment())))
    run.phase("after")
    run.subscribe()
    run.until(lambda: _alone(run), "to have everything back")
    run.more()


def _unsubscribe(run: Run) -> None:
    run.call("unsubscribe", run.consumer.unsubscribe)
    run.idle()
    run.note("assigned", str(len(run.consumer.assignment())))
    run.world.produce(run.world.topic)
    run.idle()
    run.note_committed()


def _subscribe_anew(run: Run) -> None:
    """Subscribe to another topic without a word of the first."""
    other = f"{run.world.topic}-b"
    run.world.create(other)
    run.world.produce(other)
    run.topics = [other]
    run.subscribe()
    run.until(run.all_done, "every record of the other topic")
    run.note_committed()


# Topics


def _nothing_there(run: Run) -> None:
    """The topic does not exist. What is told of it, if anything, is waited for."""
    run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TOLD_S)


def _created_later(run: Run) -> None:
    prepare(run)
    run.phase("after")
    run.read()


def _deleted(run: Run) -> None:
    run.world.delete(run.world.topic)
    run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TOLD_S)
    run.idle()


def _grown(run: Run) -> None:
    run.world.grow(run.world.topic, PARTITIONS + 2)
    run.until(lambda: len(run.consumer.assignment()) == PARTITIONS + 2, "the new partitions")
    run.phase("after")
    run.world.produce(run.world.topic, PARTITIONS + 2, BATCH)
    run.read()


TOLD_S = 5.0
"""A look at the metadata comes every half second."""

_SOON = {"topic.metadata.propagation.max.ms": 500}
"""How long librdkafka gives a new topic before it calls it unknown: 30 s unless told."""


# Brokers


def _moved(run: Run) -> None:
    heard = run.world.broker.faults.call(
        Api.HEARTBEAT, lambda exchange: None, when=lambda exchange: exchange.client.node_id == 1
    )
    run.world.broker.move_coordinator(1)
    if not run.keeping.by_hand:
        run.until(lambda: heard.hits > 0, "a heartbeat at the new coordinator")
    run.more()


def _restarted(run: Run) -> None:
    run.world.broker.restart()
    run.more()


OTHERS = (
    Happening("close", group=False),
    Happening("read-on", during=Run.more, group=False),
    Happening("join", during=_join),
    Happening("leave", during=_leave),
    Happening("kill", during=_kill),
    Happening("resubscribe", during=_resubscribe),
    Happening("unsubscribe", during=_unsubscribe),
    Happening("subscribe-other", during=_subscribe_anew),
)

CLUSTER = (
    Happening("topic-missing", prepare=_quiet, start=_nothing_there, settings=_SOON, group=False),
    Happening("topic-later", prepare=_quiet, start=_nothing_there, during=_created_later, settings=_SOON),
    Happening("topic-deleted", during=_deleted, settings=_SOON),
    Happening("topic-grown", during=_grown),
    Happening("moved", during=_moved, world={"racks": 2}, kafka=False, group=False),
    Happening("restart", during=_restarted, world={"folder": "folder"}, kafka=False, group=False),
)
