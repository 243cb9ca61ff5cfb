"""Tries out whether a store creates files exclusively, the one promise that the ledger relies on."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.model import HoldfastError

AT_ONCE = 4
PROBE = ".probe"

tried_out: set[tuple[str, str]] = set()
"""Stores that this process has tried out."""


class StoreError(HoldfastError, OSError):
    """A request to the store failed."""


def prove(place: tuple[str, str], create: Callable[[str, bytes], bool], remove: Callable[[str], None]) -> None:
    """Create one name several times at once, and once more afterwards: exactly one may succeed. Done once a process."""
    if place in tried_out:
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
    tried_out.add(place)


def _not_exclusive(root: str, why: str) -> HoldfastError:
    return HoldfastError(
        "STORE_NOT_EXCLUSIVE",
        f"{root} does not create files exclusively (by conditional puts, If-None-Match: *): {why}. Two writers would "
        "write over each other.",
        "Use a store that does: Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2, a newer MinIO or "
        "Ceph, HDFS. Or a path on a local disk or NFS, or a database by exactly_once().",
    )
