"""`holdfast groups delete` and `delete-offsets`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

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
from holdfast.cli.groups_moved import Topics
from holdfast.cli.groups_refused import refusals, status
from holdfast.cli.groups_shown import unknown_group
from holdfast.model import HoldfastError, TopicPartition
from holdfast.observe.resetting import in_scope, parse_scope, without_offset
from holdfast.observe.rows import Row, as_json, table

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster
    from holdfast.net.errors import BrokerError

OFFSET_MISSING = "OFFSET_MISSING"

Missing = list[tuple[str, int | None]]
"""Named partitions without an offset; None instead of a partition stands for a whole topic."""


def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Which.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete groups that nobody is in, and their offsets with them. `export` keeps those."""

    async def work(cluster: Cluster) -> dict[str, BrokerError | None]:
        from holdfast.net.admin_groups import GroupAdmin

        return await GroupAdmin(cluster).delete_groups(groups)

    verdicts = ask(client_settings(bootstrap_server, command_config), work)
    deleted = [name for name, error in verdicts.items() if error is None]
    refused = {name: error for name, error in verdicts.items() if error is not None}
    if output is Output.JSON:
        errors = {name: error.code for name, error in refused.items()}
        print(json.dumps({"deleted": deleted, "errors": errors}, sort_keys=True))
    else:
        for name in deleted:
            print(f"Deleted group {name}.")
    for name, error in refused.items():
        show_error(_not_deleted(name, error))
    if refused:
        raise typer.Exit(1)


def _not_deleted(name: str, error: BrokerError) -> HoldfastError:
    if error.code == "NON_EMPTY_GROUP":
        do = "Stop its members first; `holdfast groups describe` shows them."
        return HoldfastError(error.code, f"The group {name} has members, so it was not deleted.", do)
    return unknown_group(name, error)


def delete_offsets(
    group: Annotated[str, typer.Argument(help="The group.")],
    topic: Topics = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Forget a group's offsets of topics that nobody in it is subscribed to."""
    try:
        scope = parse_scope(topic or [])
    except HoldfastError as error:
        wrong_use(error.code, error.what, error.do)
    if not scope:
        wrong_use("RESET_SCOPE", "Which partitions?", "Give --topic TOPIC[:0,1].")

    async def work(cluster: Cluster) -> tuple[dict[TopicPartition, BrokerError | None], Missing]:
        from holdfast.net.admin_groups import GroupAdmin
        from holdfast.net.group_snapshots import committed_offsets

        await GroupAdmin(cluster).describe_group(group)
        known, problems = await committed_offsets(cluster, group)
        if problems:
            code, _, what = problems[0].partition(": ")
            raise HoldfastError(code, what, "Nothing was deleted; ask for the right to read them.")
        wanted = [at for at in known if in_scope(at, scope)]
        if not wanted:
            do = "`holdfast groups describe` shows the offsets there are."
            raise HoldfastError("NOTHING_TO_RESET", f"The group {group} has no offset of these partitions.", do)
        return await GroupAdmin(cluster).delete_offsets(group, wanted), without_offset(scope, known)

    verdicts, missing = ask(client_settings(bootstrap_server, command_config), work)
    show_deleted(group, verdicts, missing, output=output)


def show_deleted(
    group: str, verdicts: Mapping[TopicPartition, BrokerError | None], missing: Missing, *, output: Output
) -> None:
    rows: list[Row] = [
        {"TOPIC": at.topic, "PARTITION": at.partition, "STATUS": status(error)}
        for at, error in sorted(verdicts.items())
    ]
    rows += [{"TOPIC": topic, "PARTITION": number, "STATUS": OFFSET_MISSING} for topic, number in missing]
    if output is Output.JSON:
        print(json.dumps([as_json(row) for row in rows]))
    else:
        for line in table(rows):
            print(line)
    refused = {at: error for at, error in verdicts.items() if error is not None}
    for refusal in refusals(group, refused, of=len(verdicts), done="deleted"):
        show_error(refusal)
    if missing:
        named = ", ".join(topic if number is None else f"{topic}:{number}" for topic, number in missing)
        do = "Check the names; `holdfast groups describe` shows the offsets there are."
        show_error(HoldfastError(OFFSET_MISSING, f"The group {group} has no offset of {named}.", do))
    if refused or missing:
        raise typer.Exit(1)
