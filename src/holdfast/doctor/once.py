"""Lines that were read from several files count once.

A Kafka that runs as a daemon writes each line to server.log and, with its standard output, to kafkaServer.out in the
same folder. The same happens to a service whose log goes to a file and to its container's output, and to a file that
was copied or is named twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from holdfast.doctor.events import FIELDS, Event

_PLACE = frozenset({"file", "line"})
_SAID = tuple(name for name in FIELDS if name not in _PLACE)


def told_once(events: Iterable[Event]) -> list[Event]:
    """The events without those that another file tells, too: to the millisecond, and in every field. What one file
    tells twice, it tells twice. The file whose name comes first is the one that is kept."""
    by_file: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_file[event.file].append(event)
    if len(by_file) < 2:
        return [event for told in by_file.values() for event in told]
    found: list[Event] = []
    known: Counter[tuple[object, ...]] = Counter()
    for file in sorted(by_file):
        here: Counter[tuple[object, ...]] = Counter()
        for event in by_file[file]:
            said = tuple(getattr(event, name) for name in _SAID)
            here[said] += 1
            if here[said] > known[said]:
                known[said] = here[said]
                found.append(event)
    return found
