"""The options of `holdfast sim`, so that the command itself fits a screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

EVENT_HELP = (
    "What happens: kind[:who][=n]@time[+duration], separated by commas. Kinds: join, leave, drain, crash, "
    "machine-crash, restart, bounce, hang, freeze, twin, cut, mute, deafen, subscribe, unsubscribe, enforce, slow, "
    "batch, misplan, grow, create, delete, broker-crash."
)

COMPARED = "join@10s,leave:c0@25s,join@40s"
"""The events of `--compare` without --event: a group that nobody disturbs has no pauses in any protocol."""

BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "--kind": ("--scene", "--svg"),
    "--at": ("--svg",),
    "--seeds": ("--swarm",),
    "--seed-start": ("--swarm",),
    "--jobs": ("--swarm",),
}
"""Options that only mean something beside one of others."""

EXCLUDES: Mapping[str, tuple[str, ...]] = {
    "--swarm": ("--world", "--scene", "--svg", "--compare", "--kind"),
    "--world": ("--scene", "--svg", "--compare", "--kind"),
    "--svg": ("--protocol",),
    "--compare": ("--protocol",),
}
"""Options that say what to do, and others that would say something else: `--svg` draws a `--kind`."""

Members = Annotated[int, typer.Option(help="Members at the start: c0, c1, …")]
Partitions = Annotated[int, typer.Option(help="Partitions of the topic `orders`.")]
Protocol = Annotated[str, typer.Option(help="cooperative or eager.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same history, byte by byte.")]
Events = Annotated[str, typer.Option(help=EVENT_HELP, metavar="EVENTS")]
Duration = Annotated[str, typer.Option(help="How long to play, in virtual time.")]
Static = Annotated[bool, typer.Option("--static", help="Members have a group.instance.id.")]
Heartbeat = Annotated[
    str | None,
    typer.Option(help="heartbeat.interval.ms of every member: 3s, or a third of the session.", show_default=False),
]
Session = Annotated[
    str | None,
    typer.Option(help="session.timeout.ms of every member: 45s, or --max-poll if less.", show_default=False),
]
MaxPoll = Annotated[str, typer.Option(help="max.poll.interval.ms of every member.")]
Batch = Annotated[str, typer.Option(help="How long the application works on what one poll gives it.")]
BatchSpread = Annotated[
    float, typer.Option(help="By which share batches of more than 500ms are shorter or longer, say 0.5.")
]
Restore = Annotated[str, typer.Option(help="How long the state of one partition takes to restore.")]
Listener = Annotated[str, typer.Option(help="How long the listener takes to give up or take up partitions.")]
Without = Annotated[
    str,
    typer.Option(
        help="What the members do without, separated by commas: watchdog, poke, instant-rejoin, offset-handover, "
        "hot-heartbeats, or all. With watchdog,poke a crash is noticed as by any other client.",
        metavar="WORDS",
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Play eager and cooperative as other clients do, and holdfast, and print the ratios; without --event: "
        f"{COMPARED}.",
    ),
]
Scene = Annotated[
    str, typer.Option(help="Play a ready scene, in all three ways, and what is told of it beside.", metavar="NAME")
]
Kind = Annotated[
    str, typer.Option(help="With --scene or --svg: in one way, step by step: eager, cooperative or holdfast.")
]
Svg = Annotated[
    Path | None,
    typer.Option(help="Draw the picture of a moment into a file (- is standard output).", metavar="FILE"),
]
At = Annotated[str, typer.Option(help="With --svg: the moment; the scene's own, or the end.", metavar="TIME")]
Scenes = Annotated[bool, typer.Option("--scenes", help="List the ready scenes.")]
Everything = Annotated[bool, typer.Option("--all", "-a", help="Print every step, not only the telling ones.")]
Swarm = Annotated[bool, typer.Option("--swarm", help="Random worlds with faults, until an invariant breaks.")]
Seeds = Annotated[int, typer.Option(help="With --swarm: how many worlds.")]
SeedStart = Annotated[int, typer.Option(help="With --swarm: the first world's seed.")]
Jobs = Annotated[int, typer.Option(help="With --swarm: processes at work; 0 is one per core.")]
WorldSeed = Annotated[int | None, typer.Option(help="Replay one random world of the swarm by its seed.")]
Output = Annotated[str, typer.Option("--output", "-o", help="table, json or jsonl (the trace).")]
