"""`holdfast groups check`: watches a group for a while and says whether it is healthy."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    ask,
    client_settings,
)
from holdfast.cli.groups_shown import unknown_group
from holdfast.model import HoldfastError
from holdfast.observe.health import Answer, Health, Verdict, judge
from holdfast.observe.history import History
from holdfast.observe.latency import CAUTION, group_settings, latency_rows
from holdfast.observe.rows import as_json, table

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster
    from holdfast.net.errors import NetError
    from holdfast.observe.snapshot import GroupSnapshot

LOOK_S = 0.5
"""Between two looks of `check`. Most rebalances of an unhealthy group take longer."""

ASKED_EVERY_S = 0.05
"""How often to check whether to stop."""

GIVE_UP_S = 0.5
"""How long to wait for a cancelled look to end."""

T = TypeVar("T")

Looks = dict[str, "GroupSnapshot | NetError"]


async def looks(
    cluster: Cluster, groups: Sequence[str], *, every_s: float, for_s: float | None, stopped: Callable[[], bool]
) -> AsyncIterator[Looks]:
    """Look at the groups every `every_s` seconds; at least once, unless stopped before. A stop cancels the running
    look, which could take long if the brokers are gone. Without `groups`, look at all of consumers that exist at the
    time; if they can't be listed, at those listed before."""
    from holdfast.net.group_snapshots import read_groups

    loop = asyncio.get_running_loop()
    began = due = loop.time()
    names: Sequence[str] | None = groups or None

    async def look() -> Looks:
        nonlocal names
        if not groups:
            names = await _listed(cluster, names)
        assert names is not None
        return await read_groups(cluster, names)

    while True:
        found = await _unless(stopped, look())
        if found is None:
            return
        yield found
        due = max(due + every_s, loop.time())
        if for_s is not None and due > began + for_s:
            return
        while loop.time() < due:
            if stopped():
                return
            await asyncio.sleep(min(ASKED_EVERY_S, max(0.0, due - loop.time())))


async def _listed(cluster: Cluster, before: Sequence[str] | None) -> Sequence[str]:
    from holdfast.net.admin_groups import GroupAdmin
    from holdfast.net.errors import NetError

    try:
        return [one.group for one in await GroupAdmin(cluster).list_groups() if one.of_consumers]
    except NetError as error:
        if before is None or not error.retriable:
            raise
        return before


async def _unless(stopped: Callable[[], bool], work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None if a stop came first, which cancels it."""
    task = asyncio.create_task(work)
    try:
        while not stopped():
            await asyncio.wait([task], timeout=ASKED_EVERY_S)
            if task.done():
                return task.result()
        return None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=GIVE_UP_S)


def check(
    group: Annotated[str, typer.Argument(help="The group.")],
    for_s: Annotated[float, typer.Option("--for", metavar="S", min=0.0, help="How long to watch it.")] = 12.0,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="The members' properties, to compare with low-latency ones."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Say whether a group is well: the health checklist, and if something is off, an investigation."""
    known = _read_settings(settings_file)
    history = History()
    with Interrupt() as interrupt:

        async def work(cluster: Cluster) -> dict[str, str]:
            if sys.stderr.isatty():
                print(f"Watching {group} for {for_s:g} s …", file=sys.stderr)
            async for look in looks(cluster, [group], every_s=LOOK_S, for_s=for_s, stopped=interrupt.asked):
                found = look[group]
                if isinstance(found, HoldfastError):
                    if history.last is None or not found.retriable:
                        raise unknown_group(group, found)
                    history.miss()
                else:
                    history.see(found, time.monotonic() * 1000)
            return await _broker_settings(cluster, history) if history.looks else {}

        told = ask(client_settings(bootstrap_server, command_config), work)
    if not history.looks:
        print(f"holdfast: Stopped before {group} was seen.", file=sys.stderr)
        raise typer.Exit(130)
    health = judge(history)
    rows = latency_rows({**group_settings(told), **known})
    if output is Output.JSON:
        print(json.dumps(_as_json(group, history, health, rows)))
    else:
        _show(group, health, rows)
    if health.findings:
        raise typer.Exit(1)


def _read_settings(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    from holdfast.net.config import read_properties

    return {str(key): str(value) for key, value in read_properties(file).items()}


async def _broker_settings(cluster: Cluster, history: History) -> dict[str, str]:
    """The group's own settings on the broker; only groups of the new protocol have them."""
    from holdfast.net.admin import GROUP_RESOURCE, Admin
    from holdfast.net.errors import NetError

    assert history.last is not None
    described = history.last.described
    if described.kind != "consumer":
        return {}
    try:
        found = await Admin(cluster).describe_settings(described.group, kind=GROUP_RESOURCE)
    except NetError:
        return {}  # unknown, for example without the permission to read them
    return {name: one.value for name, one in found.items() if one.value is not None}


def _show(group: str, health: Health, rows: Sequence[dict[str, str | None]]) -> None:
    print(f"Group {group}: {'well' if not health.findings else 'NOT well'}.")
    for title, answers in (("Checklist", health.checklist), ("Investigation", health.investigation)):
        if answers:
            print(f"\n{title}")
        for one in answers:
            print(f"  [{one.verdict}] {one.about}: {one.said}.")
            if one.do and one.verdict is not Verdict.FINE:
                print(f"      {one.do}")
    print("\nSettings for low latency")
    for line in table(rows):
        print(f"  {line}")
    print(f"  {CAUTION}")
    if not any(row["THIS-GROUP"] for row in rows):
        print("  The group's own are not known to a broker: give the members' file with --settings FILE.")


def _as_json(group: str, history: History, health: Health, rows: Sequence[dict[str, str | None]]) -> dict[str, Any]:
    def answers(found: tuple[Answer, ...]) -> list[dict[str, str]]:
        return [{"about": one.about, "verdict": one.verdict.lower(), "said": one.said, "do": one.do} for one in found]

    return {
        "group": group,
        "well": not health.findings,
        "watched_s": round(history.watched_ms / 1000, 1),
        "rebalances": history.total,
        "share_rebalancing": round(history.share, 3),
        "checklist": answers(health.checklist),
        "investigation": answers(health.investigation),
        "low_latency": [as_json(row) for row in rows],
    }
