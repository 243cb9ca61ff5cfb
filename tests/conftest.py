"""Fixtures that the whole suite shares. A missing part (Java, Kafka's jars) fails the test that needs it, loudly."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from holdfast.testing.kafka import RealKafka

# Timings never decide a test: on a busy machine an example may take long and be right.
hypothesis.settings.register_profile("holdfast", deadline=None)
hypothesis.settings.load_profile("holdfast")


class NamesFailures:
    """Names a failing test when it fails. A run takes minutes, and one that is cut short would tell only how many."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"failed in {report.when}: {report.nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background like this, and all our children would ignore a Ctrl-C, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NamesFailures(config))


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    """One real Apache Kafka for the whole run. Tests use topics and groups of their own and leave it running."""
    with RealKafka() as running:
        yield running
