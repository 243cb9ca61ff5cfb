"""`holdfast groups reset-offsets`, `export` and `import`.

Offsets are changed only with --execute, and none at all if one of the partitions can't be moved: half a reset is worse
than none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
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
from holdfast.cli.groups_refused import refusals, status
from holdfast.model import HoldfastError, TopicPartition, by_topic
from holdfast.observe.resetting import (
    Move,
    Rule,
    ago_ms,
    datetime_ms,
    move_rows,
    parse_scope,
    plan,
    read_offsets,
    write_offsets,
)
from holdfast.observe.rows import as_json, table

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster
    from holdfast.net.errors import NetError

Execute = Annotated[bool, typer.Option("--execute", help="Do it. Without this, only show what would be done.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC[:0,1]", help="All partitions of it, or some. Repeat it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Where the offsets are to be moved."""

    rule: Rule
    number: int = 0
    time_ms: int | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One group's moves, and the coordinator's answers if they were written."""

    group: str
    moves: Mapping[TopicPartition, Move]
    existed: bool
    answers: Mapping[TopicPartition, NetError | None] | None = None
    """For the partitions that change. None if nothing was tried."""

    @property
    def stuck(self) -> list[TopicPartition]:
        return [at for at, move in self.moves.items() if move.problem]

    @property
    def refused(self) -> dict[TopicPartition, NetError]:
        return {at: error for at, error in (self.answers or {}).items() if error is not None}

    @property
    def statuses(self) -> dict[TopicPartition, str]:
        """The result for each partition; empty if nothing was tried."""
        if self.answers is None:
            return {}
        return {at: status(self.answers[at]) if move.changes else "Unchanged" for at, move in self.moves.items()}


def reset_offsets(
    group: Annotated[str, typer.Argument(help="The group.")],
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where it is, within the log.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="Forward by this many, or back if negative.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="WHEN", help="To the first record since 2026-01-31T08:00:00.000.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="PnDTnHnMnS", help="To the first record since this long ago.")
    ] = None,
    from_file: Annotated[Path | None, typer.Option(metavar="FILE", help="To what this file of `export` says.")] = None,
    topic: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Wherever the group has an offset.")] = False,
    execute: Execute = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Move the offsets of a group that nobody is in. Shows what would be done, unless you say --execute."""
    try:
        asked = _one_target(
            plain={Rule.EARLIEST: to_earliest, Rule.LATEST: to_latest, Rule.CURRENT: to_current},
            numbers={Rule.OFFSET: to_offset, Rule.SHIFT: shift_by},
            to_datetime=to_datetime,
            by_duration=by_duration,
            from_file=from_file,
        )
        scope = parse_scope(topic or [])
    except HoldfastError as error:
        wrong_use(error.code, error.what, error.do)
    if (from_file is None) != (bool(topic) != all_topics) or (bool(topic) and all_topics):
        do = "Give --topic TOPIC[:0,1] or --all-topics; with --from-file neither."
        wrong_use("RESET_SCOPE", "Which partitions?", do)
    settings = client_settings(bootstrap_server, command_config)
    if asked.file is not None:
        _move_to(settings, read_file(asked.file, group), execute=execute, output=output)
        return

    async def work(cluster: Cluster) -> list[Outcome]:
        from holdfast.net.group_offsets import require_inactive, standings

        existed = await require_inactive(cluster, group)
        found = await standings(cluster, group, None if all_topics else scope, time_ms=asked.time_ms)
        if not found:
            raise HoldfastError(
                "NOTHING_TO_RESET",
                f"The group {group} {'has no offsets' if existed else 'does not exist'}, so there is nothing to move.",
                "Check its name; to give a new group its first offsets, name topics with --topic.",
            )
        outcome = Outcome(group=group, moves=plan(asked.rule, found, number=asked.number), existed=existed)
        return await written(cluster, [outcome], execute=execute)

    show(ask(settings, work), execute=execute, output=output)


def _one_target(
    *,
    plain: Mapping[Rule, bool],
    numbers: Mapping[Rule, int | None],
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> Asked:
    """The one target that was asked for."""
    chosen = [Asked(rule=rule) for rule, given in plain.items() if given]
    chosen += [Asked(rule=rule, number=number) for rule, number in numbers.items() if number is not None]
    if to_datetime is not None:
        chosen.append(Asked(rule=Rule.TIME, time_ms=datetime_ms(to_datetime)))
    if by_duration is not None:
        chosen.append(Asked(rule=Rule.TIME, time_ms=ago_ms(by_duration, round(time.time() * 1000))))
    if from_file is not None:
        chosen.append(Asked(rule=Rule.FILE, file=from_file))
    if len(chosen) != 1:
        what = "No target was given." if not chosen else f"{len(chosen)} targets were given."
        do = "Give one: --to-earliest, --to-latest, --to-offset, --shift-by and their like."
        raise HoldfastError("RESET_TARGET", what, do)
    return chosen[0]


def export_offsets(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Which.")],
    to_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there; else to standard output.")] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Write the committed offsets of groups as CSV, as Kafka's own tool reads and writes them."""

    async def work(cluster: Cluster) -> dict[str, dict[TopicPartition, int]]:
        from holdfast.net.admin_groups import GroupAdmin
        from holdfast.net.group_snapshots import committed_offsets

        found: dict[str, dict[TopicPartition, int]] = {}
        for group in sorted(set(groups)):
            await GroupAdmin(cluster).describe_group(group)  # raises if it does not exist: no empty file for a typo
            offsets, problems = await committed_offsets(cluster, group)
            unread = [at for at, one in offsets.items() if one.problem]
            if problems or unread:
                why = problems[0] if problems else f"{unread[0]}: {offsets[unread[0]].problem}."
                do = "Try again when that is fixed. Nothing was written."
                raise HoldfastError("EXPORT_INCOMPLETE", f"Not every offset of {group} can be read: {why}", do)
            found[group] = {at: one.committed for at, one in offsets.items() if one.committed is not None}
        return found

    found = ask(client_settings(bootstrap_server, command_config), work)
    text = write_offsets(found)
    if to_file is None:
        sys.stdout.write(text)
        return
    try:
        to_file.write_text(text, encoding="utf-8")
    except OSError as error:
        do = "Choose a place that can be written to."
        raise HoldfastError("FILE_NOT_WRITTEN", f"{to_file} can't be written: {error.strerror}.", do) from error
    count = sum(map(len, found.values()))
    print(f"Wrote {count} offset{'s' if count != 1 else ''} of {', '.join(found)} to {to_file}.", file=sys.stderr)


def import_offsets(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is standard input.")],
    group: Annotated[
        str | None, typer.Option("--group", help="The group they are for; or which one of several in the file.")
    ] = None,
    execute: Execute = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Set offsets of groups that nobody is in to what a file says. Shows them, unless you say --execute."""
    settings = client_settings(bootstrap_server, command_config)
    _move_to(settings, read_file(file, group), execute=execute, output=output)


def _standard_input() -> bytes:
    with open(sys.stdin.fileno(), "rb", closefd=False) as given:
        return given.read()


def read_file(file: Path, group: str | None) -> dict[str, dict[TopicPartition, int]]:
    try:
        content = _standard_input() if str(file) == "-" else file.read_bytes()
        text = content.decode("utf-8-sig")  # without the byte order mark that Excel writes
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        do = "Give a file that `holdfast groups export` wrote."
        raise HoldfastError("OFFSETS_FILE_UNREADABLE", f"{file} can't be read: {why}.", do) from error
    found = read_offsets(text, group)
    if not found:
        whose = "" if group is None else f" of the group {group}"
        do = "Give a file that `holdfast groups export` wrote. Nothing was changed."
        raise HoldfastError("OFFSETS_FILE_EMPTY", f"{file} holds no offsets{whose}.", do)
    return found


def _move_to(
    settings: Mapping[str, Any], wanted: dict[str, dict[TopicPartition, int]], *, execute: bool, output: Output
) -> None:
    async def work(cluster: Cluster) -> list[Outcome]:
        from holdfast.net.group_offsets import require_inactive, standings

        outcomes = []
        for group, offsets in sorted(wanted.items()):
            existed = await require_inactive(cluster, group)
            scope = {topic: frozenset(numbers) for topic, numbers in by_topic(offsets).items()}
            found = await standings(cluster, group, scope)
            outcomes.append(Outcome(group=group, moves=plan(Rule.FILE, found, wanted=offsets), existed=existed))
        return await written(cluster, outcomes, execute=execute)

    show(ask(settings, work), execute=execute, output=output)


async def written(cluster: Cluster, outcomes: list[Outcome], *, execute: bool) -> list[Outcome]:
    """The outcomes with the coordinator's answers. Nothing is written if one partition can't be moved.

    An error from Kafka concerns one group only. If no broker answers, the other groups are not tried and get that error
    too."""
    from holdfast.net.errors import BrokerError
    from holdfast.net.group_offsets import write

    if not execute or any(one.stuck for one in outcomes):
        return outcomes
    done: list[Outcome] = []
    silence: NetError | None = None
    for one in outcomes:
        if silence is None:
            answers = await write(cluster, one.group, one.moves)
            silence = next((error for error in answers.values() if error and not isinstance(error, BrokerError)), None)
        else:
            answers = dict.fromkeys((at for at, move in one.moves.items() if move.changes), silence)
        done.append(replace(one, answers=answers))
    return done


def show(outcomes: list[Outcome], *, execute: bool, output: Output) -> None:
    rows = [row for one in outcomes for row in move_rows(one.group, one.moves, one.statuses if execute else None)]
    if output is Output.JSON:
        done = execute and not any(one.stuck or one.refused for one in outcomes)
        print(json.dumps({"executed": done, "offsets": [as_json(row) for row in rows]}))
    else:
        for line in table(rows):
            print(line)
    failed = False
    for one in outcomes:
        if one.stuck:
            failed = True
            what = f"{len(one.stuck)} of {len(one.moves)} partitions of group {one.group} can't be moved: see NOTE."
            do = "Nothing was changed. Choose others with --topic TOPIC:0,1, or try again later."
            show_error(HoldfastError("RESET_INCOMPLETE", what, do))
        for error in refusals(one.group, one.refused, of=len(one.moves), done="set"):
            failed = True
            show_error(error)
        if not one.existed and not one.stuck and not one.refused:
            print(f"The group {one.group} does not exist: its first offsets create it.", file=sys.stderr)
    if execute and not any(one.stuck for one in outcomes):
        changed = sum(answer is None for one in outcomes for answer in (one.answers or {}).values())
        print(f"{changed} of {len(rows)} offsets were changed.", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
    if not execute:
        moving = sum(move.changes for one in outcomes for move in one.moves.values())
        print(
            f"Nothing was changed; {moving} of {len(rows)} offsets would be. Add --execute to do it.", file=sys.stderr
        )
