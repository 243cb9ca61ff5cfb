"""What the small programs have in common: their names, and how they begin and end.

A program gets a `Run` in a fresh world and leaves notes; what both classes note must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dropin_happenings import prepare
from dropin_kinds import KINDS
from dropin_outcome import raised
from dropin_run import Run

Program = Callable[[Run], None]
PROGRAMS: dict[str, Program] = {}


RACKS: dict[str, int] = {}
"""For programs that need a world of several brokers: how many."""


def program(function: Program) -> Program:
    PROGRAMS[_name(function)] = function
    return function


def on_brokers(count: int) -> Callable[[Program], Program]:
    """The program needs a world of so many brokers."""

    def noted(function: Program) -> Program:
        RACKS[_name(function)] = count
        return function

    return noted


def _name(function: Program) -> str:
    return f"program/{function.__name__.replace('_', '-')}"


def ready(run: Run, **settings: Any) -> None:
    """A topic with records, a consumer that subscribes to it, everything read."""
    prepare(run)
    run.open(**settings)
    if not run.closed:
        run.until(run.all_done, "every record")


def finish(run: Run) -> None:
    run.close()
    if run.partner is not None:
        run.partner.leave()
    if run.world.embedded:
        run.world.broker.faults.clear()
    run.look()
    run.sum_up()


def made(run: Run, **settings: Any) -> None:
    """Whether such a configuration makes a consumer."""
    name = " ".join(f"{key}={getattr(value, '__name__', repr(value))}" for key, value in settings.items())
    try:
        consumer = KINDS[run.kind](run.config(**settings))
    except BaseException as error:
        run.note("made", f"{name} raises {raised(error)}")
    else:
        consumer.close()
        run.note("made", f"{name} ok")
