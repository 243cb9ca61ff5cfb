"""What a group remembers of its beginning, in the metadata of its offset commits. Pure.

A partition or topic that is newer than the group is read from its beginning, so all members must know what existed at
first. Each commit notes for its own topic how many partitions the topic had when the group began to read it. It also
notes which subscriptions have begun, each with a digest of the topics it matched then. So a topic without a note is
newer if the subscription has begun without it. If the subscription is not noted either, the group is just beginning, or
only another of its queries has begun. A note also has the topic's id, because an offset of a topic that was deleted and
recreated means other records. Its size does not depend on the number of topics: brokers allow 4,096 bytes a commit.
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
"""Written by an import: whatever the first query subscribes to, it continues an earlier job. A note of an older
version, which has no subscription, means the same. It counts until a query has noted its own subscription."""

MOST_BEGUN = 32
"""How many subscriptions a note lists, newest first. A group has one or two at a time; the rest are old ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The combined notes of a group."""

    known: Mapping[str, int] = field(default_factory=dict)
    """Partitions of each topic when the group began to read it; 0 for a topic that is newer."""
    begun: Mapping[str, str] = field(default_factory=dict)
    """Subscriptions that have begun, by `digest`, and the digest of what each began with."""

    def has_begun(self, subscription: str) -> bool:
        return subscription in self.begun or ANY in self.begun

    def with_begun(self, subscription: str, there: str) -> dict[str, str]:
        """All subscriptions, ours first. If ours has not begun before, it begins with `there`."""
        others = {one: at for one, at in self.begun.items() if one not in (subscription, ANY)}
        return dict(list(({subscription: self.begun.get(subscription, there)} | others).items())[:MOST_BEGUN])


def digest(lines: Iterable[str]) -> str:
    """A short hash of a subscription's names or pattern, or of the topics that it matches."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:8]


def digest_of_counts(counts: Mapping[str, int]) -> str:
    return digest(f"{topic} {count}" for topic, count in counts.items())


def write_note(topic: str, count: int, begun: Mapping[str, str], topic_id: str = "") -> str:
    """`topic_id`: empty if it is not known."""
    note = {NOTE: VERSION, "known": {topic: count}, "begun": dict(begun)}
    return json.dumps(note | ({"id": topic_id} if topic_id else {}), separators=(",", ":"))


def topic_id_in(metadata: str) -> str:
    """The id of the topic that an offset was committed for; empty if the commit does not tell."""
    try:
        note = json.loads(metadata)
        return str(note["id"]) if note[NOTE] == VERSION else ""
    except (ValueError, KeyError, TypeError):
        return ""


def read_notes(entries: Iterable[OffsetEntry]) -> Memory:
    """The combined notes of the group's commits. If they differ on a topic, the smallest count is used."""
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
    """Whether a commit was made by a holdfast query, or for one."""
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
        return Memory()  # another program's metadata, or none
