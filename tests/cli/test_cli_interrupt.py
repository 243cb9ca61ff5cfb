"""A signal that asks a run to end is heard, wherever it strikes."""

from __future__ import annotations

import signal

import pytest

from holdfast.cli.common import Interrupt
from holdfast.ui.serving import PageServer, listen


class StruckWhileCollected:
    """Python prints what is raised in here, and drops it. Each import ends with such a call."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_strikes_where_python_drops_exceptions_is_heard() -> None:
    """Seen once: `holdfast demo --live` went on after SIGTERM. Its handler raised SystemExit; nobody got it."""
    server = PageServer(listen("127.0.0.1", 0))
    with Interrupt() as interrupt:
        interrupt.tells(server.end)
        struck = StruckWhileCollected()
        del struck
        assert interrupt.asked()
        server.serve_until_ended()
        with pytest.raises(SystemExit) as ended:
            interrupt.exit_if_asked()
    assert ended.value.code == 128 + signal.SIGTERM


def test_who_is_told_late_is_told_at_once() -> None:
    told: list[str] = []
    with Interrupt() as interrupt:
        interrupt.exit_if_asked()
        signal.raise_signal(signal.SIGINT)
        interrupt.tells(lambda: told.append("end"))
    assert told == ["end"]


def test_a_run_with_processes_of_its_own_is_not_ended_by_a_second_signal() -> None:
    """Seen once: `timeout` passed on a signal that the demo had got already, and three Sparks were left behind."""
    with Interrupt(second_ends=False) as interrupt:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.asked()
