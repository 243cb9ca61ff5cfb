"""The catalog: which topics there are, kept in a journal of its own so that every change is atomic and survives.

A topic is deleted in three steps: the intention is written, the files are removed, then the entry is. After a crash
between them the next start completes the deletion. A folder is never removed unless the catalog says that its topic is
deleted.

A change takes effect when it is on disk, and not before. `Catalog` writes a change at once, or collects the changes of
a `Plan`, which is written as one, in a thread if need be, and takes effect as a whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from holdfast.broker.storage.config import parse
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Files
from holdfast.broker.storage.frames import Entry
from holdfast.broker.storage.journal import Journal
from holdfast.model import ErrorCode

MAX_TOPIC_NAME = 249
"""Kafka's limit."""
MAX_PARTITIONS = 10_000
"""Partitions of one topic: the goal is thousands in all, and a metadata answer should stay below a megabyte."""

TOPICS_FOLDER = "topics"

T = TypeVar("T")

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
    """Simulated replicas: broker ids per partition, for trying rack-aware assignment. Where there are none it is the
    broker's own choice."""
    deleted: bool = False


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        what = f"{name[:MAX_TOPIC_NAME]!r} can't be a topic's name."
        do = "Use 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither '.' nor '..'."
        raise StorageError(ErrorCode.INVALID_TOPIC_EXCEPTION, what, do)


def check_partitions(count: int, *, more_than: int = 0) -> None:
    if not more_than < count <= MAX_PARTITIONS:
        what = f"{count} is not a possible number of partitions."
        if more_than and 0 < count <= more_than:
            what = f"The topic has {more_than} partitions already, and {count} would not be more."
        raise StorageError(ErrorCode.INVALID_PARTITIONS, what, f"Use {more_than + 1} to {MAX_PARTITIONS}.")


def _check_replicas(replicas: Sequence[Sequence[int]], partitions: int) -> None:
    if replicas and (len(replicas) != partitions or any(not ids for ids in replicas)):
        what = f"{len(replicas)} replica lists were given for {partitions} partitions."
        raise StorageError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what, "Give one list of brokers for each partition.")


def _flat(name: str) -> str:
    return name.replace(".", "_")


def topic_folder(topic: Topic) -> str:
    return f"{TOPICS_FOLDER}/{topic.topic_id.hex}"


def partitions_on_disk(files: Files, topic: Topic) -> list[int]:
    """Those that ever held a record."""
    try:
        names = files.listdir(topic_folder(topic))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


@dataclass(slots=True)
class Plan:
    """Changes that were decided and have not taken effect yet."""

    journal: Journal
    entries: list[Entry] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)
    """What to do, in order, when the entries are on disk."""
    undo: list[Callable[[], None]] = field(default_factory=list)
    """How to undo each change in memory."""
    error: StorageError | None = None
    deletes: bool = False
    """A topic's deletion is among them. Long work may follow from it, so no more is planned behind it: not a new topic
    of that name either."""

    def run(self) -> Plan:
        """Write and sync them. Touches nothing else, so it may run in another thread."""
        try:
            if self.entries:
                self.journal.append(self.entries)
        except StorageError as error:
            self.error = error
        return self

    def do(self, work: Callable[[], T]) -> T:
        """Plan what `work` changes. If it raises, it changed nothing."""
        entries, then = len(self.entries), len(self.then)
        try:
            return work()
        except BaseException:
            self.take_back(entries)
            del self.then[then:]
            raise

    def take_back(self, entries: int = 0) -> None:
        """Undo all changes but the first `entries`."""
        while len(self.undo) > entries:
            self.undo.pop()()
        del self.entries[entries:]


class Catalog:
    """Topics and a few named properties (cluster id, next producer id), in memory and in the journal alike."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self._by_flat_name: dict[str, set[str]] = {}
        """Names that differ in "." and "_" alone are together."""
        self.properties: dict[str, str] = {}
        self.partitions = 0
        """Of all topics together."""
        self.leftover: list[Topic] = []
        """Topics whose deletion was begun and not finished."""
        self._plan: Plan | None = None
        self.writing = False
        """A plan is being written. One at a time, and nothing else is written meanwhile."""
        journal.replay(self._replay)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        kind, name = key[:1], key[1:]
        if kind == _PROPERTY and value is not None:
            self.properties[name.decode()] = value.decode()
        elif kind == _TOPIC:
            topic = None if value is None else _decode(UUID(bytes=name), value)
            self.leftover = [each for each in self.leftover if each.topic_id.bytes != name]
            if topic is not None and topic.deleted:
                self.leftover.append(topic)
            self._set(UUID(bytes=name), None if topic is None or topic.deleted else topic)

    def _set(self, topic_id: UUID, topic: Topic | None) -> None:
        """Set the topic with this id in memory; None removes it."""
        known = self.by_id.pop(topic_id, None)
        if known is not None:
            self.partitions -= known.partitions
            if self.by_name.get(known.name) is known:
                del self.by_name[known.name]
                self._forget_flat_name(known.name)
        if topic is not None:
            self.partitions += topic.partitions
            self.by_id[topic_id] = self.by_name[topic.name] = topic
            self._by_flat_name.setdefault(_flat(topic.name), set()).add(topic.name)

    def _forget_flat_name(self, name: str) -> None:
        alike = self._by_flat_name[_flat(name)]
        alike.discard(name)
        if not alike:
            del self._by_flat_name[_flat(name)]

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs from this one in "." and "_" alone."""
        return min(self._by_flat_name.get(_flat(name), set()) - {name}, default=None)

    def existing(self, name: str) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            what = f"There is no topic {name!r}."
            raise StorageError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, "Create it first.")
        return topic

    # Changes

    def put(self, topic: Topic) -> None:
        self._change_topic(topic, topic)

    def begin_delete(self, topic: Topic) -> None:
        self._change_topic(replace(topic, deleted=True), None)
        if self._plan is not None:
            self._plan.deletes = True

    def _change_topic(self, written: Topic, after: Topic | None) -> None:
        topic_id = written.topic_id
        before = self.by_id.get(topic_id)
        self._change(
            (_TOPIC + topic_id.bytes, _encode(written)),
            lambda: self._set(topic_id, after),
            lambda: self._set(topic_id, before),
        )

    def finish_delete(self, topics: Iterable[Topic]) -> None:
        """Not synced: if it gets lost, the next start finds nothing to remove and finishes it again."""
        self._check_free()
        self._journal.append([(_TOPIC + topic.topic_id.bytes, None) for topic in topics], commit=False)

    def set_property(self, name: str, value: str) -> None:
        before = self.properties.get(name)

        def undo() -> None:
            del self.properties[name]
            if before is not None:
                self.properties[name] = before

        self._change(
            (_PROPERTY + name.encode(), value.encode()), lambda: self.properties.__setitem__(name, value), undo
        )

    def _change(self, entry: Entry, do: Callable[[], None], undo: Callable[[], None]) -> None:
        if self._plan is None:
            self._check_free()
            self._journal.append([entry])
            do()
            return
        do()
        self._plan.entries.append(entry)
        self._plan.then.append(do)
        self._plan.undo.append(undo)

    def when_written(self, what: Callable[[], None]) -> None:
        """Call `what` when the changes just made take effect: at once, or when their plan is on disk."""
        if self._plan is None:
            what()
        else:
            self._plan.then.append(what)

    # Plans

    @contextmanager
    def planning(self) -> Iterator[Plan]:
        """Collect changes instead of writing them. Inside the block, work sees the changes planned before it; after the
        block nobody sees any of them until `finish`. One plan at a time; the block must not await.
        """
        self._check_free()
        plan = self._plan = Plan(self._journal)
        try:
            yield plan
        finally:
            self._plan = None
            planned = len(plan.entries)
            entries = list(plan.entries)
            plan.take_back()
            plan.entries = entries
            self.writing = planned > 0

    def _check_free(self) -> None:
        assert not self.writing, "a plan is being written"
        assert self._plan is None, "another plan is being made"

    def finish(self, plan: Plan) -> None:
        """The plan was run: its changes take effect. Raises if it could not be written; then none of them does."""
        self.writing = False
        if plan.error is not None:
            raise plan.error
        for then in plan.then:
            then()


def new_topic(
    catalog: Catalog,
    topic_id: UUID,
    name: str,
    partitions: int,
    *,
    configs: Mapping[str, str] | None,
    replicas: Sequence[Sequence[int]],
) -> Topic:
    """A topic that may be put into the catalog, checked."""
    check_name(name)
    if name in catalog.by_name:
        what = f"Topic {name!r} exists already."
        raise StorageError(ErrorCode.TOPIC_ALREADY_EXISTS, what, "Use it, or choose another name.")
    check_partitions(partitions)
    _check_replicas(replicas, partitions)
    parse(configs or {})
    return Topic(
        name=name,
        topic_id=topic_id,
        partitions=partitions,
        configs=dict(configs or {}),
        replicas=tuple(tuple(ids) for ids in replicas),
    )


def grown_topic(topic: Topic, partitions: int, replicas: Sequence[Sequence[int]]) -> Topic:
    """The topic with this many partitions, checked; `replicas` are those of the new ones."""
    check_partitions(partitions, more_than=topic.partitions)
    _check_replicas(replicas, partitions - topic.partitions)
    if not replicas and not topic.replicas:
        return replace(topic, partitions=partitions)
    present = (*topic.replicas, *[()] * (topic.partitions - len(topic.replicas)))
    added = [tuple(ids) for ids in replicas] or [()] * (partitions - topic.partitions)
    return replace(topic, partitions=partitions, replicas=(*present, *added))


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
