"""An S3 on loopback: moto's server, with what moto leaves open, and with faults that a test asks for.

moto looks whether a key is there and writes it in two steps, where S3 has one: a lock makes it one here. Faults: a
server that ignores or refuses If-None-Match, and answers that get lost behind a request that was done.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEY, SECRET = "AKIDHOLDFAST", "s3cret/that+is/nowhere"

Environ = dict[str, Any]
Start = Callable[..., Any]


@dataclass
class S3:
    """The server, as tests see it."""

    url: str = ""
    ignores_conditions: bool = False
    refuses_conditions: bool = False
    lose_answers: int = 0
    """Of so many of the next conditional puts the answer is lost, though they are done."""
    on_request: Callable[[str, str], None] | None = None
    """Called before each request with its method and path."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_bucket(self) -> str:
        import boto3

        name = f"bucket-{next(self._numbers)}"
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=name)
        client.close()
        return name

    @property
    def options(self) -> dict[str, str]:
        return {
            "holdfast.store.endpoint_url": self.url,
            "holdfast.store.access_key_id": KEY,
            "holdfast.store.secret_access_key": SECRET,
            "holdfast.store.region": "us-east-1",
        }

    def well_again(self) -> None:
        self.ignores_conditions = self.refuses_conditions = False
        self.lose_answers, self.on_request = 0, None
        self.requests.clear()

    def around(self, app: Callable[[Environ, Start], Iterable[bytes]]) -> Callable[[Environ, Start], Iterable[bytes]]:
        def served(environ: Environ, start: Start) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append((method, path))
            if self.on_request is not None:
                self.on_request(method, path)
            conditional = method == "PUT" and "HTTP_IF_NONE_MATCH" in environ
            if conditional and self.refuses_conditions:
                start("501 Not Implemented", [("Content-Type", "application/xml")])
                return [b"<Error><Code>NotImplemented</Code></Error>"]
            if conditional and self.ignores_conditions:
                del environ["HTTP_IF_NONE_MATCH"]
            with self._lock:
                answer = list(app(environ, start))
                lost = conditional and self.lose_answers > 0
                self.lose_answers -= lost
            if lost:
                environ["werkzeug.socket"].shutdown(2)
                raise ConnectionAbortedError
            return answer

        return served


@contextmanager
def s3_server() -> Iterator[S3]:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    s3 = S3()
    app = s3.around(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    server.daemon_threads = True  # type: ignore[attr-defined]
    s3.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield s3
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
