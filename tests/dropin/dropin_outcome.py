"""What can be seen of a run from outside, in a form in which two runs can be compared.

A run writes notes into a `Recorder`, in order, each under an *aspect* (records, callbacks, committed, ...) and within a
*phase* of its program (start, during, after, end). `outcome()` makes plain lines of them. Left out is what no two runs
share: times, member ids, how many polls were in vain, and which of several equal partitions it was that moved: they are
renamed A, B, C in the order of what happened to them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import confluent_kafka as ck

ASPECTS = (
    "made",
    "records",
    "errors",
    "error_cb",
    "raised",
    "callbacks",
    "calls",
    "order",
    "answers",
    "on_commit",
    "committed",
    "epochs",
    "redone",
    "unread",
    "assigned",
    "members",
    "ended",
)
"""In the order in which a difference is shown; each is a *kind* of difference that the table in the docs can name."""

ONCE = frozenset({"errors", "error_cb", "raised", "on_commit", "epochs"})
WHENEVER = frozenset({"on_commit", "epochs", "error_cb"})
"""Noted for the whole run: in which phase an automatic commit falls is chance."""
FOLDED = {"after": "during"}
"""Whether a record is read again just before the harness sees that all is balanced, or just after, is chance."""
IN_ORDER = frozenset({"callbacks", "calls", "raised", "order"})
INSIDE = "on_"
"""How the text of a call that was made in a callback begins."""

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Note:
    phase: str
    aspect: str
    text: str
    """What happened. Where partitions are named there is a `{}`."""
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Lines by aspect."""

    lines: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, aspect: str) -> tuple[str, ...]:
        return self.lines.get(aspect, ())

    def __str__(self) -> str:
        return "\n".join(f"{aspect}: {line}" for aspect in ASPECTS for line in self[aspect])


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    confluent: tuple[str, ...]
    ours: tuple[str, ...]

    def __str__(self) -> str:
        only_theirs = [f"    confluent: {line}" for line in _without(self.confluent, self.ours)]
        only_ours = [f"    holdfast:  {line}" for line in _without(self.ours, self.confluent)]
        shown = only_theirs + only_ours
        if not shown:
            shown = [f"    confluent: {' | '.join(self.confluent)}", f"    holdfast:  {' | '.join(self.ours)}"]
        return "\n".join([f"  {self.kind}:", *shown])


def differences(confluent: Outcome, ours: Outcome) -> list[Difference]:
    """Where the calls or the callbacks themselves differ, their order does so too, and is not worth a word. Nor is it
    that confluent's class leaves a record unread which ours reads; it does so now and then, when a callback raises."""
    found = [
        Difference(aspect, confluent[aspect], ours[aspect]) for aspect in ASPECTS if confluent[aspect] != ours[aspect]
    ]
    others = any(each.kind in ("calls", "callbacks") for each in found)
    return [
        each
        for each in found
        if not (each.kind == "order" and others) and not (each.kind == "unread" and not each.ours)
    ]


def _without(lines: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    return [line for line in lines if line not in others]


class Recorder:
    """Notes of one run. Written from any thread; the order is that of writing."""

    def __init__(self) -> None:
        self.phase = "start"
        self._notes: list[Note] = []
        self._records: list[tuple[str, str, Partition, int]] = []
        self._lock = threading.Lock()

    def note(self, aspect: str, text: str, partitions: Iterable[Partition] = ()) -> None:
        """How often the same error comes within a phase is chance: it is noted once."""
        phase = "ever" if aspect in WHENEVER else self.phase
        made = Note(phase, aspect, text, tuple(sorted(partitions)))
        with self._lock:
            if aspect not in ONCE or made not in self._notes:
                self._notes.append(made)

    def record(self, who: str, partition: Partition, offset: int) -> None:
        with self._lock:
            self._records.append((self.phase, who, partition, offset))

    def done(self) -> dict[Partition, list[int]]:
        """Offsets that anybody got, by partition, in the order in which they came."""
        with self._lock:
            found: dict[Partition, list[int]] = {}
            for _, _, partition, offset in self._records:
                found.setdefault(partition, []).append(offset)
            return found

    def count(self, who: str) -> int:
        with self._lock:
            return sum(1 for _, by, _, _ in self._records if by == who)

    def has(self, aspect: str, text: str = "") -> bool:
        with self._lock:
            return any(each.aspect == aspect and text in each.text for each in self._notes)

    def outcome(self) -> Outcome:
        with self._lock:
            notes = [*self._notes, *self._record_notes()]
        names = _names(notes)
        lines: dict[str, list[str]] = {}
        for note in notes:
            shown = "".join(sorted(names[partition] for partition in note.partitions))
            lines.setdefault(note.aspect, []).append(f"{note.phase}: {note.text.replace('{}', shown)}")
        lines["order"] = _order(notes)
        lines["calls"] = sorted(lines.get("calls", []), key=lambda line: f": {INSIDE}" in line)
        return Outcome({key: tuple(found if key in IN_ORDER else sorted(found)) for key, found in lines.items()})

    def _record_notes(self) -> list[Note]:
        """Records by phase, reader and partition: how those of several partitions interleave is chance."""
        grouped: dict[tuple[str, str, Partition], list[int]] = {}
        for phase, who, partition, offset in self._records:
            shown = "ever" if who == "partner" else FOLDED.get(phase, phase)
            grouped.setdefault((shown, who, partition), []).append(offset)
        return [
            Note(phase, "records", f"{who} {{}} {ranges(offsets)}", (partition,))
            for (phase, who, partition), offsets in grouped.items()
        ]


def _order(notes: list[Note]) -> list[str]:
    """How the program's own calls and its callbacks follow each other; what came of them is shown elsewhere.

    A difference of its own: whether `on_revoke` is called in `unsubscribe()` or by the next poll changes no answer.
    """
    calls = (
        note
        for note in notes
        if note.aspect == "callbacks" or (note.aspect == "calls" and not note.text.startswith(INSIDE))
    )
    return [f"{note.phase}: {note.text.split()[0]}" for note in calls]


def ranges(offsets: Iterable[int]) -> str:
    """0-4 7 5-6: runs of offsets in the order given."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "none"


def code(error: ck.KafkaError) -> str:
    """An error by its name; one without a name by its number, since the texts differ."""
    name = error.name()
    shown = f"{error.code()}" if name.startswith("ERR_") or name.endswith("?") else name
    return f"{shown} (fatal)" if error.fatal() else shown


def raised(error: BaseException) -> str:
    """An exception as a program can tell it from others: its type, and Kafka's code where it has one.

    A bad configuration of ours is a KafkaException, and a ValueError or a TypeError too where confluent raises one.
    """
    cause = error.args[0] if error.args else None
    if isinstance(cause, ck.KafkaError) and _kind(error) == ck.KafkaException.__name__:
        return f"{_kind(error)} {code(cause)}"
    return _kind(error)


def _kind(error: BaseException) -> str:
    """A subclass may stand in for confluent's own exceptions: who catches these gets it."""
    for known in (ValueError, TypeError, ck.KafkaException, RuntimeError, KeyboardInterrupt):
        if isinstance(error, known):
            return known.__name__
    return type(error).__name__


def _names(notes: list[Note]) -> dict[Partition, str]:
    """A letter for each partition, in the order of their stories: equal stories may swap letters and nobody sees it."""
    stories: dict[Partition, list[str]] = {}
    for note in notes:
        for partition in note.partitions:
            stories.setdefault(partition, []).append(f"{note.phase} {note.aspect} {note.text}")
    ordered = sorted(stories, key=lambda partition: (partition[0], stories[partition], partition[1]))
    return {partition: chr(ord("A") + number) for number, partition in enumerate(ordered)}
