"""Which group an event belongs to if its line does not say.

librdkafka names its client in every line but its group in hardly any; Kafka's coordinator names a fenced member but not
its group. Other lines connect these names with a group. A name that appears in two groups is not used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from holdfast.doctor.events import Event


def names_of(event: Event) -> tuple[str, ...]:
    """Names that may connect an event with a group, the surest first."""
    return tuple(name for name in (event.member, event.client) if name)


def by_group(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each group; under "" those that no name connects with a group."""
    kept = list(events)
    known: dict[str, set[str]] = defaultdict(set)
    for event in kept:
        if event.group:
            for name in names_of(event):
                known[name].add(event.group)
    found: dict[str, list[Event]] = defaultdict(list)
    for event in kept:
        if not event.group:
            sure = (known[name] for name in names_of(event) if len(known.get(name, ())) == 1)
            event.group = next((next(iter(one)) for one in sure), "")
        found[event.group].append(event)
    return dict(found)
