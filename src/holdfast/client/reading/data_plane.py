"""The data plane: what a consumer reads, and which of its readers reads it.

poll() and consume() read through librdkafka, in manual-assign mode, with explicit offsets and without its group code.
consume_arrow() reads through our own fetcher. One of the two reads at a time (`reader`). A call of the other kind hands
every partition over at the application's position. So a program may mix them: no record is lost or comes twice.

Calls come from the thread that polls, or from others in their turn (`turns`). Only assigned partitions are delivered:
when `drop` or `replace` returns, no reader delivers what was taken away.

A signal handler may raise, as Ctrl-C does, between any two steps. A change that was interrupted is finished by the next
call (`_changing`), before anything is read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from functools import partial
from typing import TYPE_CHECKING

import confluent_kafka as ck

from holdfast.client.partitions import (
    AS_COMMITTED,
    NO_OFFSET,
    RESET,
    confluent_at,
    confluent_entry,
    entry_of,
    first_offsets,
    first_offsets_of_batch,
    name_of,
    names_of,
)
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.turns import Turns
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.fetched_bytes import FetchedBytes

if TYPE_CHECKING:
    import pyarrow as pa


CLOSE_TRIES = 5
"""How many times closing librdkafka is tried while callbacks raise; each try leaves fewer callbacks to make."""

REFUSALS = (ck.KafkaException, TypeError, ValueError, RuntimeError)
"""What a reader raises for a change that it refuses; then nothing has changed."""

STORED = OffsetEntry(ck.OFFSET_STORED)
"""The start of a partition for which the application named none."""


class DataPlane:
    """What one consumer reads."""

    def __init__(
        self, reader: Reader, *, reset: str, turns: Turns | None = None, fetched: FetchedBytes | None = None
    ) -> None:
        """`reader` is the first in charge. All readers of a consumer have the same book, and count into `fetched`."""
        self.reader = reader
        """The one in charge."""
        self.book = reader.book
        self.turns = turns or Turns()
        self.fetched = fetched or FetchedBytes(None)
        self.readers = [reader]
        """All that were in charge, and have to be closed."""
        self._reset = RESET[reset]
        self._unfinished: Callable[[], None] | None = None
        """What finishes a change that was interrupted."""

    # -- who reads

    def let_read(self, reader: Reader) -> None:
        """Put this reader in charge. It goes on where the application stands."""
        if self.reader is reader and self._unfinished is None:
            return
        with self.turns.asking():
            self._finish()
            if self.reader is reader:
                return
            if reader not in self.readers:
                self.readers.append(reader)
            self.reader.write_down()
            change = partial(self._change_over, self.reader, reader)
            with self._changing(change):
                change()

    def _change_over(self, before: Reader, after: Reader) -> None:
        before.stop()
        self.reader = after
        after.take_over()

    # -- what was interrupted

    @contextlib.contextmanager
    def _changing(self, again: Callable[[], None]) -> Iterator[None]:
        """A change of what is read. Ctrl-C may interrupt it at any step, and then the reader and the book disagree. So
        before anything else is read or changed, `again` is called, which must finish it from wherever it was left."""
        with self.turns.asking():
            self._finish()
            try:
                yield
            except REFUSALS:
                raise
            except BaseException:
                self._unfinished = again
                raise

    def read_again(self, again: Callable[[], None]) -> None:
        """A call was interrupted after it had taken records. `again` puts them back, with the next call."""
        self._unfinished = again

    def _settle(self) -> None:
        """Finish what was interrupted, if anything was."""
        if self._unfinished is not None:
            with self.turns.asking():
                self._finish()

    def _finish(self) -> None:
        """The same for a thread that has the turn."""
        if (again := self._unfinished) is not None:
            try:
                again()
            except REFUSALS:
                self._unfinished = None
                raise
            self._unfinished = None

    # -- what is assigned

    @property
    def assigned(self) -> KeysView[TopicPartition]:
        return self.book.assigned

    def add(self, offsets: Mapping[TopicPartition, int | None], *, named: Iterable[ck.TopicPartition] = ()) -> None:
        """Start these; None means that the group has no offset yet, so auto.offset.reset decides.

        `named` is what the application gave to `assign`, here and below: what `assignment` returns.
        """
        self._settle()
        starts = {p: self._reset if at is None else at for p, at in offsets.items() if p not in self.assigned}
        if starts:
            self.take([confluent_at(p, at) for p, at in sorted(starts.items())], named=named)

    def take(self, partitions: Iterable[ck.TopicPartition], *, named: Iterable[ck.TopicPartition] = ()) -> None:
        """Read these too, each from the offset it names."""
        wanted, given = list(partitions), list(named)
        with self._changing(partial(self._take_again, wanted, given, names_of(wanted) - self.assigned)):
            self.reader.add(wanted)
            self._remember(given)

    def _take_again(
        self, wanted: list[ck.TopicPartition], named: list[ck.TopicPartition], new: set[TopicPartition]
    ) -> None:
        self.reader.drop_again(new)
        self.reader.add(wanted)
        self._remember(named)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        with self.turns.asking():
            self._finish()
            gone = set(partitions) & self.assigned
            if gone:
                with self._changing(lambda: self.reader.drop_again(gone)):
                    self.reader.drop(gone)

    def replace(self, partitions: Iterable[ck.TopicPartition], *, named: Iterable[ck.TopicPartition] = ()) -> None:
        """A manual assignment of the user's own."""
        wanted, given = list(partitions), list(named)
        with self._changing(replace := partial(self._replace, wanted, given)):
            replace()

    def _replace(self, wanted: list[ck.TopicPartition], named: list[ck.TopicPartition]) -> None:
        self.reader.replace(wanted)
        self._remember(named)

    def _remember(self, named: Iterable[ck.TopicPartition]) -> None:
        given = {name_of(p): entry_of(p) for p in named if p.offset not in AS_COMMITTED}
        self.book.named.update({p: entry for p, entry in given.items() if p in self.assigned})

    def assignment(self) -> list[ck.TopicPartition]:
        """What is assigned, with the offsets that the application named, and OFFSET_STORED where it named none: as in
        confluent-kafka, wherever the partitions stand by now."""
        return [confluent_entry(p, self.book.named.get(p, STORED)) for p in sorted(self.assigned)]

    def seek(self, partition: ck.TopicPartition) -> None:
        with self.turns.asking():
            self._finish()
            stood = self.standing([name_of(partition)])
            with self._changing(seek := partial(self._seek, partition, stood)):
                seek()

    def _seek(self, partition: ck.TopicPartition, stood: Mapping[TopicPartition, OffsetEntry]) -> None:
        self.reader.seek(partition)
        self.book.before_seek.update(stood)

    def rewind(self, taken: list[ck.Message] | pa.RecordBatch) -> None:
        """These records are not handed out after all: read each partition again from its first one."""
        first = first_offsets(taken) if isinstance(taken, list) else first_offsets_of_batch(taken)
        with self._changing(rewind := partial(self._rewind, first)):
            rewind()

    def _rewind(self, first: Mapping[TopicPartition, int]) -> None:
        for where, offset in sorted(first.items()):
            if where in self.assigned:
                self.reader.seek(confluent_at(where, offset))
                self.book.before_seek[where] = OffsetEntry(offset)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Stop reading these. A partition that was never read is not paused, as with librdkafka. So the first on_assign
        can pause its partitions only after it has assigned them itself."""
        named = names_of(partitions) & self.book.known
        with self._changing(lambda: self.reader.pause(named)):
            self.reader.pause(named)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        named = names_of(partitions)
        with self._changing(lambda: self.reader.resume(named)):
            self.reader.resume(named)

    # -- where it stands

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was handed out."""
        named = [name_of(p) for p in partitions]
        reached = self.positions(named)
        return [confluent_entry(where, reached.get(where, NO_OFFSET)) for where in named]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where the application stands: one past the last record it got, with that record's leader epoch if known.
        Partitions of which it got nothing are left out."""
        self._settle()
        return self.reader.positions(sorted(set(partitions) & self.assigned))

    def handed_out(self) -> dict[TopicPartition, OffsetEntry]:
        """`standing` of everything assigned, quickly, for callers that ask often (see `Reader.handed_out`)."""
        self._settle()
        return {**self.book.before_seek, **self.reader.handed_out(sorted(self.assigned))}

    def standing(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where a commit would be made: the position, or after a seek the one before it until a new record came."""
        asked = set(partitions)
        before = {p: entry for p, entry in self.book.before_seek.items() if p in asked}
        return {**before, **self.positions(asked)}

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The low and high watermark that the reader in charge has last seen."""
        return self.reader.watermarks(partition)

    def lag_max(self) -> int | None:
        """The largest lag: from a position to the high watermark that the partition's reader has last seen."""
        reached = self.positions(self.assigned)
        seen = {p: marks for p in reached if (marks := self.watermarks(p)) is not None}
        return max((max(0, high - reached[p].offset) for p, (_low, high) in seen.items()), default=None)

    def close(self) -> None:
        """Close all readers. If one raises, it and the rest are closed by calling this again (`close_readers`)."""
        self.book.forget(self.assigned)
        while self.readers:
            self.readers[-1].close()
            self.readers.pop()


def close_readers(data: DataPlane) -> None:
    """While closing, librdkafka makes the error_cb calls that are left, and stops if one raises: then it is closed
    again. Such an exception must not keep the consumer from closing, so it is logged."""
    for _ in range(CLOSE_TRIES):
        try:
            data.close()
            return
        except Exception as error:  # noqa: BLE001  # an application's callback may raise anything
            logging.getLogger("holdfast").warning("a callback raised while the consumer was closed: %r", error)
