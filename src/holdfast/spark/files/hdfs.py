"""A sink's files on HDFS, by WebHDFS: `webhdfs://namenode:9870/orders`, `swebhdfs://…` with TLS.

A file is written under a temporary name and renamed to its own: the namenode does that atomically, and refuses a taken
name. HDFS's own exclusive create would not do: it leaves an empty file if the writer dies after it. An answer may be
lost and the request repeated, so a refusal is checked: if our temporary file is gone and the content is ours, the first
request had renamed it.

Several namenodes, one of them active, are separated by commas. The user is given by name, or by a delegation token with
Kerberos; Kerberos itself is not supported. No package is needed.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import io
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.model import HoldfastError
from holdfast.spark.files.aside import beside, is_unique, put_back, remove_untouched
from holdfast.spark.files.proving import PROBE, StoreError, prove
from holdfast.spark.files.ranged import WHOLE_BYTES, opened
from holdfast.spark.files.store_options import PREFIX, StoreOptions

SCHEMES = ("webhdfs", "swebhdfs")
TEMPORARY = ".new-"
REQUEST_S = 60.0
PAUSE_S = 0.5
IN_MEMORY_BYTES = 64 * 1024 * 1024
"""Data to be written is buffered in memory up to this size, and on the local disk beyond it."""
OPTIONS = frozenset({"user", "delegation_token"})
ELSEWHERE = frozenset({"StandbyException", "RetriableException", "SafeModeException"})
"""Exceptions of a namenode that is not active, or not yet."""
DENIED = frozenset({"AccessControlException", "AuthorizationException", "SecurityException", "InvalidToken"})


class HdfsStore:
    """Files under one folder of an HDFS."""

    def __init__(self, url: str, options: StoreOptions, *, patience_s: float, proven: bool = False) -> None:
        unknown = sorted(set(options) - OPTIONS)
        if unknown:
            raise HoldfastError(
                "INVALID_OPTION",
                f"HDFS has no option {PREFIX}{unknown[0]}.",
                f"It has {', '.join(f'{PREFIX}{name}' for name in sorted(OPTIONS))}.",
            )
        scheme, _, rest = url.partition("://")
        hosts, _, path = rest.partition("/")
        self.root = url.rstrip("/")
        self._secure = scheme == "swebhdfs"
        self.hosts = hosts.split(",")
        self._path = f"/{path.strip('/')}".rstrip("/")
        self._options, self._patience_s, self._is_proven = options, patience_s, proven
        token = options.get("delegation_token")
        user = options.get("user") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._who = {"delegation": token} if token else {"user.name": user}

    def prove(self) -> None:
        """Behind a gateway there may be another file system, with other rules for renaming."""
        if not self._is_proven:
            prove((self.root, ""), self._create, self.remove)

    def create(self, name: str, data: bytes) -> bool:
        self.prove()
        return self._create(name, data)

    def _create(self, name: str, data: bytes) -> bool:
        with self._temporary(name) as temporary:
            self._put(temporary, io.BytesIO(data))
            if self.move(temporary, name):
                return True
            found, moved = self.read(name), not self.exists(temporary)
            if found is None:
                raise self._not_renamed(name)
            return moved and found == data

    def _put(self, name: str, data: IO[bytes]) -> None:
        if self.ask("PUT", name, "CREATE", data, overwrite="true") is None:
            raise StoreError("STORE_FAILED", f"{self.root} found no place for {name}.", "See the namenode's log.")

    def _not_renamed(self, name: str) -> StoreError:
        return StoreError("STORE_FAILED", f"{self.root} could not rename a file to {name}.", "See the namenode's log.")

    @contextmanager
    def _temporary(self, name: str) -> Iterator[str]:
        temporary = beside(name, f"{TEMPORARY}{uuid.uuid4().hex}")
        try:
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                self.remove(temporary)

    def read(self, name: str) -> bytes | None:
        return self.ask("GET", name, "OPEN")

    def exists(self, name: str) -> bool:
        return self._status(name) is not None

    def names(self, folder: str) -> list[str]:
        return [name for name in self._listed(folder) if not name.startswith(".")]

    def leftovers(self, folder: str) -> list[str]:
        found = [f"{folder}/{name}" for name in self._listed(folder) if is_unique(name, TEMPORARY)]
        probes = [name for name in self._listed(f"{folder}/{PROBE}") if is_unique(name, "")]
        return found + [f"{folder}/{PROBE}/{name}" for name in probes]

    def _listed(self, folder: str) -> list[str]:
        found = self.ask("GET", folder, "LISTSTATUS")
        if found is None:
            return []
        return sorted(one["pathSuffix"] for one in self._told(found, "FileStatuses", "FileStatus"))

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as file, self._temporary(name) as temporary:
            yield file
            self._put(temporary, file)
            # Data files have new names: if it exists, a first request whose answer was lost has renamed it.
            if not self.move(temporary, name) and not (self.exists(name) and not self.exists(temporary)):
                raise self._not_renamed(name)

    def open(self, name: str) -> IO[bytes]:
        status = self._status(name)
        if status is None:
            raise FileNotFoundError(f"No such file: {self.root} has no {name}")
        return opened(self._range_of(name, 0, WHOLE_BYTES), status["length"], partial(self._range_of, name))

    def _range_of(self, name: str, start: int, end: int) -> bytes:
        found = self.ask("GET", name, "OPEN", offset=str(start), length=str(end - start))
        if found is None:
            raise FileNotFoundError(f"No such file: {self.root} has no {name}")
        return found

    def modified(self, name: str) -> float | None:
        status = self._status(name)
        return None if status is None else status["modificationTime"] / 1000

    def touch(self, name: str) -> bool:
        now = str(int(time.time() * 1000))
        return self.ask("PUT", name, "SETTIMES", modificationtime=now, accesstime="-1") is not None

    def size(self, name: str) -> int | None:
        status = self._status(name)
        return None if status is None else status["length"]

    def remove(self, name: str) -> None:
        self.ask("DELETE", name, "DELETE")

    def remove_untouched(self, name: str, before: float) -> bool:
        return remove_untouched(self, name, before)

    def put_back(self, folder: str, ours: Callable[[str], bool]) -> None:
        put_back(self, folder, self._listed(folder), ours)

    def move(self, name: str, to: str) -> bool:
        answer = self.ask("PUT", name, "RENAME", destination=f"{self._path}/{to}")
        return answer is not None and self._told(answer, "boolean") is True

    def _status(self, name: str) -> Any:
        found = self.ask("GET", name, "GETFILESTATUS")
        return None if found is None else self._told(found, "FileStatus")

    def _told(self, answer: bytes, *names: str) -> Any:
        """The value in an answer's JSON under these nested names."""
        try:
            found = json.loads(answer)
            for name in names:
                found = found[name]
            return found
        except (ValueError, KeyError, TypeError):
            raise self._failed("be understood", answer[:300].decode(errors="replace")) from None

    # -- requests

    def ask(self, method: str, name: str, operation: str, body: IO[bytes] | None = None, **query: str) -> bytes | None:
        """The answer's content; None if there is no such file. Retried as long as that may help."""
        path = quote(f"/webhdfs/v1{self._path}/{name}", safe="/")
        target = f"{path}?{urlencode({'op': operation, **self._who, **query})}"
        until, what, why = time.monotonic() + self._patience_s, f"{operation} {name}", ""
        for host in self._again():
            if why and time.monotonic() > until:
                break
            try:
                status, content = self.once(method, host, target, body)
            except (OSError, http.client.HTTPException) as error:
                why = f"{host}: {type(error).__name__}: {error}"
                continue
            if status in (200, 201):
                return content
            told = _exception(content)
            if status == 404 and told == "FileNotFoundException":
                return None
            why = f"{host}: {status} {content[:300].decode(errors='replace')}"
            if status == 401 or told in DENIED:
                raise self._denied(what, why)
            if status < 500 and told not in ELSEWHERE:
                break
        raise self._failed(what, why)

    def _failed(self, what: str, why: str) -> StoreError:
        return StoreError(
            "STORE_FAILED",
            f"{self.root} could not {what}: {self._options.without_secrets(why)}",
            "See that the address is that of WebHDFS (webhdfs://namenode:9870/path, not the port of hdfs://), and that "
            "namenode and datanodes answer from here. A batch that failed is done again.",
        )

    def _again(self) -> Iterator[str]:
        """All namenodes, over and over, beginning with the one that answered last."""
        while True:
            for host in tuple(self.hosts):
                yield host
                self.hosts = [*self.hosts[1:], self.hosts[0]]
            time.sleep(PAUSE_S)

    def once(self, method: str, host: str, target: str, body: IO[bytes] | None) -> tuple[int, bytes]:
        """One request, and the second one if the namenode redirects us to a datanode."""
        status, content, location = self._send(method, host, self._secure, target, None)
        if status != 307 or location is None:
            return status, content
        parts = urlsplit(location)
        secure, there = parts.scheme == "https", f"{parts.path}?{parts.query}"
        status, content, _ = self._send(method, parts.netloc, secure, there, body if method == "PUT" else None)
        return status, content

    def _send(
        self, method: str, host: str, secure: bool, target: str, body: IO[bytes] | None
    ) -> tuple[int, bytes, str | None]:
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        timeout = min(REQUEST_S, max(1.0, self._patience_s))
        with contextlib.closing(kind(host, timeout=timeout)) as connection:
            headers = {}
            if body is not None:
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(body.seek(0, io.SEEK_END))}
                body.seek(0)
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.getheader("Location")

    def _denied(self, what: str, why: str) -> StoreError:
        return StoreError(
            "STORE_DENIED",
            f"{self.root} did not let us {what}: {self._options.without_secrets(why)}",
            f"See the folder's permissions, and who we are: {PREFIX}user or HADOOP_USER_NAME. Where Kerberos is on, "
            f"give a delegation token as {PREFIX}delegation_token (`hdfs fetchdt`): Kerberos itself is not spoken.",
        )


def _exception(content: bytes) -> str:
    """The name of the Java exception in an answer; empty if there is none."""
    try:
        return str(json.loads(content)["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""
