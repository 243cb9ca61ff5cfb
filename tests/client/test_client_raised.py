"""librdkafka's callbacks, and a signal that arrives while it makes them."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.client.raised import Raised


def test_a_signal_before_a_callback_does_not_come_out_of_it() -> None:
    """Symptom: now and then Ctrl-C, or a handler that calls sys.exit(), came out of poll() and consume() as
    "SystemError: returned NULL without setting an exception" while no broker answered; a loop that goes on after an
    Exception was not to be stopped. Cause: Python handles a signal where a function begins, so before its own `try`,
    and confluent-kafka loses what a callback raises. Rule: what librdkafka calls is not written in Python."""
    heard: list[str] = []
    went_on: list[int] = []
    raised = Raised()
    callback = raised.guarded({"error_cb": heard.append})["error_cb"]
    interrupt = ctypes.pythonapi.PyErr_SetInterrupt  # as if Ctrl-C arrived; `map` stands for librdkafka, which is C too
    calls: list[Callable[[], Any]] = [interrupt, partial(callback, "down"), partial(went_on.append, 1)]
    with pytest.raises(KeyboardInterrupt):
        list(map(operator.call, calls))
        pytest.fail("it is handled here at the latest")
    assert went_on, "it came out of the callback"
    raised.call_back()
    assert heard == ["down"]


def test_what_a_callback_raises_waits_and_the_others_are_called() -> None:
    """Of several errors the first is kept, but for a Ctrl-C, which wins over an ordinary one."""
    heard: list[str] = []
    raised = Raised()

    def error_cb(error: str) -> None:
        heard.append(error)
        raise KeyboardInterrupt if error == "second" else ValueError(error)

    config = raised.guarded({"error_cb": error_cb, "stats_cb": heard.append, "client.id": "c"})
    for error in ("first", "second", "third"):
        config["error_cb"](error)
    config["stats_cb"]("figures")
    assert heard == [] and config["client.id"] == "c"
    raised.call_back()
    assert heard == ["first", "second", "third", "figures"]
    with pytest.raises(KeyboardInterrupt):
        raised.raise_first()
    raised.raise_first()


class Heard:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def log(self, *line: Any) -> None:
        self.lines.append(line)


LINE = (30, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "broker 1 is down\nand so are the others")


def test_a_signal_before_a_log_line_does_not_come_out_of_the_logger() -> None:
    """Symptom: with `logger=` one Ctrl-C in some 25 was lost while librdkafka had much to log. Cause: as above, the
    logger was called by confluent-kafka itself."""
    heard, raised = Heard(), Raised()
    went_on: list[int] = []
    log = raised.noting(heard).log
    interrupt = ctypes.pythonapi.PyErr_SetInterrupt
    calls: list[Callable[[], Any]] = [interrupt, partial(log, *LINE), partial(log, *LINE), partial(went_on.append, 1)]
    with pytest.raises(KeyboardInterrupt):
        list(map(operator.call, calls))
        pytest.fail("it is handled here at the latest")
    assert went_on and heard.lines == [], "it came out of the logger"
    raised.call_back()
    assert heard.lines == [LINE, LINE]


def test_what_a_logger_raises_costs_no_other_line() -> None:
    class Full(Heard):
        def log(self, *line: Any) -> None:
            super().log(*line)
            raise OSError("no space left")

    heard, raised = Full(), Raised()
    log = raised.noting(heard).log
    log(*LINE)
    log(*LINE)
    raised.call_back()
    assert heard.lines == [LINE, LINE]
    with pytest.raises(OSError, match="no space"):
        raised.raise_first()
