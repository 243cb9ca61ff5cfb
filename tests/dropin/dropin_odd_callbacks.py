"""Programs whose callbacks do what few do: commit where statistics, errors or commits are told, take one of several."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
from dropin_happenings import prepare
from dropin_kinds import KINDS
from dropin_run import TRY_S, Run
from dropin_stories import finish, program, ready


def _once(run: Run, where: str, calls: dict[str, Any]) -> Any:
    """A callback that makes these calls the first time it is called after everything was read."""
    told: list[str] = []

    def called(*_: Any) -> None:
        if told or not run.all_done():
            return
        told.append(where)
        for name, call in calls.items():
            run.call(name, call, where=where)

    return called, lambda: bool(told)


def _asks(run: Run) -> dict[str, Any]:
    partitions = [ck.TopicPartition(run.world.topic, 0)]
    return {
        "commit later": lambda: run.consumer.commit(asynchronous=True),
        "commit": lambda: run.consumer.commit(asynchronous=False),
        "committed": lambda: run.consumer.committed(partitions, timeout=3),
        "position": lambda: run.consumer.position(partitions),
        "pause": lambda: run.consumer.pause(partitions),
        "resume": lambda: run.consumer.resume(partitions),
        "poll": lambda: run.consumer.poll(0),
    }


@program
def p18_a_commit_where_statistics_are_told(run: Run) -> None:
    """stats_cb is called inside poll(): who commits there must not wait for the poll."""
    called, told = _once(run, "stats_cb", _asks(run))
    ready(run, stats_cb=called, **{"statistics.interval.ms": 100, "enable.auto.commit": False})
    run.until(told, "statistics")
    finish(run)


@program
def p18_a_commit_where_a_commit_is_told(run: Run) -> None:
    """The second commit of a chain is made when the first is told."""
    prepare(run)
    called, told = _once(run, "on_commit", _asks(run))
    run.consumer = KINDS[run.kind](run.config(on_commit=called, **{"enable.auto.commit": False}))
    run.consumer.subscribe([run.world.topic])
    run.until(run.all_done, "every record")
    run.call("commit later", lambda: run.consumer.commit(asynchronous=True))
    run.until(told, "on_commit")
    finish(run)


@program
def p18_on_assign_that_takes_one_of_several(run: Run) -> None:
    """incremental_assign() of the first partition only: the rest belongs to the member too."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())

    def takes_one(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        first = [each for each in partitions if each.partition == 0]
        run.call("incremental_assign", lambda: consumer.incremental_assign(first), where="on_assign")

    run.consumer.subscribe([run.world.topic], on_assign=takes_one)
    run.until(run.all_done, "every record", TRY_S)
    finish(run)


@program
def p18_on_revoke_that_gives_up_one_of_several(run: Run) -> None:
    """incremental_unassign() of the first partition only, when all are revoked: the rest goes all the same."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())

    def gives_one(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        first = [each for each in partitions if each.partition == 0]
        run.call("incremental_unassign", lambda: consumer.incremental_unassign(first), where="on_revoke")

    run.consumer.subscribe([run.world.topic], on_revoke=gives_one)
    run.until(run.all_done, "every record")
    run.call("unsubscribe", run.consumer.unsubscribe)
    run.idle()
    run.note("answers", f"assigned {len(run.consumer.assignment())}")
    finish(run)
