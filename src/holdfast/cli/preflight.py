"""`holdfast preflight GROUP --to ASSIGNOR`: may a live group take its next step to another assignor?

It reads the group and says which bounce of the migration it has reached, which members are in the way, and what to do.
Exit codes: 0 the next step is safe, 1 it is not (or that can't be told), 2 wrong use. `docs/consumer.md` has the steps;
`client.operate.migration` decides.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import BootstrapServer, CommandConfig, Output, OutputForm, ask, client_settings, wrong_use

if TYPE_CHECKING:
    from holdfast.client.operate.migration import Assessment, Standing
    from holdfast.net.cluster import Cluster

STAGES = {
    "empty": "nobody is in the group",
    "before-first": "before the first bounce",
    "in-first": "in the first bounce",
    "after-first": "the first bounce is through, everybody lists both",
    "in-second": "in the second bounce",
    "done": "done",
}


def preflight(
    group: Annotated[str, typer.Argument(help="The group to look at.")],
    to: Annotated[str, typer.Option("--to", metavar="ASSIGNOR", help="The new assignor, such as cooperative-sticky.")],
    bounce: Annotated[
        int | None, typer.Option(min=1, max=2, help="Ask about this bounce; otherwise about the next one.")
    ] = None,
    no_probe: Annotated[
        bool,
        typer.Option(
            "--no-probe", help="Don't ask the coordinator what all members list: members of other clients stay unknown."
        ),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Say whether a live group may take its next step to another assignor."""
    from holdfast.client.operate.migration import BUILT_IN, look

    if to not in BUILT_IN:
        wrong_use("UNKNOWN_STRATEGY", f"There is no assignor named {to!r}.", f"Use one of {', '.join(BUILT_IN)}.")

    async def work(cluster: Cluster) -> Assessment:
        return await look(cluster, group, to, probe=not no_probe, bounce=bounce)

    found = ask(client_settings(bootstrap_server, command_config), work)
    if output is Output.JSON:
        print(json.dumps(_as_json(found), sort_keys=True))
    else:
        _show(found)
    if not found.safe:
        raise typer.Exit(1)


def _show(found: Assessment) -> None:
    print(f"Group {found.group}: {found.state}, runs {found.in_force or 'nothing'}, to {found.to}.")
    print(f"Stage: {STAGES[found.stage]}.")
    for one in found.members:
        lists = ", ".join(one.lists) if one.lists is not None else "does not say"
        print(f"  {_name(one)}  lists: {lists}")
    for blocked in found.blocking:
        print(f"  in the way: {_name(blocked.member)} {blocked.why}.")
    step = "" if found.next_bounce is None else f" (bounce {found.next_bounce})"
    print(f"Next step{step}: {'safe' if found.safe else 'NOT safe'}. {found.do}")


def _name(member: Standing) -> str:
    return f"{member.instance_id or member.client_id or '-'} ({member.member_id}, {member.host})"


def _as_json(found: Assessment) -> dict[str, Any]:
    return {
        "group": found.group,
        "to": found.to,
        "state": found.state,
        "protocol": found.in_force,
        "stage": found.stage,
        "bounce": found.bounce,
        "next_bounce": found.next_bounce,
        "safe": found.safe,
        "do": found.do,
        "blocking": [{"member": one.member.member_id, "why": one.why} for one in found.blocking],
        "unsaid": list(found.unsaid),
        "members": [
            {
                "member": one.member_id,
                "client_id": one.client_id,
                "instance_id": one.instance_id,
                "host": one.host,
                "lists": None if one.lists is None else list(one.lists),
            }
            for one in found.members
        ],
    }
