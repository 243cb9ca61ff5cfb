"""`holdfast`: the entry point of the command line.

Each command is in a module of its own, and only the called one is imported, so that `holdfast --help` is quick and a
command loads only what it needs. Exit codes: 0 fine, 1 a finding or a failed check, 2 wrong use. An error is one line
with a code, what happened and what to do; a traceback comes only with --debug.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from holdfast import __version__
from holdfast.cli.listing import Listing
from holdfast.model import HoldfastError


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command that is not imported yet. Its module has a function of its name, or a typer `app`."""

    module: str
    help: str


COMMANDS: Mapping[str, Lazy] = {
    "broker": Lazy("holdfast.cli.broker", "A Kafka broker in one process, for development, tests and demos."),
    "topics": Lazy("holdfast.cli.topics", "Create, list, describe and delete topics."),
    "produce": Lazy("holdfast.cli.produce", "Send lines, or generated orders, to a topic."),
    "consume": Lazy("holdfast.cli.consume", "Print records, as a member of a group or without one."),
    "groups": Lazy("holdfast.cli.groups", "See groups, their members and lag; check them; move their offsets."),
    "doctor": Lazy("holdfast.cli.doctor", "What happened to groups, from their logs, and what to change."),
    "assign": Lazy("holdfast.cli.assign", "Plan who gets which partition, from a description of a group."),
    "preflight": Lazy("holdfast.cli.preflight", "Whether a live group may take its next step to another assignor."),
    "run": Lazy("holdfast.cli.run", "Run a process that uses holdfast: drained before it is stopped."),
    "pipeline": Lazy("holdfast.cli.pipeline", "Run a PySpark job as a member; look after its exactly-once file sink."),
    "demo": Lazy("holdfast.cli.demo", "PySpark queries of one group: one joins, one drains, one is killed."),
    "ui": Lazy("holdfast.cli.ui", "The page: watch a group rebalance, lane by lane."),
    "sim": Lazy("holdfast.cli.sim", "Play a group in virtual time: timelines, gaps, random worlds."),
}

BENCHMARKS: Mapping[str, Lazy] = {
    "broker": Lazy(
        "holdfast.bench.broker", "The embedded broker beside a real Kafka: speed, start-up, memory, groups."
    ),
    "deploy": Lazy("holdfast.bench.deploy", "Redeploys of PySpark applications, beside Spark's own Kafka source."),
    "groups": Lazy("holdfast.bench.groups", "Groups of hundreds of members, beside librdkafka's."),
    "handover": Lazy("holdfast.bench.handover", "Silences when members come and go, beside Java and librdkafka."),
    "describe": Lazy("holdfast.bench.describe", "`groups describe` of a large group, beside Kafka's own tool."),
    "doctor": Lazy("holdfast.bench.doctor", "Logs read by the doctor, beside a plain Python parse of the same lines."),
    "spark": Lazy("holdfast.bench.spark", "The Spark source beside Spark's own Kafka connector."),
    "state": Lazy("holdfast.bench.state", "State that moves with a partition, beside Spark's own state."),
    "assign": Lazy("holdfast.bench.assign", "Planning at scale, beside Java's CooperativeStickyAssignor."),
    "consume": Lazy("holdfast.bench.consume", "Records a second and memory, beside confluent-kafka's consumer."),
}


def build(args: Sequence[str]) -> typer.Typer:
    """The app with the command that `args` calls; of the others, only the name and one line of help."""
    words = [arg for arg in args if not arg.startswith("-")]
    root = _group("Kafka consumer groups that don't stop.", COMMANDS, words[:1])
    bench = _group("Measure holdfast beside its peers, in one run.", BENCHMARKS, words[1:2])
    root.add_typer(bench, name="bench")
    root.callback()(_options)
    return root


def _group(help_text: str, commands: Mapping[str, Lazy], called: list[str]) -> typer.Typer:
    app = typer.Typer(
        cls=Listing,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, entry in commands.items():
        if [name] == called:
            module = importlib.import_module(entry.module)
            if isinstance(getattr(module, "app", None), typer.Typer):
                app.add_typer(module.app, name=name, help=entry.help)
            else:
                app.command(name=name)(getattr(module, name))  # with its own, longer help
        else:
            app.command(name=name, help=entry.help)(_not_called)
    return app


def _not_called() -> None:
    """A placeholder for commands that this call does not need."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with an error."),
) -> None:
    """Options of every command. `main` reads --debug itself."""


def main(argv: list[str] | None = None) -> None:
    """Run, and turn errors into one line and an exit code."""
    args = sys.argv[1:] if argv is None else argv
    try:
        build(args)(args=args, prog_name="holdfast")
    except HoldfastError as error:
        if "--debug" in args:
            raise
        from holdfast.cli.common import show_error

        show_error(error)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has ended (`holdfast … | head`), which is no error.
        sys.stderr.close()
        sys.exit(0)
