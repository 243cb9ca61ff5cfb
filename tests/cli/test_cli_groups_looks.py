"""Looks at groups that follow each other: how they end, and what is kept of those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from holdfast.cli import groups_live
from holdfast.cli.common import Output
from holdfast.cli.groups_served import Watched
from holdfast.cli.groups_watched import Looks, looks
from holdfast.model import TopicPartition
from holdfast.net import group_snapshots
from holdfast.net.cluster import Cluster
from holdfast.net.errors import NetError
from holdfast.observe.history import History
from holdfast.observe.snapshot import DescribedGroup, GroupSnapshot, PartitionOffsets
from patience import PATIENCE_S

NO_CLUSTER = cast(Cluster, None)
GROUP = GroupSnapshot(
    described=DescribedGroup(
        group="billing", state="Stable", protocol_type="consumer", protocol="range", coordinator=("10.0.0.9", 9092)
    ),
    offsets={TopicPartition("orders", 0): PartitionOffsets(committed=5, end=9)},
)


def test_a_stop_gives_up_a_look_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """While brokers were gone each look took longer than --every, nobody asked for a signal: Ctrl-C did nothing."""
    stopped, given_up = False, False

    async def silent(*_: Any) -> Looks:
        nonlocal stopped, given_up
        stopped = True  # the signal comes while it waits for an answer
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up = True
            raise
        raise AssertionError

    async def run() -> list[Looks]:
        async with asyncio.timeout(PATIENCE_S):
            every = looks(NO_CLUSTER, ["billing"], every_s=1.0, for_s=None, stopped=lambda: stopped)
            return [one async for one in every]

    monkeypatch.setattr(group_snapshots, "read_groups", silent)
    assert asyncio.run(run()) == [] and given_up


def test_a_stop_is_asked_for_where_every_look_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    async def slow(*_: Any) -> Looks:
        nonlocal count
        count += 1
        await asyncio.sleep(0.01)
        return {"billing": GROUP}

    async def run() -> list[Looks]:
        async with asyncio.timeout(PATIENCE_S):
            every = looks(NO_CLUSTER, ["billing"], every_s=0.0, for_s=None, stopped=lambda: count >= 2)
            return [one async for one in every]

    monkeypatch.setattr(group_snapshots, "read_groups", slow)
    assert len(asyncio.run(run())) == 2


def failed(code: str) -> NetError:
    return NetError(code, "It could not be read.", "Look again.", retriable=True)


def test_figures_end_with_a_failed_look_and_are_back_with_the_next_that_works() -> None:
    watched = Watched()
    lag = 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 4'

    watched.take({"billing": GROUP}, 0.0)
    assert lag in watched.text("")
    watched.take({"billing": failed("COORDINATOR_NOT_AVAILABLE")}, 1_000.0)
    assert lag not in watched.text("") and 'holdfast_group_rebalances_total{group="billing"} 0' in watched.text("")
    assert 'holdfast_group_failed_looks_total{group="billing"} 1' in watched.text("")
    watched.take({"billing": GROUP}, 2_000.0)
    assert lag in watched.text("")


def test_the_time_around_a_failed_look_is_no_rebalance() -> None:
    watched = Watched()
    preparing = replace(GROUP, described=replace(GROUP.described, state="PreparingRebalance"))

    watched.take({"billing": preparing}, 0.0)
    watched.take({"billing": failed("COORDINATOR_NOT_AVAILABLE")}, 1_000.0)
    watched.take({"billing": GROUP}, 600_000.0)

    assert 'holdfast_group_rebalancing_seconds_total{group="billing"} 0\n' in watched.text("")


def test_a_group_that_is_not_there_any_more_has_no_history() -> None:
    watched = Watched()
    watched.take({"billing": GROUP}, 0.0)

    watched.take({"billing": failed("GROUP_ID_NOT_FOUND")}, 1_000.0)

    assert "rebalances_total" not in watched.text("")
    assert 'holdfast_group_failed_looks_total{group="billing"} 1' in watched.text(""), "it was asked for by its name"
    watched.take({}, 2_000.0)
    assert "billing" not in watched.text("")


def test_a_deleted_group_has_no_row_in_the_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last row stayed, Stable and with all its members, for as long as the table was shown; and a later group of
    its name went on with its rebalances. `serve` had a rule of its own for it."""
    missing = failed("GROUP_ID_NOT_FOUND")
    each: list[Looks] = [{"billing": GROUP, "old": GROUP}, {"billing": GROUP}, {"billing": missing}, {"billing": GROUP}]
    rows: list[dict[str, int]] = []

    async def looked(*_: Any, **__: Any) -> AsyncIterator[Looks]:
        for one in each:
            yield one

    class Table(groups_live.Live):
        def looked(self, histories: dict[str, History]) -> None:
            rows.append({name: history.looks for name, history in histories.items()})
            super().looked(histories)

    monkeypatch.setattr(groups_live, "looks", looked)
    monkeypatch.setattr(groups_live, "ask", lambda _, work: asyncio.run(work(NO_CLUSTER)))
    monkeypatch.setattr(groups_live, "Lines", lambda as_json: Table())

    groups_live.watch(["billing"], {}, every_s=1.0, for_s=None, output=Output.TABLE)
    assert rows == [{"billing": 1, "old": 1}, {"billing": 2}, {}, {"billing": 1}]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["list", "--state", "Stabel"], "GROUP_STATE_UNKNOWN"),
        (["describe", "--every", "2"], "WATCH_OPTIONS"),
        (["describe", "--for", "2"], "WATCH_OPTIONS"),
        (["describe", "--watch", "--members"], "WATCH_OPTIONS"),
        (["describe", "--watch", "--verbose"], "WATCH_OPTIONS"),
        (["serve", "--port", "0", "--host", ""], "METRICS_HOST"),
    ],
)
def test_what_would_be_ignored_or_find_nothing_is_refused(options: list[str], code: str) -> None:
    """`list --state Stabel` printed nothing and ended with 0, as if no group were Stable."""
    from typer.testing import CliRunner

    from holdfast.cli.groups import app

    refused = CliRunner().invoke(app, [*options, "--bootstrap-server", "127.0.0.1:1"])

    assert refused.exit_code == 2 and f"holdfast: {code}: " in refused.stderr, refused.output


def test_a_cluster_without_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from holdfast.cli import groups_shown
    from holdfast.cli.groups import app

    monkeypatch.setattr(groups_shown, "ask", lambda *_: {})
    for command in ("list", "describe"):
        found = CliRunner().invoke(app, [command, "--bootstrap-server", "127.0.0.1:1"])

        assert (found.exit_code, found.stdout, found.stderr) == (0, "", "There are no groups.\n")
