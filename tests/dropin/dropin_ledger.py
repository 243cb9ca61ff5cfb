"""Which differences are allowed, and why: the table in docs/consumer.md, and what is still to be mended in open.txt.

A row of the table names a difference that is wanted: quicker, stricter, kinder. It stays. A line of open.txt names a
fault that is known and not mended yet: a combination, or a pattern of them with the kind of difference. It goes with
the mend; the file must not grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from dropin_outcome import ASPECTS, Difference

DOCS = Path(__file__).parents[2] / "docs" / "consumer.md"
HEADING = "## Differences from confluent-kafka"
OPEN = Path(__file__).parent / "open.txt"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Differences of one kind in the combinations that a pattern names."""

    name: str
    combinations: str
    kind: str

    def covers(self, combination: str, difference: Difference) -> bool:
        return self.kind == difference.kind and fnmatchcase(combination, self.combinations)


def wanted(text: str | None = None) -> list[Allowed]:
    """The table's rows. Each cell `where` holds entries `pattern: kind, kind`, apart by <br>."""
    found = []
    for line in _section(DOCS.read_text() if text is None else text):
        if not line.startswith("| `"):
            continue
        name, where, what, reason = (cell.strip() for cell in line.strip().strip("|").split(" | "))
        assert what and reason, f"{name}: a wanted difference says what differs and why"
        for entry in where.split("<br>"):
            pattern, _, kinds = entry.strip().strip("`").rpartition(": ")
            for kind in kinds.split(", "):
                assert kind in ASPECTS, f"{name}: {kind} is no kind of difference"
                found.append(Allowed(name.strip("`"), pattern, kind))
    return found


def _section(text: str) -> list[str]:
    _, _, rest = text.partition(HEADING)
    assert rest, f"{DOCS.name} has no section {HEADING!r}"
    section, _, _ = rest.partition("\n## ")
    return section.splitlines()


@dataclass(frozen=True, slots=True)
class Open:
    """What is not mended yet: the ids of combinations, and patterns of one kind of difference."""

    ids: frozenset[str]
    patterns: tuple[Allowed, ...]


def still_open(text: str | None = None) -> Open:
    """Lines `id`, or `pattern kind`; sorted."""
    lines = (OPEN.read_text() if text is None else text).splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    assert entries == sorted(entries), "open.txt is sorted"
    patterns = [line.split() for line in entries if " " in line]
    for _, kind in patterns:
        assert kind in ASPECTS, f"open.txt: {kind} is no kind of difference"
    ids = frozenset(line for line in entries if " " not in line)
    return Open(ids, tuple(Allowed("open", pattern, kind) for pattern, kind in patterns))


def judge(combination: str, found: list[Difference], rows: list[Allowed], left: Open) -> str:
    """What is wrong, in words; nothing if all is well."""
    allowed = (*rows, *left.patterns)
    unlisted = [each for each in found if not any(row.covers(combination, each) for row in allowed)]
    if combination in left.ids:
        return "" if unlisted else f"{combination} is no longer open: delete its line in open.txt"
    return "\n".join([f"{combination} differs:", *map(str, unlisted)]) if unlisted else ""
