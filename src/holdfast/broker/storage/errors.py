"""What the storage engine refuses with, and what it reports when it had to repair something.

A refusal carries the Kafka error code the broker answers with. A recovery is a value, not a log line: the broker
decides how to tell people.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.model import ErrorCode, HoldfastError


class StorageError(HoldfastError):
    """A refused operation. `error` is what goes on the wire; after a refusal nothing has changed."""

    def __init__(self, error: ErrorCode, what: str, do: str) -> None:
        super().__init__(error.name, what, do)
        self.error = error


def disk_trouble(doing: str, cause: OSError) -> StorageError:
    """The disk refused (full, read-only, failing). Clients retry on this code, so all goes on when the disk works."""
    return StorageError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{doing} failed: {cause.strerror or cause}.",
        "Free some space or check the disk; the broker goes on by itself once writing works again.",
    )


@contextmanager
def disk_work(doing: str) -> Iterator[None]:
    """Turn an OSError into a refusal. Not for hot paths."""
    try:
        yield
    except OSError as error:
        raise disk_trouble(doing, error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One repair, made on opening or found while reading. `str()` of it is the one line for people."""

    topic: str
    """Topic name, or the journal's name."""
    partition: int
    """-1 for a journal."""
    file: str
    """Path below the data folder."""
    position: int
    """Byte position where the trouble starts."""
    cut_bytes: int
    """Bytes removed from the end of the file; 0 when nothing was removed because good data follows the damage."""
    damaged_bytes: int = 0
    """Bytes that stay in the file but can't be served."""
    first_offset: int = -1
    """First offset lost, -1 where offsets don't apply."""
    next_offset: int = -1
    """First good offset after the trouble."""
    unopened: bool = False
    """The file could not be opened, so nothing is known about its bytes."""
    reason: str

    @classmethod
    def unopenable(cls, topic: str, partition: int, folder: str, why: str) -> Recovery:
        """A partition that can't be opened."""
        return cls(
            topic=topic,
            partition=partition,
            file=folder,
            position=0,
            cut_bytes=0,
            unopened=True,
            reason=f"can't be opened: {why}",
        )

    @property
    def kind(self) -> str:
        if self.unopened:
            return "unusable"
        return "repaired" if self.cut_bytes else "damaged"

    def __str__(self) -> str:
        where = self.topic if self.partition < 0 else f"{self.topic}-{self.partition}"
        if self.unopened:
            return f"{where} {self.reason} ({self.file})"
        if self.cut_bytes:
            return f"{where}: cut a torn tail of {self.cut_bytes} bytes at {self.file}:{self.position} ({self.reason})"
        if self.first_offset >= 0 and not self.damaged_bytes:
            lost = f"offsets {self.first_offset} to {self.next_offset - 1} are unreadable"
            return f"{where}: {lost}: they are missing behind {self.file}:{self.position} ({self.reason})"
        lost = (
            "" if self.first_offset < 0 else f", offsets {self.first_offset} to {self.next_offset - 1} are unreadable"
        )
        return f"{where}: {self.damaged_bytes} damaged bytes at {self.file}:{self.position} ({self.reason}){lost}"
