"""Where a sink's files live: what the ledger needs of a file system, and the store for local disks and NFS. Object
stores are in `objects`, HDFS is in `hdfs`.

The ledger relies on one promise above all: `create` is atomic, exclusive and durable. If two callers create one name,
exactly one gets True, and a crash at any point leaves either no file or the whole one.

Names are relative, with forward slashes. Names whose last part starts with a dot are hidden: the store's own, or those
of somebody else's files. They are never listed.
This module knows nothing of ledgers, Parquet or Spark.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit

from holdfast.model import HoldfastError
from holdfast.spark.files.aside import is_unique, put_back, remove_untouched

TEMPORARY = ".new-"
"""Prefix of files that are being written. One that is older than any batch is left over from a crash."""


class Store(Protocol):
    """What a file system must offer to hold a sink."""

    def prove(self) -> None:
        """Try out whether files can be created here, exclusively, and raise if not."""

    def create(self, name: str, data: bytes) -> bool:
        """Create the file with this content, durably; False, with nothing changed, if the name is taken.

        Two callers with exactly the same content may both get True.
        """

    def read(self, name: str) -> bytes | None:
        """The whole content, or None if there is no such file."""

    def exists(self, name: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted, without the folder's name; empty if there is no such folder."""

    def leftovers(self, folder: str) -> list[str]:
        """Full names of the store's own unfinished files in a folder."""

    def writing(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A new file to write into; durable, and visible under its name, only once the block ends without an error."""

    def open(self, name: str) -> IO[bytes]:
        """An existing file, to read at any position."""

    def modified(self, name: str) -> float | None:
        """Seconds since 1970 of the last change, or None if there is no such file."""

    def touch(self, name: str) -> bool:
        """Mark the file as changed now, for `remove_untouched`; False if there is no such file."""

    def size(self, name: str) -> int | None: ...

    def remove(self, name: str) -> None:
        """Nothing happens if there is no such file."""

    def remove_untouched(self, name: str, before: float) -> bool:
        """Remove the file unless it was changed or touched at `before` or later; False if it stays or does not exist.

        If one caller touches a file while another removes it, at most one of them succeeds.
        """

    def put_back(self, folder: str, ours: Callable[[str], bool]) -> None:
        """Undo removals in this folder that a crash left half done, of files with one of our names."""


class LocalStore:
    """Files under one folder of a local disk or an NFS mount.

    A file is written under a temporary name, synced, then linked to its own: link(2) is atomic and refuses a taken name
    on both. An NFS answer may be lost and the call repeated, so a refusal is checked: if our temporary file has two
    links, the first call had succeeded.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def prove(self) -> None:
        """Refuse a folder that nobody can write into. link(2) is exclusive; without hard links, `create` raises."""
        if self.root.is_dir() and os.access(self.root, os.W_OK | os.X_OK):
            return
        there = next(folder for folder in (self.root.absolute(), *self.root.absolute().parents) if folder.exists())
        try:
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=there):
                pass
        except OSError as error:
            raise HoldfastError(
                "STORE_NOT_WRITABLE",
                f"Nothing can be written to {self.root}: {there}: {error.strerror}.",
                "Check the path, and that this user may write there.",
            ) from error

    def create(self, name: str, data: bytes) -> bool:
        with self._temporary(name) as (temporary, file):
            file.write(data)
            _sync(file)
            return self._link(temporary, self.root / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._listed(folder) if not name.startswith("."))

    def leftovers(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{name}" for name in self._listed(folder) if is_unique(name, TEMPORARY))

    def _listed(self, folder: str) -> list[str]:
        try:
            return [path.name for path in (self.root / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        with self._temporary(name) as (temporary, file):
            yield file
            _sync(file)
            if not self._link(temporary, self.root / name):
                raise HoldfastError("FILE_EXISTS", f"{name} is there already.", "Names of data files must be new.")

    def open(self, name: str) -> IO[bytes]:
        return (self.root / name).open("rb")

    def modified(self, name: str) -> float | None:
        try:
            return (self.root / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def touch(self, name: str) -> bool:
        try:
            os.utime(self.root / name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int | None:
        try:
            return (self.root / name).stat().st_size
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def remove_untouched(self, name: str, before: float) -> bool:
        return remove_untouched(self, name, before)

    def put_back(self, folder: str, ours: Callable[[str], bool]) -> None:
        put_back(self, folder, self._listed(folder), ours)

    def move(self, name: str, to: str) -> bool:
        try:
            (self.root / name).rename(self.root / to)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _temporary(self, name: str) -> Iterator[tuple[Path, IO[bytes]]]:
        folder = (self.root / name).parent
        _make_folder(folder)
        temporary = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                yield temporary, file
        finally:
            temporary.unlink(missing_ok=True)

    @staticmethod
    def _link(temporary: Path, target: Path) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            if temporary.stat().st_nlink < 2:
                return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            raise HoldfastError(
                "NO_HARD_LINKS",
                f"The file system of {target.parent} can't link files, so two writers could both take one name.",
                "Keep the sink on a local disk or an NFS mount.",
            ) from error
        sync_folder(target.parent)
        return True


def open_store(
    path: str, options: Mapping[str, str] | None = None, *, patience_s: float | None = None, proven: bool = False
) -> Store:
    """The store of a path or URL. Of `options`, a source's or sink's, only `holdfast.store.…` are used.

    `patience_s`: how long a failed request is retried. `proven`: see `ObjectStore`.
    """
    scheme, _, rest = path.partition("://")
    if "://" not in path and not path.startswith("file:"):
        return LocalStore(path)
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStore(unquote(parts.path))
    from holdfast.spark.files import buckets, hdfs
    from holdfast.spark.files.store_options import parse_store_options

    told, patience = parse_store_options(options), buckets.PATIENCE_S if patience_s is None else patience_s
    if scheme in buckets.SCHEMES and rest:
        from holdfast.spark.files.objects import ObjectStore

        return ObjectStore(path, told, patience_s=patience, proven=proven)
    if scheme in hdfs.SCHEMES and rest.strip("/"):
        return hdfs.HdfsStore(path, told, patience_s=patience, proven=proven)
    raise HoldfastError(
        "STORE_UNSUPPORTED",
        f"A sink can't live at {path}: it is not known to create files exclusively.",
        "Give a path that the driver and all executors have mounted (local disk, NFS), a bucket "
        f"({', '.join(f'{name}://' for name in buckets.SCHEMES)}), or an HDFS by its web address "
        "(webhdfs://namenode:9870/path). Or write through a database with exactly_once().",
    )


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _make_folder(folder: Path) -> None:
    """Like `mkdir -p`, but durable: the new folders survive a crash of the machine."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Make new and renamed entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
