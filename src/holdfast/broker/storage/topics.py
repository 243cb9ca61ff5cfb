"""The catalog: which topics there are, kept in a journal of its own so that every change is atomic and survives.

A topic is deleted in two steps: the intention is written, the files go, then the entry goes. A crash between them is
finished on the next start, and a folder is never removed unless the catalog says that its topic is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Files
from holdfast.broker.storage.journal import Journal
from holdfast.model import ErrorCode

MAX_TOPIC_NAME = 249
"""Kafka's limit."""
MAX_PARTITIONS = 10_000
"""Partitions of one topic: the goal is thousands in all, and a metadata answer should stay below a megabyte."""

TOPICS_FOLDER = "topics"

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC, _PROPERTY = b"t", b"p"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """As set by users; defaults are not in here."""
    replicas: tuple[tuple[int, ...], ...] = ()
    """Simulated replicas: broker ids per partition, for trying rack-aware assignment. Empty: the broker's own choice.
    """
    deleted: bool = False


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        what = f"{name[:MAX_TOPIC_NAME]!r} can't be a topic's name."
        do = "Use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither '.' nor '..'."
        raise StorageError(ErrorCode.INVALID_TOPIC_EXCEPTION, what, do)


def check_partitions(count: int, *, more_than: int = 0) -> None:
    if not more_than < count <= MAX_PARTITIONS:
        what = f"{count} is not a possible number of partitions."
        raise StorageError(ErrorCode.INVALID_PARTITIONS, what, f"Use {more_than + 1} to {MAX_PARTITIONS}.")


def topic_folder(topic: Topic) -> str:
    return f"{TOPICS_FOLDER}/{topic.topic_id.hex}"


def partitions_on_disk(files: Files, topic: Topic) -> list[int]:
    """Those that ever held a record."""
    try:
        names = files.listdir(topic_folder(topic))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


class Catalog:
    """Topics and a few named properties (cluster id, next producer id), in memory and in the journal alike."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.properties: dict[str, str] = {}
        self.leftover: list[Topic] = []
        """Topics whose deletion was begun and not finished."""
        journal.replay(self._replay)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        kind, name = key[:1], key[1:]
        if kind == _PROPERTY and value is not None:
            self.properties[name.decode()] = value.decode()
        elif kind == _TOPIC:
            known = self.by_id.pop(UUID(bytes=name), None)
            if known is not None and self.by_name.get(known.name) is known:
                del self.by_name[known.name]
            self.leftover = [topic for topic in self.leftover if topic.topic_id.bytes != name]
            if value is not None:
                self._enter(_decode(UUID(bytes=name), value))

    def _enter(self, topic: Topic) -> None:
        if topic.deleted:
            self.leftover.append(topic)
        else:
            self.by_id[topic.topic_id] = topic
            self.by_name[topic.name] = topic

    def put(self, topic: Topic) -> None:
        self._journal.append([(_TOPIC + topic.topic_id.bytes, _encode(topic))])
        self._enter(topic)

    def begin_delete(self, topic: Topic) -> None:
        self._journal.append([(_TOPIC + topic.topic_id.bytes, _encode(replace(topic, deleted=True)))])
        del self.by_id[topic.topic_id], self.by_name[topic.name]

    def finish_delete(self, topic: Topic) -> None:
        self._journal.append([(_TOPIC + topic.topic_id.bytes, None)])

    def set_property(self, name: str, value: str) -> None:
        self._journal.append([(_PROPERTY + name.encode(), value.encode())])
        self.properties[name] = value


def _encode(topic: Topic) -> bytes:
    fields = {
        "name": topic.name,
        "partitions": topic.partitions,
        "configs": dict(topic.configs),
        "replicas": topic.replicas,
        "deleted": topic.deleted,
    }
    return json.dumps(fields, sort_keys=True).encode()


def _decode(topic_id: UUID, data: bytes) -> Topic:
    fields = json.loads(data)
    return Topic(
        name=fields["name"],
        topic_id=topic_id,
        partitions=fields["partitions"],
        configs=fields.get("configs", {}),
        replicas=tuple(tuple(ids) for ids in fields.get("replicas", ())),
        deleted=fields.get("deleted", False),
    )
