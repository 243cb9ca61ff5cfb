"""A sink's files in an object store: S3 and compatible servers, Google Cloud Storage, Azure Blob Storage.

`create` is the store's put-if-absent (If-None-Match: * or similar). Some servers accept that header and ignore it, so
each process tries it out before it creates anything (`prove`). An answer may be lost and the request repeated: then the
store says that the name is taken, and the stored content is compared with ours. obstore repeats what it knows to be
harmless; we repeat everything, because here everything is (`_ask`).

Objects can't be renamed and their times can't be set, so `touch` and `remove_untouched` exclude each other by marks:

    data/orders/3/5d0c….parquet
    data/orders/3/.kept/5d0c….parquet/77e1…      the file was touched when this mark was made
    data/orders/3/.going/5d0c….parquet/a9f0…     somebody wants to remove the file

Each side first puts its own mark and then looks for the other's. These stores are consistent (a read sees all earlier
writes), so at least one of the two sees the other and gives way. Marks of touching live as long as their file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, TypeVar

from holdfast.model import HoldfastError
from holdfast.spark.files.aside import beside, is_unique
from holdfast.spark.files.buckets import PATIENCE_S, open_bucket, parse_address
from holdfast.spark.files.proving import PROBE, StoreError, prove
from holdfast.spark.files.ranged import WHOLE_BYTES, opened
from holdfast.spark.files.store_options import StoreOptions

Asked = TypeVar("Asked")

KEPT, GOING = ".kept", ".going"

ONE_PUT_BYTES = 64 * 1024 * 1024
"""Files up to this size are buffered in memory and sent in one request; larger ones are buffered on disk and sent in
parts."""
ATTEMPTS = 20
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before a broken request is repeated."""
REMOVAL_S = 60.0
"""A remover that was stopped for longer than this between its mark and the removal gives up for now."""


class ObjectStore:
    """Objects under one prefix."""

    def __init__(
        self,
        url: str,
        options: StoreOptions | None = None,
        *,
        patience_s: float = PATIENCE_S,
        proven: bool = False,
        client: Any = None,
    ) -> None:
        """`proven`: another process has already tried this store out. `client` reaches the bucket; None opens one."""
        address = parse_address(url)
        self.root = address.url
        self._options = StoreOptions() if options is None else options
        self.client = open_bucket(address, self._options, patience_s) if client is None else client
        self._patience_s = patience_s
        self._is_proven = proven
        self._kept: dict[str, str] = {}
        """Our newest mark of each file that we touched."""

    def prove(self) -> None:
        """Some servers accept the condition and ignore it."""
        if not self._is_proven:
            prove((self.root, self._options.get("endpoint_url", "")), self._create, self.remove)

    def create(self, name: str, data: bytes) -> bool:
        self.prove()
        return self._create(name, data)

    def _create(self, name: str, data: bytes) -> bool:
        """Also True if a file with exactly this content exists: our request succeeded, and its answer was lost."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> bool:
            try:
                self.client.put(name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        for _ in range(ATTEMPTS):
            if self._ask(f"create {name}", put):
                return True
            found = self.read(name)
            if found is not None:
                return found == data
            # Refused, though nothing is there: S3 may refuse two requests that come at once. Or it was removed since.
        raise StoreError(
            "STORE_BUSY",
            f"{ATTEMPTS} times in a row {self.root} refused to create {name} though it is not there.",
            "See the server's log. Nothing was written.",
        )

    def read(self, name: str) -> bytes | None:
        def get() -> bytes | None:
            try:
                return bytes(self.client.get(name).bytes())
            except FileNotFoundError:
                return None

        return self._ask(f"read {name}", get)

    def exists(self, name: str) -> bool:
        return self._head(name) is not None

    def names(self, folder: str) -> list[str]:
        return [name for name in self._listed(folder) if not name.startswith(".")]

    def leftovers(self, folder: str) -> list[str]:
        kept = self._under(f"{folder}/{KEPT}")
        there = {f"{folder}/{KEPT}/{name}" for name in self._listed(folder)} if kept else set()
        orphans = [name for name in kept if name.rpartition("/")[0] not in there]
        marks = [*self._under(f"{folder}/{GOING}"), *self._under(f"{folder}/{PROBE}"), *orphans]
        return sorted(name for name in marks if is_unique(name.rpartition("/")[2], ""))

    def _listed(self, folder: str) -> list[str]:
        found = self._ask(f"list {folder}", lambda: self.client.list_with_delimiter(folder))
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def _under(self, folder: str) -> list[str]:
        """Full names of everything in a folder and the folders inside it."""

        def listed() -> list[str]:
            return [str(one["path"]) for some in self.client.list(folder) for one in some]

        return self._ask(f"list {folder}", listed)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Data files have new names, so a request may be repeated without harm."""
        with tempfile.SpooledTemporaryFile(max_size=ONE_PUT_BYTES) as file:
            yield file
            size = file.seek(0, io.SEEK_END)

            self._ask(f"write {name}", lambda: self._send(name, file, size))

    def _send(self, name: str, file: IO[bytes], size: int) -> None:
        """If the answer that ends a file of parts is lost, obstore asks again, and hears of no such upload."""
        from obstore.exceptions import BaseError

        file.seek(0)
        try:
            self.client.put(name, file, use_multipart=size > ONE_PUT_BYTES)
        except (BaseError, OSError):
            # Nobody else has this name, and it is there whole or not at all.
            if size <= ONE_PUT_BYTES or self.size(name) != size:
                raise

    def open(self, name: str) -> IO[bytes]:
        def get() -> tuple[bytes, int]:
            got = self.client.get(name, options={"range": (0, WHOLE_BYTES)})
            return bytes(got.bytes()), int(got.meta["size"])

        start, size = self._ask(f"read {name}", get, missing=True)
        return opened(start, size, partial(self._range_of, name))

    def _range_of(self, name: str, start: int, end: int) -> bytes:
        def get() -> bytes:
            return bytes(self.client.get_range(name, start=start, end=end))

        return self._ask(f"read {name}", get, missing=True)

    def modified(self, name: str) -> float | None:
        head = self._head(name)
        # Some stores round down to seconds, and nothing may look older than it is.
        return None if head is None else head["last_modified"].timestamp() + 0.999

    def touch(self, name: str) -> bool:
        mark, before = _mark(name, KEPT), self._kept.get(name)
        self._put(mark)
        if self._under(_marks(name, GOING)) or not self.exists(name):
            with contextlib.suppress(OSError):
                self.remove(mark)
            return False
        self._kept[name] = mark
        if before is not None:
            with contextlib.suppress(OSError):
                self.remove(before)
        return True

    def size(self, name: str) -> int | None:
        head = self._head(name)
        return None if head is None else int(head["size"])

    def remove(self, name: str) -> None:
        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self.client.delete(name)

        self._ask(f"remove {name}", delete)

    def remove_untouched(self, name: str, before: float) -> bool:
        began, mark = time.monotonic(), _mark(name, GOING)
        self._put(mark)
        kept = self._under(_marks(name, KEPT))
        times = [self.modified(one) for one in (name, *kept)]
        untouched = times[0] is not None and all(at is None or at < before for at in times)
        going = untouched and time.monotonic() - began < REMOVAL_S
        for one in (name, *kept) if going else ():
            self.remove(one)
        self.remove(mark)
        return going

    def put_back(self, folder: str, ours: Callable[[str], bool]) -> None:
        """Nothing to do: files are not moved. The mark of a remover that died is one of the leftovers."""

    def _put(self, name: str) -> None:
        self._ask(f"write {name}", lambda: self.client.put(name, b"", use_multipart=False))

    def _head(self, name: str) -> Any:
        def head() -> Any:
            try:
                return self.client.head(name)
            except FileNotFoundError:
                return None

        return self._ask(f"look at {name}", head)

    def _ask(self, what: str, request: Callable[[], Asked], *, missing: bool = False) -> Asked:
        """A request, repeated while its connection breaks. obstore repeats none that it takes for harmful, as a
        conditional put, a removal, and an answer that broke off in its content."""
        from obstore.exceptions import GenericError

        began, pauses = time.monotonic(), itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1]))
        while True:
            with self._asking(what, missing=missing):
                try:
                    return request()
                except GenericError as error:
                    pause = next(pauses)
                    if not broken_off(error) or time.monotonic() + pause - began > self._patience_s:
                        raise
            time.sleep(pause)

    @contextmanager
    def _asking(self, what: str, *, missing: bool = False) -> Iterator[None]:
        """The library's errors become ours, without signed addresses and without secrets from the options."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except FileNotFoundError as error:
            if not missing:
                raise self._failed(what, error) from None
            raise FileNotFoundError(f"No such file: {self.root} has nothing to {what}") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreError(
                "STORE_DENIED",
                f"{self.root} did not let us {what}: {self._options.without_secrets(str(error))}",
                "See the credentials on this machine, and that they may read, write, list and delete there. Executors "
                "need them too: by options holdfast.store.…, or by their own environment.",
            ) from None
        except HoldfastError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(what, error) from None

    def _failed(self, what: str, error: Exception) -> StoreError:
        text = self._options.without_secrets(str(error))
        refused = any(sign in text for sign in ("501 Not Implemented", "NotImplemented", "not supported"))
        return StoreError(
            "STORE_REFUSED" if refused else "STORE_FAILED",
            f"{self.root} could not {what}: {text}",
            "See that the address, the bucket and holdfast.store.endpoint_url are right and that the server answers. A "
            "batch that failed is done again.",
        )


def broken_off(error: Exception) -> bool:
    """Whether the connection broke, and not the server said no. obstore has one class for both."""
    return "HTTP error" in str(error)


def _marks(name: str, kind: str) -> str:
    """The folder of a file's marks."""
    return beside(name, f"{kind}/{name.rpartition('/')[2]}")


def _mark(name: str, kind: str) -> str:
    return f"{_marks(name, kind)}/{uuid.uuid4().hex}"
