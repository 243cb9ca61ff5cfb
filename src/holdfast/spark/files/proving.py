"""Whether a store on the network keeps the one promise that a ledger needs, tried before anything counts on it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.model import HoldfastError

AT_ONCE = 4
PROBE = ".probe"

_proven: set[tuple[str, str]] = set()
"""Places that this process has tried."""


class StoreError(HoldfastError, OSError):
    """The store did not do what it was asked."""


def prove(place: tuple[str, str], create: Callable[[str, bytes], bool], remove: Callable[[str], None]) -> None:
    """Several at once create one name, and one more behind them: of all one may succeed. Once in a process."""
    if place in _proven:
        return
    name = f"_holdfast/{PROBE}/{uuid.uuid4().hex}"
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = sum(pool.map(lambda number: create(name, b"%d" % number), range(AT_ONCE)))
        made += create(name, b"again")
    except StoreError as error:
        if error.code != "STORE_REFUSED":
            raise
        raise _not_exclusive(place[0], f"it refuses the condition ({error.what})") from None
    with contextlib.suppress(OSError):
        remove(name)
    if made != 1:
        raise _not_exclusive(place[0], f"{made} of {AT_ONCE + 1} writers were told that they had made one and the same")
    _proven.add(place)


def _not_exclusive(root: str, why: str) -> HoldfastError:
    return HoldfastError(
        "STORE_NOT_EXCLUSIVE",
        f"{root} does not create files exclusively (by conditional puts, If-None-Match: *): {why}. Two writers would "
        "write over each other.",
        "Use a store that does: Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2, a newer MinIO or "
        "Ceph, HDFS. Or a path on a local disk or NFS, or a database by exactly_once().",
    )
