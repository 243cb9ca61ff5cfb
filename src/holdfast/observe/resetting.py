"""Where a group is to continue: new offsets from a rule, kept within what the log still has.

A rule is one of Kafka's: earliest, latest, current, an offset, a shift, a time, or a file. An offset outside the log is
moved to its nearer end, with a note: a consumer that starts outside goes by its `auto.offset.reset`, and may skip or
repeat everything.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from holdfast.model import HoldfastError, TopicPartition
from holdfast.observe.rows import Row


class Rule(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of one partition when its offset is chosen."""

    committed: int | None = None
    start: int | None = None
    end: int | None = None
    at_time: int | None = None
    """The first offset at or after the wanted time; None where no record is that late."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition's new offset, or why it has none."""

    before: int | None = None
    after: int | None = None
    end: int | None = None
    note: str = ""
    problem: str = ""
    """Set if nothing may be written for this partition."""

    @property
    def changes(self) -> bool:
        return self.after is not None and self.after != self.before


def plan(
    rule: Rule,
    standings: Mapping[TopicPartition, Standing],
    *,
    number: int = 0,
    wanted: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Move]:
    """A move for each partition. `number` is the offset or the shift, `wanted` what a file says."""
    return {
        at: _move(rule, standing, number if wanted is None else wanted.get(at, 0))
        for at, standing in sorted(standings.items())
    }


def _move(rule: Rule, standing: Standing, number: int) -> Move:
    if standing.problem or standing.start is None or standing.end is None:
        return Move(before=standing.committed, problem=standing.problem or "the log's start or end is not known")
    if rule in (Rule.SHIFT, Rule.CURRENT) and standing.committed is None:
        if rule is Rule.SHIFT:
            return Move(end=standing.end, problem="the group has no offset here that could be shifted")
        return Move(after=standing.end, end=standing.end, note="the group has no offset here: the end is taken")
    target, note = _target(rule, standing, number)
    kept = min(max(target, standing.start), standing.end)
    if kept != target:
        note = f"{target} is {'before the start' if target < kept else 'behind the end'} of the log: {kept} is taken"
    return Move(before=standing.committed, after=kept, end=standing.end, note=note)


def _target(rule: Rule, standing: Standing, number: int) -> tuple[int, str]:
    assert standing.start is not None and standing.end is not None
    match rule:
        case Rule.EARLIEST:
            return standing.start, ""
        case Rule.LATEST:
            return standing.end, ""
        case Rule.CURRENT:
            assert standing.committed is not None
            return standing.committed, ""
        case Rule.OFFSET | Rule.FILE:
            return number, ""
        case Rule.SHIFT:
            assert standing.committed is not None
            return standing.committed + number, ""
        case Rule.TIME:
            if standing.at_time is None:
                return standing.end, "no record is that late: the end is taken"
            return standing.at_time, ""


def move_rows(
    group: str, moves: Mapping[TopicPartition, Move], statuses: Mapping[TopicPartition, str] | None = None
) -> list[Row]:
    """GROUP, TOPIC, PARTITION and NEW-OFFSET as Kafka's tool prints them; then the offset before, and notes. With
    `statuses`, also what became of each; one without a status was not tried."""
    return [
        {
            "GROUP": group,
            "TOPIC": at.topic,
            "PARTITION": at.partition,
            "NEW-OFFSET": move.after,
            "CURRENT-OFFSET": move.before,
            "LOG-END-OFFSET": move.end,
            **({} if statuses is None else {"STATUS": statuses.get(at)}),
            "NOTE": move.problem or move.note or None,
        }
        for at, move in sorted(moves.items())
    ]


# -- times

LONGEST_MS = 2**63
"""Kafka's times are 64 bits wide."""

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration: PT1H30M, P2D."""
    found = _DURATION.fullmatch(text.strip().upper())
    if found is None:
        raise HoldfastError(
            "DURATION_INVALID", f"{text!r} is not a duration.", "Write PnDTnHnMnS: PT30M for half an hour, P2D, PT1H."
        )
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    if total >= LONGEST_MS:  # also what is infinite as a float
        raise HoldfastError(
            "DURATION_INVALID", "The duration is longer than Kafka can count.", "Use --to-earliest for the log's start."
        )
    return round(total)


def ago_ms(text: str, now_ms: int) -> int:
    """The moment so long ago; 1970 where that is before it, see `datetime_ms`."""
    return max(0, now_ms - duration_ms(text))


def datetime_ms(text: str) -> int:
    """A moment as Kafka's tool takes it, 2026-01-31T08:00:00.000; in UTC unless it names its zone.

    Before 1970 it is 1970: no record is older, and to Kafka a time below zero is a word (-1 is "latest")."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise HoldfastError(
            "DATETIME_INVALID",
            f"{text!r} is not a date and time.",
            "Write 2026-01-31T08:00:00.000, with +01:00 or Z behind it for another zone than UTC.",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


# -- files, as Kafka's tool writes and reads them

Offsets = Mapping[str, Mapping[TopicPartition, int]]
"""Offsets of each group."""


def write_offsets(found: Offsets) -> str:
    """topic,partition,offset for one group; with the group in front for several."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in sorted(found.items()):
        for at, offset in sorted(offsets.items()):
            writer.writerow([*([group] if len(found) > 1 else []), at.topic, at.partition, offset])
    return out.getvalue()


def read_offsets(text: str, group: str | None) -> dict[str, dict[TopicPartition, int]]:
    """The offsets in such a file. `group` is the group they belong to if the file does not say; if it does, only that
    group's are taken."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for number, row in _rows(text):
        if not row:
            continue
        owner, at, offset = _line(row, number, group)
        if group is not None and owner != group:
            continue
        if at in found.setdefault(owner, {}):
            raise _bad_line(number, f"{at} is there twice")
        found[owner][at] = offset
    return found


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
            yield number, row
    except csv.Error as error:
        raise _bad_line(number + 1, f"it can't be read as CSV ({error})") from error


def _line(row: list[str], number: int, group: str | None) -> tuple[str, TopicPartition, int]:
    cells = [*row[:-2], *(cell.strip() for cell in row[-2:])]  # a group's name may begin or end with a blank
    if len(cells) == 3:
        if group is None:
            raise HoldfastError(
                "OFFSETS_FILE_INVALID",
                f"Line {number} of the file does not say whose offset this is: it has no group in front.",
                "Name the group with --group. Nothing was changed.",
            )
        cells = [group, *cells]
    if len(cells) != 4 or not all(cells):
        raise _bad_line(number, f"{len(cells)} fields")
    if not (_is_number(cells[2]) and _is_number(cells[3])):
        raise _bad_line(number, "partition and offset are numbers from 0 on")
    return cells[0], TopicPartition(cells[1], int(cells[2])), int(cells[3])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63


def _bad_line(number: int, why: str) -> HoldfastError:
    return HoldfastError(
        "OFFSETS_FILE_INVALID",
        f"Line {number} of the file is not topic,partition,offset or group,topic,partition,offset: {why}.",
        "Correct it, or write it again with `holdfast groups export`. Nothing was changed.",
    )


# -- scopes

Scope = Mapping[str, frozenset[int] | None]
"""Partitions by topic; None is all of them."""


def in_scope(at: TopicPartition, scope: Scope) -> bool:
    return at.topic in scope and at.partition in (scope[at.topic] or {at.partition})


def without_offset(scope: Scope, known: Iterable[TopicPartition]) -> list[tuple[str, int | None]]:
    """What a scope names that the group has no offset of: a partition, or with None a whole topic."""
    there = set(known)
    topics = {at.topic for at in there}
    return [
        (topic, number)
        for topic, numbers in sorted(scope.items())
        for number in ([None] if numbers is None else sorted(numbers))
        if (topic not in topics if number is None else TopicPartition(topic, number) not in there)
    ]


def parse_scope(texts: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """Which partitions: orders for all of a topic, orders:0,1 for some. None is all."""
    found: dict[str, frozenset[int] | None] = {}
    for text in texts:
        topic, separator, listed = text.partition(":")
        numbers = [part.strip() for part in listed.split(",")] if separator else []
        if not topic or not all(map(_is_number, numbers)):
            raise HoldfastError(
                "TOPIC_SCOPE_INVALID", f"{text!r} names no partitions.", "Write orders, or orders:0,1 for some of them."
            )
        before = found.get(topic, frozenset())
        found[topic] = None if before is None or not separator else before | frozenset(map(int, numbers))
    return found
