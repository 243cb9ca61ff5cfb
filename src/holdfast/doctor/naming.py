"""Which group an event belongs to, where its line does not say.

librdkafka names its client in every line and its group in hardly any; Kafka's coordinator names a fenced member and not
its group. Both are found by the names that other lines connect with a group. A name that stands in two groups tells
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from holdfast.doctor.events import Event


def names_of(event: Event) -> tuple[str, ...]:
    """By what an event may be connected with a group, the surest first."""
    return tuple(name for name in (event.member, event.client) if name)


def by_group(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each group; under "" those that no name connects with one."""
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
