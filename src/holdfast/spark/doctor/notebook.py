"""The driver's notes of `doctor --follow`: who writes into a folder, what was read, how many lines.

_follow/lock             held while events and tables are written; doctors of one topic take turns
_follow/source.json      the folder's source: no other source may be mixed in
_follow/state-ID.json    one doctor's counts after its last batch; ID is stored in its checkpoint
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError
from holdfast.spark.doctor.growth import MAX_FILES
from holdfast.spark.doctor.job import PROBLEMS_TOLD, SHAPES_TOLD, Read
from holdfast.spark.doctor.kept import replacing
from holdfast.spark.doctor.reading import READ_COLUMNS

CONTENTS_KEPT = 2 * MAX_FILES
"""Files whose line counts are kept, those that grew last: all that can be followed, and as many old ones."""

SHAPES_KEPT = 200


@dataclass(slots=True, kw_only=True)
class State:
    """One doctor's counts after a batch."""

    batch: int = -1
    lines: dict[str, int] = field(default_factory=dict)
    """By file content: how many of its lines were read. Files that grew last come last."""
    read: dict[str, int] = field(default_factory=lambda: asdict(Read()))
    shapes: dict[str, int] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0

    def add(self, batch: int, told: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
        """Add the counts of a batch's READ rows; returns how many lines are before each piece."""
        starts: dict[tuple[str, int], int] = {}
        for row in sorted(told, key=lambda row: (row["content"], row["piece"])):
            content, before = row["content"], self.lines.pop(row["content"], -1)
            if content:
                self.files += 1 if before < 0 else 0
                starts[content, row["piece"]] = max(0, before)
                self.lines[content] = max(0, before) + int(row["number"])
            for name, column in READ_COLUMNS.items():
                self.read[name] += int(row[column])
            if row["said"] and len(self.problems) < PROBLEMS_TOLD and (row["file"], row["said"]) not in self.problems:
                self.problems.append((row["file"], row["said"]))
            shapes = Counter(self.shapes)
            shapes.update(json.loads(row["partitions"] or "{}"))
            self.shapes = dict(shapes.most_common(SHAPES_KEPT))
        for name in list(self.lines)[:-CONTENTS_KEPT]:
            del self.lines[name]
        self.batch = batch
        return starts


class Notebook:
    """The folder's notes, for one doctor."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self._folder = folder / "_follow"
        self._folder.mkdir(parents=True, exist_ok=True)
        checkpoint.mkdir(parents=True, exist_ok=True)
        self._mine = (checkpoint / "holdfast-doctor.lock").open("a")
        try:
            fcntl.flock(self._mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._mine.close()
            raise HoldfastError(
                "DOCTOR_ALREADY_FOLLOWS",
                f"another doctor runs on the checkpoint {checkpoint}.",
                "End that one; or, to share a topic, give this one a --checkpoint of its own.",
            ) from None
        self.doctor = self._named(checkpoint / "holdfast-doctor.json")

    def close(self) -> None:
        self._mine.close()

    def _named(self, path: Path) -> str:
        if not path.exists():
            put(path, json.dumps({"id": uuid.uuid4().hex}))
        return str(json.loads(path.read_text())["id"])

    def claim(self, source: Mapping[str, str]) -> None:
        """Record the folder's source; refuse if the folder holds anything from another source."""
        path = self._folder / "source.json"
        before = json.loads(path.read_text()) if path.exists() else None
        if before is not None and before != source:
            raise HoldfastError(
                "DOCTOR_OTHER_SOURCE",
                f"{self._folder.parent} holds what was read from elsewhere, or under a checkpoint that is gone: lines "
                "would be in it twice.",
                "Choose another folder for --parquet, or delete this one to read everything again.",
            )
        if before is None:
            if any((self._folder.parent / "events").glob("*")):
                raise HoldfastError(
                    "DOCTOR_NOT_A_FOLLOWED_FOLDER",
                    f"{self._folder.parent} holds the tables of a single run, which can't be added to.",
                    "Choose another folder for --parquet, or delete this one.",
                )
            put(path, json.dumps(dict(source)))

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the folder's lock, so that nobody else writes. First removes what a crash left half written."""
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for place in (self._folder.parent.glob("*"), [self._folder / "names"]):
                for hidden in (path for folder in place for path in folder.glob("_*.parquet.*")):
                    hidden.unlink(missing_ok=True)
            yield

    def state(self) -> State:
        path = self._folder / f"state-{self.doctor}.json"
        return State(**json.loads(path.read_text())) if path.exists() else State()

    def note(self, state: State) -> None:
        put(self._folder / f"state-{self.doctor}.json", json.dumps(asdict(state)))

    def all_states(self) -> State:
        """What all doctors of this folder have read together."""
        whole = State()
        for path in sorted(self._folder.glob("state-*.json")):
            one = State(**json.loads(path.read_text()))
            whole.files += one.files
            whole.read = {name: count + one.read[name] for name, count in whole.read.items()}
            shapes = Counter(whole.shapes)
            shapes.update(one.shapes)
            whole.shapes = dict(shapes.most_common(SHAPES_TOLD))
            whole.problems += [(file, what) for file, what in one.problems]
        whole.problems = whole.problems[:PROBLEMS_TOLD]
        return whole


def put(path: Path, text: str) -> None:
    """Write atomically and durably."""
    with replacing(path, hidden_by=".") as file:
        file.write(text.encode())
