"""What a group remembers of its beginning, in the metadata of its offset commits. Pure.

A partition or topic that came later than the group is read from its beginning, so all members must know what was there
at first. Each commit notes it for its own topic: how many partitions the topic had when the group began to read it.
And it notes which subscriptions have begun, each with a digest of all that it then meant. So a topic without a note has
come later if the subscription has begun with something else; if not, the group is just beginning, or another query
of the group has begun and this one has not. A note's size does not depend on how many topics there are: brokers take
4,096 bytes a commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.group.messages import OffsetEntry

NOTE = "holdfast"
VERSION = 1

ANY = "*"
"""Written by an import: whatever the first query subscribes to, it goes on with a job that ran before. The same is
understood where an older version noted no subscription. It counts until a query has noted its own."""

MOST_BEGUN = 32
"""How many subscriptions a note lists, newest first. A group has one or two at a time; the rest are former ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the notes of a group say together."""

    known: Mapping[str, int] = field(default_factory=dict)
    """Partitions of each topic when the group began to read it; 0 for a topic that came later."""
    begun: Mapping[str, str] = field(default_factory=dict)
    """Subscriptions that have begun, by `digest`, and the digest of what each began with."""

    def has_begun(self, subscription: str) -> bool:
        return subscription in self.begun or ANY in self.begun

    def with_begun(self, subscription: str, there: str) -> dict[str, str]:
        """Ours first, with what it began with: that is what is `there` now, unless it has begun before."""
        others = {one: at for one, at in self.begun.items() if one not in (subscription, ANY)}
        return dict(list(({subscription: self.begun.get(subscription, there)} | others).items())[:MOST_BEGUN])


def digest(lines: Iterable[str]) -> str:
    """The same for the same lines: the names or the pattern of a subscription, or the topics that it means."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:8]


def digest_of_counts(counts: Mapping[str, int]) -> str:
    return digest(f"{topic} {count}" for topic, count in counts.items())


def write_note(topic: str, count: int, begun: Mapping[str, str]) -> str:
    return json.dumps({NOTE: VERSION, "known": {topic: count}, "begun": dict(begun)}, separators=(",", ":"))


def read_notes(entries: Iterable[OffsetEntry]) -> Memory:
    """What the group's commits say. The least of them, should they differ on a topic."""
    known: dict[str, int] = {}
    begun: dict[str, str] = {}
    for entry in entries:
        note = _read(entry.metadata)
        for topic, count in note.known.items():
            known[topic] = min(count, known.get(topic, count))
        begun = {**note.begun, **begun}
    if len(begun) > 1:
        begun.pop(ANY, None)
    return Memory(known=dict(sorted(known.items())), begun=begun)


def is_note(metadata: str) -> bool:
    """Whether a commit comes from a query of ours, or was made for one."""
    try:
        return bool(json.loads(metadata)[NOTE])
    except (ValueError, KeyError, TypeError):
        return False


def _read(metadata: str) -> Memory:
    try:
        note = json.loads(metadata)
        if note[NOTE] != VERSION:
            return Memory()
        known = {str(topic): int(count) for topic, count in note["known"].items()}
        return Memory(known=known, begun={str(one): str(at) for one, at in note.get("begun", {ANY: ""}).items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return Memory()  # somebody else's metadata, or none
