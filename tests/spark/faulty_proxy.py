"""Stands between a client and an object store on loopback, and does what networks and lesser servers do.

Answers that get lost behind a request that was done; conditions that are dropped on the way, as by a server that does
not know them; and Google's words for a condition, said in S3's (Google's XML API is S3's but for a few headers).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LOSSES = ("closed", "reset", "half", "short")
"""The connection ends without a byte, is reset, or ends in the middle of the answer's header or of its content. There
is "hung" too: no answer until the client gives up."""

CONDITION = "if-none-match"
GOOGLES = "x-goog-if-generation-match"


@dataclass
class Proxy:
    """The server as clients see it, and what goes wrong on the way."""

    url: str = ""
    ignores_conditions: bool = False
    speaks_google: bool = False
    lose: Callable[[str, str], str | None] | None = None
    """By method and path: how the answer is lost (one of LOSSES), or None."""
    lost: list[tuple[str, str, str]] = field(default_factory=list)
    refuse: Callable[[str, str], int | None] | None = None
    """By method and path: the status with which a request is refused without asking the server."""

    def lose_next_put(self, how: str) -> None:
        left = [how]
        self.lose = lambda method, _path: left.pop() if method == "PUT" and left else None

    def lose_some(self, share: float, seed: int) -> None:
        rng = random.Random(seed)
        self.lose = lambda _method, _path: rng.choice(LOSSES) if rng.random() < share else None

    def headers_for(self, headers: dict[str, str]) -> dict[str, str]:
        """What the server is sent instead of what the client said."""
        if self.speaks_google:
            headers.pop("authorization", None)
            if headers.pop(GOOGLES, "") == "0":
                headers[CONDITION] = "*"
        if self.ignores_conditions:
            headers.pop(CONDITION, None)
        return headers


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one of its own to the server."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    proxy: Proxy
    host: str

    def setup(self) -> None:
        super().setup()
        self.to_server = http.client.HTTPConnection(self.host, timeout=60)

    def finish(self) -> None:
        self.to_server.close()
        super().finish()

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status = None if self.proxy.refuse is None else self.proxy.refuse(self.command, self.path)
        if status is not None:
            self.send_response_only(status)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        answer, data = self.passed_on(body)
        how = None if self.proxy.lose is None else self.proxy.lose(self.command, self.path)
        if how is not None:
            self.proxy.lost.append((how, self.command, self.path))
        if how is None or (how == "short" and data):
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("content-length", "0") if self.command == "HEAD" else len(data)
            self.send_header("content-length", str(length))
            self.end_headers()
            self.wfile.write(data if how is None else data[: len(data) // 2])
        if how is not None:
            self.break_off(how)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def passed_on(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        headers = self.proxy.headers_for({name.lower(): value for name, value in self.headers.items()})
        self.to_server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            self.to_server.putheader(name, value)
        self.to_server.endheaders(body)
        answer = self.to_server.getresponse()
        return answer, answer.read()

    def break_off(self, how: str) -> None:
        self.close_connection = True
        if how == "hung":
            with contextlib.suppress(OSError):
                self.rfile.read(1)
            return
        if how == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConte")
        if how == "reset":  # a close that lingers for no time is a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients go away, as in life."""


@contextmanager
def faulty_proxy(url: str) -> Iterator[Proxy]:
    parts = urlsplit(url)
    proxy = Proxy()
    handler = type("Handler", (_Handler,), {"proxy": proxy, "host": parts.netloc})
    server = _Server(("127.0.0.1", 0), handler)
    proxy.url = f"http://127.0.0.1:{server.server_port}{parts.path}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
