"""Records that were taken from librdkafka a few hundred at a time, and are handed out one by one.

A call into librdkafka costs more than a record does. So poll() takes what is there in one call and gives it out from
here. What is here and was not handed out counts as unread: the position is in front of it, it goes when its partition
goes, waits when its partition is paused, and is read again by whoever takes over. Errors and ends of partitions keep
their place among the records.

librdkafka's own position is behind everything it gave. So where something is unread, this file knows the position: one
past the last record that was handed out. That is worked out when somebody asks, not with every record.

Another thread may ask while one polls: a worker that commits. Everything here but handing out is behind a lock, and
handing out is one step that can't be seen half done.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition

MOST_ROWS = 500
"""Taken at a time: the cost of the call is shared by so many, and a look at what is unread stays short."""

FIRST_ROWS = 16
"""Taken the first time, before it is known how large they are."""

MOST_BYTES = 1 << 20
"""Of values taken at a time, as far as the last ones tell: what a consumer may need beyond librdkafka's own queue."""

CALLBACKS = ("error_cb", "stats_cb", "throttle_cb")
"""Those that librdkafka makes while it gives out records. A token callback that raises is told to librdkafka alone."""


class Ahead:
    """One consumer's unread records, in librdkafka's order."""

    def __init__(self) -> None:
        self.ready: deque[ck.Message] = deque()
        """What can be handed out, from the left. Always the same object."""
        self.filling = False
        """While librdkafka is being asked: its positions are ahead of what came here."""
        self.fills = 0
        """How often it was asked: who looks at its positions sees by this whether it gave something meanwhile."""
        self._lock = threading.RLock()
        self._batch: list[ck.Message] = []
        """What was ready last, and of that its first part was handed out since."""
        self._aside: list[ck.Message] = []
        """Unread, of paused partitions."""
        self._reached: dict[TopicPartition, OffsetEntry] = {}
        """Where the application stands in what was handed out, as far as it is worked out."""
        self._rows = FIRST_ROWS

    def __bool__(self) -> bool:
        return bool(self.ready or self._aside)

    @property
    def wanted(self) -> int:
        """How many to take next."""
        return self._rows

    def put(self, rows: list[ck.Message]) -> None:
        """These came, behind all that is here."""
        with self._lock:
            self._work_out()
            self._batch.extend(rows)
            self.ready.extend(rows)
        size = sum(map(len, rows)) // len(rows) if rows else 0
        if rows:
            self._rows = max(1, min(MOST_ROWS, MOST_BYTES // max(1, size)))

    def take(self, count: int) -> list[ck.Message]:
        """Hand out up to so many."""
        rows: list[ck.Message] = []
        with contextlib.suppress(IndexError):  # another thread takes some too
            while len(rows) < count:
                rows.append(self.ready.popleft())
        return rows

    # -- where the application stands

    def stands(self, reached: Mapping[TopicPartition, OffsetEntry]) -> None:
        """Something was handed out beside us: this is where it has got to."""
        with self._lock:
            self._work_out()
            self._reached.update(reached)

    def reached(self, partition: TopicPartition) -> OffsetEntry | None:
        """One past the last record that was handed out of this partition; None when there was none since it began."""
        with self._lock:
            self._work_out()
            return self._reached.get(partition)

    def unread(self) -> dict[TopicPartition, int]:
        """The first unread record of each partition that has one."""
        found: dict[TopicPartition, int] = {}
        with self._lock:
            for row in (*self._aside, *self._not_handed_out()):
                if row.error() is None:
                    found.setdefault(_where(row), row.offset() or 0)
        return found

    def _work_out(self) -> None:
        handed = self._batch[: len(self._batch) - len(self.ready)]  # one more may be handed out behind this line
        if handed:
            self._note(handed)
            del self._batch[: len(handed)]

    def _note(self, handed: list[ck.Message]) -> None:
        last = {(row.topic(), row.partition()): row for row in handed if row.error() is None}
        self._reached.update({_where(row): _behind(row) for row in last.values()})

    def _not_handed_out(self) -> list[ck.Message]:
        self._work_out()
        return self._batch[len(self._batch) - len(self.ready) :]

    # -- what goes, waits and comes back

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read from elsewhere, or not at all any more."""
        gone = set(partitions)
        with self._lock:
            self._part(lambda row: _where(row) not in gone)
            self._aside = [row for row in self._aside if _where(row) not in gone]
            for partition in gone:
                self._reached.pop(partition, None)

    def set_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """These are paused. What is unread of them waits here: librdkafka goes on behind it."""
        paused = set(partitions)
        with self._lock:
            self._aside += self._part(lambda row: _where(row) not in paused)

    def bring_back(self, partitions: Iterable[TopicPartition]) -> None:
        """These are resumed: what waits of them comes first."""
        resumed = set(partitions)
        with self._lock:
            back = [row for row in self._aside if _where(row) in resumed]
            if back:
                self._aside = [row for row in self._aside if _where(row) not in resumed]
                self._begin_with([*back, *self._all_taken()])

    def _part(self, wanted: Callable[[ck.Message], bool]) -> list[ck.Message]:
        """Keep those that are wanted; what is not."""
        rows = self._all_taken()
        if rows:
            self._begin_with([row for row in rows if wanted(row)])
        return [row for row in rows if not wanted(row)]

    def _all_taken(self) -> list[ck.Message]:
        """Everything that is ready, taken one by one: what another thread takes meanwhile was handed out."""
        self._work_out()
        rows: list[ck.Message] = []
        with contextlib.suppress(IndexError):
            while True:
                rows.append(self.ready.popleft())
        taken = set(map(id, rows))
        self._note([row for row in self._batch if id(row) not in taken])
        self._batch = []
        return rows

    def _begin_with(self, rows: list[ck.Message]) -> None:
        self._batch = list(rows)
        self.ready.extend(rows)


class Raised:
    """What an application's callbacks raised inside librdkafka, kept until it has returned.

    confluent-kafka throws away the records of a call in which a callback raised. So none does: the first error is
    raised behind that call.
    """

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def guarded(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, with callbacks that don't raise."""
        return {
            key: self._guard(value) if key in CALLBACKS and callable(value) else value for key, value in config.items()
        }

    def _guard(self, function: Callable[..., Any]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001  # Ctrl-C too: it is raised as soon as the records are safe
                if self.first is None or (isinstance(self.first, Exception) and not isinstance(error, Exception)):
                    self.first = error

        return call

    def raise_first(self) -> None:
        """Once."""
        if self.first is not None:
            first, self.first = self.first, None
            raise first


def _where(row: ck.Message) -> TopicPartition:
    return TopicPartition(row.topic() or "", -1 if (number := row.partition()) is None else number)


def _behind(row: ck.Message) -> OffsetEntry:
    epoch = row.leader_epoch()
    return OffsetEntry((row.offset() or 0) + 1, -1 if epoch is None else epoch)
