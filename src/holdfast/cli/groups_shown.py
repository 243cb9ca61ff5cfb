"""`holdfast groups list` and `describe`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Output,
    OutputForm,
    ask,
    client_settings,
    show_error,
    wrong_use,
)
from holdfast.model import ErrorCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster
    from holdfast.net.errors import NetError
    from holdfast.observe.snapshot import GroupSnapshot, ListedGroup


NO_GROUPS = "There are no groups."

EVERY_S = 1.0
"""Between two looks of --watch."""


def list_groups(
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only groups in this state. Repeat it.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the groups with their type and state."""
    from holdfast.observe.rows import as_json, listed_rows, table

    wanted = _states(state or [])

    async def work(cluster: Cluster) -> tuple[ListedGroup, ...]:
        from holdfast.net.admin_groups import GroupAdmin

        return await GroupAdmin(cluster).list_groups()

    found = ask(client_settings(bootstrap_server, command_config), work)
    rows = listed_rows(one for one in found if not wanted or one.state.lower() in wanted)
    if not rows:
        print("There are no groups in this state." if found else NO_GROUPS, file=sys.stderr)
    if output is Output.JSON:
        print(json.dumps([as_json(row) for row in rows]))
        return
    for line in table(rows):
        print(line)


def _states(named: list[str]) -> set[str]:
    """In lower case. An unknown one is refused: it would match nothing, which looks like a valid answer."""
    from holdfast.observe.snapshot import STATES

    known = {one.lower() for one in STATES}
    for one in named:
        if one.lower() not in known:
            wrong_use("GROUP_STATE_UNKNOWN", f"No group is ever {one!r}.", f"Name some of {', '.join(STATES)}.")
    return {one.lower() for one in named}


def describe(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Which; all if none is named.")] = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Only the offsets and their lag.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Only the members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Only the state.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Epochs, assignments and racks too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="A live table: state, lag, rebalances, who moved.")] = False,
    every_s: Annotated[
        float | None,
        typer.Option("--every", metavar="S", min=0.05, help="With --watch: how often to look.  [default: 1]"),
    ] = None,
    for_s: Annotated[
        float | None, typer.Option("--for", metavar="S", min=0.0, help="With --watch: for how long; else until Ctrl-C.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show groups: state, members, and offsets with their lag. All three, unless you choose."""
    parts = {"--offsets": offsets, "--members": members, "--state": state, "--verbose": verbose}
    unfit = [name for name, given in parts.items() if given and watch]
    if unfit:
        wrong_use("WATCH_OPTIONS", f"--watch has a table of its own, without {unfit[0]}.", "Leave one of the two out.")
    if not watch and (every_s is not None or for_s is not None):
        wrong_use("WATCH_OPTIONS", "--every and --for say how to watch.", "Give --watch too, or leave them out.")
    settings = client_settings(bootstrap_server, command_config)
    if watch:
        from holdfast.cli.groups_live import watch as watch_groups

        watch_groups(groups or [], settings, every_s=every_s or EVERY_S, for_s=for_s, output=output)
        return

    async def work(cluster: Cluster) -> dict[str, GroupSnapshot | NetError]:
        from holdfast.net.admin_groups import GroupAdmin
        from holdfast.net.group_snapshots import read_groups

        listed = [] if groups else [one for one in await GroupAdmin(cluster).list_groups() if one.of_consumers]
        names = groups or [one.group for one in listed]
        return await read_groups(cluster, names)

    found = ask(settings, work)
    if not found:
        print(NO_GROUPS, file=sys.stderr)
    shown = _Shown(offsets=offsets, members=members, state=state, verbose=verbose)
    read = [one for one in found.values() if not isinstance(one, HoldfastError)]
    if output is Output.JSON:
        print(json.dumps([shown.as_json(one) for one in read]))
    else:
        for line in shown.lines(read):
            print(line)
    failed = {name: one for name, one in found.items() if isinstance(one, HoldfastError)}
    for name, error in failed.items():
        show_error(unknown_group(name, error))
    if failed:
        raise typer.Exit(1)


def unknown_group(name: str, error: HoldfastError) -> HoldfastError:
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND.name:
        return HoldfastError(error.code, f"There is no group {name}.", "`holdfast groups list` shows those there are.")
    return error


class _Shown:
    """Which parts of groups are shown, and in which form."""

    def __init__(self, *, offsets: bool, members: bool, state: bool, verbose: bool) -> None:
        everything = not (offsets or members or state)
        self._offsets = offsets or everything
        self._members = members or everything
        self._state = state or everything
        self._verbose = verbose

    def lines(self, found: list[GroupSnapshot]) -> list[str]:
        """A table for each part, groups below each other, an empty line between the tables."""
        from holdfast.observe.rows import member_rows, offset_rows, state_row, table

        blocks: list[list[str]] = []
        if self._state:
            blocks.append(table([state_row(one, verbose=self._verbose) for one in found]))
        if self._members:
            blocks.append(table([row for one in found for row in member_rows(one.described, verbose=self._verbose)]))
        for one in found if self._offsets else []:  # a table for each group: only one may have a problem column
            blocks.append(table(offset_rows(one, verbose=self._verbose)))
        blocks.append([f"{one.described.group}: {problem}" for one in found for problem in one.problems])
        lines: list[str] = []
        for block in filter(None, blocks):
            lines += ["", *block] if lines else block
        return lines

    def as_json(self, one: GroupSnapshot) -> dict[str, Any]:
        from holdfast.observe.rows import as_json, member_rows, offset_rows, state_row

        found: dict[str, Any] = {"group": one.described.group, "type": one.described.kind}
        if self._state:
            host, port = one.described.coordinator
            found |= as_json(state_row(one, verbose=True))
            found["member_count"] = found.pop("members")
            found["coordinator"] = {"host": host, "port": port, "id": one.coordinator_id}
        if self._members:
            found["members"] = [
                _without_group(as_json(row))
                | {"assigned": [[at.topic, at.partition] for at in sorted(member.assigned)]}
                for row, member in zip(member_rows(one.described, verbose=True), one.described.members, strict=True)
            ]
        if self._offsets:
            found["offsets"] = [_without_group(as_json(row)) for row in offset_rows(one, verbose=True)]
        if one.problems:
            found["problems"] = list(one.problems)
        return found


def _without_group(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("group", "current_assignment", "target_assignment")}
