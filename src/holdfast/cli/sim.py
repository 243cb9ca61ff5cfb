"""`holdfast sim`: simulate a group in virtual time; compare protocols; search for faults in random worlds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli import sim_options as o
from holdfast.cli.common import show_error
from holdfast.cli.sim_options import COMPARED
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.sim.played import Played
    from holdfast.sim.ready import ReadyScene
    from holdfast.sim.setup import Setup
    from holdfast.sim.world import WorldResult

ASSIGNORS = {"cooperative": "cooperative-sticky", "eager": "sticky"}
"""The assignor of each protocol. Eager uses the one that moves least, so that only the protocol differs."""

NOT_WRITTEN = "FILE_NOT_WRITTEN"
"""The only error here that is not wrong use."""


def sim(
    context: typer.Context,
    members: o.Members = 4,
    partitions: o.Partitions = 6,
    protocol: o.Protocol = "cooperative",
    seed: o.Seed = 7,
    event: o.Events = "",
    duration: o.Duration = "60s",
    static: o.Static = False,
    heartbeat: o.Heartbeat = None,
    session: o.Session = None,
    max_poll: o.MaxPoll = "5m",
    batch: o.Batch = "200ms",
    batch_spread: o.BatchSpread = 0.0,
    restore: o.Restore = "0ms",
    listener: o.Listener = "100ms",
    without: o.Without = "",
    compare: o.Compare = False,
    scene: o.Scene = "",
    kind: o.Kind = "",
    svg: o.Svg = None,
    at: o.At = "",
    scenes: o.Scenes = False,
    everything: o.Everything = False,
    swarm: o.Swarm = False,
    seeds: o.Seeds = 100,
    seed_start: o.SeedStart = 0,
    jobs: o.Jobs = 0,
    world: o.WorldSeed = None,
    output: o.Output = "table",
) -> None:
    """Play a consumer group in virtual time.

    Prints the scene step by step, the timeline of every partition and its gaps. Members and coordinator are the code
    that runs in production.
    """
    from holdfast.sim.setup import Setup

    fixed_by = "--scene" if scene else "--swarm" if swarm else "--world" if world is not None else ""
    try:
        _check_options(context, output, fixed_by="" if scenes else fixed_by)
        _check_ways(context)
        setup = Setup(
            members=members, partitions=partitions, seed=seed, events=event, duration=duration, static=static,
            heartbeat=heartbeat, session=session, max_poll=max_poll, batch=batch, spread=batch_spread,
            listener=listener, restore=restore, without=without,
        )  # fmt: skip
        if scenes:
            code = _list_scenes(output)
        elif svg is not None:
            code = _picture(svg, setup, scene, kind, at)
        elif swarm:
            code = _swarm(seed_start, seeds, jobs or os.cpu_count() or 1, output)
        elif world is not None:
            code = _replay(world, output, everything=everything)
        elif scene:
            code = _scene(scene, kind, output, everything=everything)
        elif compare:
            setup = setup if _is_given(context, "--event") else replace(setup, events=COMPARED)
            code = _compare(setup, output, everything=everything)
        else:
            code = _one(setup, protocol, output, everything=everything)
    except HoldfastError as error:  # nearly always wrong use: faults inside a world are in its result
        show_error(error)
        raise typer.Exit(1 if error.code == NOT_WRITTEN else 2) from error
    raise typer.Exit(code)


def _check_options(context: typer.Context, output: str, *, fixed_by: str) -> None:
    """Refuse an unknown output, and options of the setup beside one that fixes it: they would have no effect."""
    from holdfast.sim.setup import Setup, option_of

    if output not in ("table", "json", "jsonl"):
        raise HoldfastError("BAD_OUTPUT", f"{output!r} is not an output.", "Use -o table, json or jsonl.")
    if not fixed_by:
        return
    options = [*(option_of(field.name) for field in fields(Setup)), "--protocol"]
    given = [each for each in options if _is_given(context, each)]
    if given:
        raise HoldfastError(
            "OPTION_FIXED",
            f"{fixed_by} brings its own {', '.join(given)}.",
            f"Leave out {', '.join(given)}, or {fixed_by}.",
        )


def _check_ways(context: typer.Context) -> None:
    """Refuse options without effect: another way was chosen, or the one that they belong to was not."""
    for option, ways in o.BELONGS_TO.items():
        if _is_given(context, option) and not any(_is_given(context, way) for way in ways):
            ways_text = " or ".join(ways)
            raise HoldfastError(
                "OPTION_UNUSED", f"{option} has no effect without {ways_text}.", f"Leave it out, or add {ways_text}."
            )
    for way, others in o.EXCLUDES.items():
        dropped = [each for each in others if _is_given(context, way) and _is_given(context, each)]
        if dropped:
            what = f"{', '.join(dropped)} would have no effect beside {way}."
            raise HoldfastError("OPTION_UNUSED", what, f"Leave out {', '.join(dropped)}, or {way}.")


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option.removeprefix("--").replace("-", "_"))
    return source is not None and source.name != "DEFAULT"


def _one(setup: Setup, protocol: str, output: str, *, everything: bool) -> int:
    """Play one protocol, with everything that our members can do in it."""
    if protocol not in ASSIGNORS:
        raise HoldfastError("BAD_PROTOCOL", f"{protocol!r} is not a protocol.", "Use cooperative or eager.")
    config = setup.config("holdfast", assignor=ASSIGNORS[protocol])
    from holdfast.sim.played import run

    return _print_result(run(config), output, f"the {protocol} protocol", everything=everything)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


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


def _print_result(result: WorldResult, output: str, title: str, *, everything: bool) -> int:
    from holdfast.trace import encode

    if output == "jsonl":
        for record in result.records:
            print(encode(record))
    elif output == "json":
        print(json.dumps(_summary(result), indent=2))
    else:
        console = _console()
        for line in result.config.describe():
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


def _compare(setup: Setup, output: str, *, everything: bool) -> int:
    from holdfast.sim import scene
    from holdfast.sim.played import play
    from holdfast.sim.setup import KINDS

    played = {kind: play(setup, kind) for kind in KINDS}
    if output == "table":
        console = _console()
        for line in setup.config("holdfast").describe():
            console.print(line, style="dim", markup=False)
        _draw_kinds(console, played, everything=everything)
        scene.print_comparison(console, {kind: each.summary for kind, each in played.items()})
        console.print(
            "Every step: add --all. One protocol with its steps and gaps: --protocol cooperative.", style="dim"
        )
    else:
        _print_kinds(played, output)
    return _verdict(played)


def _scene(name: str, kind: str, output: str, *, everything: bool) -> int:
    """Play a ready scene: as all kinds of group, with what the scene claims; or as one kind, step by step."""
    from holdfast.sim import scene
    from holdfast.sim.played import play
    from holdfast.sim.ready import scene_named, told_and_played
    from holdfast.sim.setup import KINDS

    ready = scene_named(name)
    if kind:
        return _print_result(play(ready.setup, kind).result, output, f"{ready.title}: {kind}", everything=everything)
    played = {each: play(ready.setup, each) for each in KINDS}
    if output == "table":
        console = _console()
        _introduce(console, ready)
        _draw_kinds(console, played, everything=everything)
        scene.print_comparison(console, {each: one.summary for each, one in played.items()})
        scene.print_claims(console, told_and_played(ready, played))
        console.print(f"Step by step: holdfast sim --scene {name} --kind {ready.look}", style="dim", markup=False)
    else:
        _print_kinds(played, output, told=told_and_played(ready, played))
    return _verdict(played)


def _picture(file: Path, setup: Setup, name: str, kind: str, at: str) -> int:
    """Draw the lanes of one kind of group at one moment, and the wait-time of all three kinds."""
    from holdfast.sim.happenings import parse_time
    from holdfast.sim.played import play
    from holdfast.sim.ready import scene_named
    from holdfast.sim.setup import KINDS
    from holdfast.ui.story import story
    from holdfast.ui.svg import picture

    ready = scene_named(name) if name else None
    setup = ready.setup if ready else setup
    shown = kind or (ready.look if ready else "holdfast")
    setup.config(shown)  # raises for a setup that can't be played, before anything is played
    played = {each: play(setup, each) for each in KINDS}
    stories = {each: story(one.records, one.result.ended_at_ms, each) for each, one in played.items()}
    moment = parse_time(at) if at else (ready.at_ms if ready else stories[shown]["end"])
    drawn = picture(
        stories[shown],
        min(moment, stories[shown]["end"]),
        title=ready.title if ready else "",
        waits={each: one["wait"] for each, one in stories.items()},
    )
    if str(file) == "-":
        print(drawn, end="")
    else:
        try:
            file.write_text(drawn, encoding="utf-8")
        except OSError as error:
            do = "Choose a place that can be written to."
            raise HoldfastError(NOT_WRITTEN, f"{file} can't be written: {error.strerror}.", do) from error
    return _verdict(played)


def _introduce(console: Console, ready: ReadyScene) -> None:
    console.print(ready.title, style="bold", markup=False)
    console.print(ready.story, markup=False)
    console.print(f"holdfast sim {ready.setup.as_options()}", style="dim", markup=False)


def _draw_kinds(console: Console, played: Mapping[str, Played], *, everything: bool) -> None:
    from holdfast.sim.setup import KINDS

    for kind, each in played.items():
        _draw(console, each.result, f"{kind}: {KINDS[kind]}", everything=everything, steps=everything)
    console.print()


def _print_kinds(played: Mapping[str, Played], output: str, **more: Any) -> None:
    from holdfast.trace import encode

    if output == "jsonl":
        for each in played.values():
            for record in each.records:
                print(encode(record))
    else:
        print(json.dumps({kind: _summary(each.result) for kind, each in played.items()} | more, indent=2))


def _verdict(played: Mapping[str, Played]) -> int:
    return 1 if any(each.result.violations for each in played.values()) else 0


def _list_scenes(output: str) -> int:
    from holdfast.sim.ready import SCENES

    if output != "table":
        print(
            json.dumps({name: {"title": s.title, "setup": s.setup.as_words()} for name, s in SCENES.items()}, indent=2)
        )
        return 0
    width = max(map(len, SCENES))
    for name, ready in SCENES.items():
        print(f"{name:<{width}}  {ready.title}")
    return 0


def _replay(seed: int, output: str, *, everything: bool) -> int:
    from holdfast.sim.swarm import random_world
    from holdfast.sim.world import World

    return _print_result(World(random_world(seed)).run(), output, f"world {seed}", everything=everything)


def _swarm(first: int, count: int, jobs: int, output: str) -> int:
    from holdfast.sim.swarm import run_swarm

    return run_swarm(first=first, count=count, jobs=jobs, as_json=output != "table", show=_show)


def _show(text: str, *, final: bool) -> None:
    """Progress on one line of a terminal; otherwise only the final text."""
    if final:
        print(("\r\x1b[K" if sys.stderr.isatty() else "") + text, flush=True)
    elif sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
