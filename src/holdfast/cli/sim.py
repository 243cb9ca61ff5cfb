"""`holdfast sim`: play a group in virtual time; compare protocols; let random worlds look for faults."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.sim.config import WorldConfig
    from holdfast.sim.world import WorldResult

ASSIGNORS = {"cooperative": "cooperative-sticky", "eager": "sticky"}
"""What each protocol is played with. Eager with the assignor that moves least, so that the protocol alone differs."""

EVENT_HELP = (
    "What happens: kind[:who][=n]@time[+duration], separated by commas. Kinds: join, leave, drain, crash, "
    "machine-crash, restart, bounce, hang, freeze, twin, cut, mute, deafen, subscribe, unsubscribe, enforce, slow, "
    "grow, create, delete, broker-crash."
)

COMPARED = "join@10s,leave:c0@25s,join@40s"
"""What `--compare` plays when nothing is asked for: a group that nobody touches pauses in no protocol."""

MAX_MEMBERS, MAX_PARTITIONS = 50, 1_000
"""More would not fit a screen, and virtual time would not feel quick any more."""


def sim(
    members: Annotated[int, typer.Option(help="Members at the start: c0, c1, …")] = 4,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic `orders`.")] = 6,
    protocol: Annotated[str, typer.Option(help="cooperative or eager.")] = "cooperative",
    seed: Annotated[int, typer.Option(help="The same seed gives the same history, byte by byte.")] = 7,
    event: Annotated[str, typer.Option(help=EVENT_HELP, metavar="EVENTS")] = "",
    duration: Annotated[str, typer.Option(help="How long to play, in virtual time.")] = "60s",
    static: Annotated[bool, typer.Option("--static", help="Members have a group.instance.id.")] = False,
    heartbeat: Annotated[
        str | None,
        typer.Option(help="heartbeat.interval.ms of every member: 3s, or a third of the session.", show_default=False),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(help="session.timeout.ms of every member: 45s, or --max-poll if less.", show_default=False),
    ] = None,
    max_poll: Annotated[str, typer.Option(help="max.poll.interval.ms of every member.")] = "5m",
    batch: Annotated[str, typer.Option(help="How long the application works on what one poll gives it.")] = "200ms",
    listener: Annotated[str, typer.Option(help="How long the listener takes to give up or take up partitions.")] = (
        "100ms"
    ),
    without: Annotated[
        str,
        typer.Option(
            help="What the members do without, separated by commas: watchdog, poke, instant-rejoin, offset-handover, "
            "hot-heartbeats, or all. With watchdog,poke a crash is noticed as by any other client.",
            metavar="WORDS",
        ),
    ] = "",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help=f"Play eager and cooperative, and print the ratio; without --event: {COMPARED}."
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Print every step, not only the telling ones.")
    ] = False,
    swarm: Annotated[
        bool, typer.Option("--swarm", help="Random worlds with faults, until an invariant breaks.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="With --swarm: how many worlds.")] = 100,
    seed_start: Annotated[int, typer.Option(help="With --swarm: the first world's seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="With --swarm: processes at work; 0 is one per core.")] = 0,
    world: Annotated[int | None, typer.Option(help="Replay one random world of the swarm by its seed.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table, json or jsonl (the trace).")] = "table",
) -> None:
    """Play a consumer group in virtual time.

    Prints the scene step by step, the timeline of every partition and its gaps. Members and coordinator are the code
    that runs in production.
    """
    try:
        code = _choose(
            members=members,
            partitions=partitions,
            protocol=protocol,
            output=output,
            compare=compare,
            everything=everything,
            swarm=(seed_start, seeds, jobs or os.cpu_count() or 1) if swarm else None,
            world=world,
            scene={
                "seed": seed,
                "events": event,
                "duration": duration,
                "static": static,
                "heartbeat": heartbeat,
                "session": session,
                "max_poll": max_poll,
                "batch": batch,
                "listener": listener,
                "without": without.split(","),
            },
        )
    except HoldfastError as error:  # nothing but wrong use raises here: what a world does ends up in its result
        typer.echo(f"holdfast: {error.code}: {error.what} {error.do}", err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(code)


def _choose(
    *,
    members: int,
    partitions: int,
    protocol: str,
    output: str,
    compare: bool,
    everything: bool,
    swarm: tuple[int, int, int] | None,
    world: int | None,
    scene: dict[str, Any],
) -> int:
    """Check what was asked for, and do it."""
    from holdfast.sim.scenarios import scene_config

    if output not in ("table", "json", "jsonl"):
        raise HoldfastError("BAD_OUTPUT", f"{output!r} is not an output.", "Use -o table, json or jsonl.")
    if swarm is not None:
        return _swarm(*swarm, output)
    if world is not None:
        return _replay(world, output, everything=everything)
    if protocol not in ASSIGNORS:
        raise HoldfastError("BAD_PROTOCOL", f"{protocol!r} is not a protocol.", "Use cooperative or eager.")
    if not (1 <= members <= MAX_MEMBERS and 1 <= partitions <= MAX_PARTITIONS):
        raise HoldfastError(
            "BAD_SIZE",
            f"{members} members and {partitions} partitions can't be played.",
            f"Use 1 to {MAX_MEMBERS} members and 1 to {MAX_PARTITIONS} partitions.",
        )

    def config_for(name: str) -> WorldConfig:
        return scene_config(members=members, partitions=partitions, assignor=ASSIGNORS[name], **scene)

    if compare:
        scene["events"] = scene["events"] or COMPARED
        return _compare(config_for("eager"), config_for("cooperative"), output, everything=everything)
    return _play(config_for(protocol), output, f"the {protocol} protocol", everything=everything)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def _run(config: WorldConfig) -> WorldResult:
    from holdfast.sim.world import World

    return World(config).run()


def _summary(result: WorldResult) -> dict[str, Any]:
    from holdfast.sim.timeline import summarise, timeline

    line = timeline(result.records, result.ended_at_ms)
    return {
        "seed": result.config.seed,
        "ended_at_ms": result.ended_at_ms,
        **asdict(summarise(line, result.rounds)),
        "violations": [asdict(violation) for violation in result.violations],
        "gaps": [asdict(gap) | {"partition": str(gap.partition)} for gap in line.gaps()],
    }


def _play(config: WorldConfig, output: str, title: str, *, everything: bool) -> int:
    from holdfast.trace import encode

    result = _run(config)
    if output == "jsonl":
        for record in result.records:
            print(encode(record))
    elif output == "json":
        print(json.dumps(_summary(result), indent=2))
    else:
        console = _console()
        for line in config.describe():
            console.print(line, style="dim", markup=False)
        _draw(console, result, title, everything=everything, steps=True)
    return 1 if result.violations else 0


def _draw(console: Console, result: WorldResult, title: str, *, everything: bool, steps: bool) -> None:
    from holdfast.sim import scene
    from holdfast.sim.timeline import summarise, timeline

    line = timeline(result.records, result.ended_at_ms)
    if steps:
        scene.print_steps(console, result.records, everything=everything)
    happened = [record for record in result.records if record.step == "happened"]
    scene.print_timeline(console, line, happened, title)
    if steps:
        scene.print_gaps(console, line)
    scene.print_summary(console, result, summarise(line, result.rounds))


def _compare(eager: WorldConfig, cooperative: WorldConfig, output: str, *, everything: bool) -> int:
    from holdfast.sim import scene
    from holdfast.sim.timeline import summarise, timeline
    from holdfast.trace import encode

    results = {"eager": _run(eager), "cooperative": _run(cooperative)}
    if output == "jsonl":
        for result in results.values():
            for record in result.records:
                print(encode(record))
    elif output == "json":
        print(json.dumps({name: _summary(result) for name, result in results.items()}, indent=2))
    else:
        console = _console()
        for line in cooperative.describe():
            console.print(line, style="dim", markup=False)
        for name, words in (("eager", "stop the world"), ("cooperative", "only what moves is paused")):
            _draw(console, results[name], f"{name}: {words}", everything=everything, steps=everything)
        summaries = {
            name: summarise(timeline(result.records, result.ended_at_ms), result.rounds)
            for name, result in results.items()
        }
        console.print()
        scene.print_comparison(console, summaries["eager"], summaries["cooperative"])
        console.print(
            "Every step: add --all. One protocol with its steps and gaps: --protocol cooperative.", style="dim"
        )
    return 1 if any(result.violations for result in results.values()) else 0


def _replay(seed: int, output: str, *, everything: bool) -> int:
    from holdfast.sim.swarm import random_world

    return _play(random_world(seed), output, f"world {seed}", everything=everything)


def _swarm(first: int, count: int, jobs: int, output: str) -> int:
    from holdfast.sim.swarm import run_swarm

    return run_swarm(first=first, count=count, jobs=jobs, as_json=output != "table", show=_show)


def _show(text: str, *, final: bool) -> None:
    """Progress on one line of a terminal; only the last word elsewhere."""
    if final:
        print(("\r\x1b[K" if sys.stderr.isatty() else "") + text, flush=True)
    elif sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
