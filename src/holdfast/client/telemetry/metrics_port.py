"""`holdfast.metrics.port`: consumers' metrics over HTTP, for Prometheus.

Off by default, and on loopback unless `holdfast.metrics.host` says otherwise. Consumers of one process that name one
port share one server, which ends with the last of them; their metrics are told apart by `client_id`. Consumers are held
weakly, so that one which the application has dropped can be freed.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from holdfast.client.config.errors import ConfigError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S = 10.0
"""How long a client may take to send its request and to read the answer, in all."""

MOST_AT_ONCE = 32
"""Requests at a time. Each has a thread of the application's process."""

Address = tuple[str, int]


class HasMetrics(Protocol):
    """A consumer, as far as it is needed here."""

    def metrics_text(self) -> str: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True  # a redeploy must not wait for the old process's last connections

    def __init__(self, address: Address) -> None:
        self.consumers: weakref.WeakSet[HasMetrics] = weakref.WeakSet()
        self.users = 0
        self._until: dict[Any, float] = {}
        """When each connection that is being served has to end."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._until) >= MOST_AT_ONCE:
            super().shutdown_request(request)
            return
        self._until[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called every 0.1 s. A time limit of the socket would begin again with each byte."""
        now = time.monotonic()
        for request, until in list(self._until.items()):
            if now >= until:
                with contextlib.suppress(OSError):  # it has just ended
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not the application's business."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "Metrics are at /metrics.")
            return
        content = merged(_texts(list(self.server.consumers))).encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


def _texts(consumers: Iterable[HasMetrics]) -> Iterable[str]:
    for consumer in consumers:
        try:
            yield consumer.metrics_text()
        except RuntimeError:  # it was closed meanwhile: its figures have ended
            continue


def merged(texts: Iterable[str]) -> str:
    """Several consumers' metrics as one text. Each metric's samples stand together below one TYPE line, as
    Prometheus's format asks for."""
    kinds: dict[str, str] = {}
    samples: dict[str, dict[str, None]] = {}
    for text in texts:
        metric = ""
        for line in filter(None, text.split("\n")):  # not splitlines(): a label may hold U+2028
            if line.startswith("# TYPE "):
                metric = line.split()[2]
                kinds.setdefault(metric, line)
            else:
                samples.setdefault(metric, {})[line] = None
    return "".join("\n".join([kinds[metric], *samples[metric]]) + "\n" for metric in sorted(kinds))


_servers: dict[Address, _Server] = {}
_lock = threading.RLock()  # reentrant: a garbage collection inside it may end another consumer's use


class MetricsPort:
    """One consumer's use of a server. It is opened before the consumer is complete, so that a taken port is reported
    first. It ends with the consumer, even if the consumer's constructor fails."""

    def __init__(self, consumer: HasMetrics, address: Address) -> None:
        self._address = address
        self._consumer = weakref.ref(consumer)
        with _lock:
            server = _servers.get(address)
            if server is None:
                server = _servers[address] = _started(address)
            server.users += 1
        self._server = server
        self._dropped = weakref.finalize(consumer, _later, address, server)
        self._dropped.atexit = False

    def show(self) -> None:
        """The consumer is complete: include its metrics."""
        consumer = self._consumer()
        if consumer is not None:
            self._server.consumers.add(consumer)

    def close(self) -> None:
        if self._dropped.detach() is None:
            return
        consumer = self._consumer()
        if consumer is not None:
            self._server.consumers.discard(consumer)
        _end(self._address, self._server)


def _later(address: Address, server: _Server) -> None:
    """The garbage collector may run on the server's own thread, which can't wait for itself to end."""
    threading.Thread(target=_end, args=(address, server), name="holdfast-metrics-end", daemon=True).start()


def _end(address: Address, server: _Server) -> None:
    with _lock:  # held until the port is free: the next consumer opens it again
        server.users -= 1
        if server.users == 0:
            del _servers[address]
            server.shutdown()
            server.server_close()


def _started(address: Address) -> _Server:
    host, port = address
    try:
        server = _Server(address)
    except OSError as error:
        raise ConfigError(
            "METRICS_PORT",
            f"Metrics can't be served at {host}:{port}: {error.strerror or error}.",
            "Set holdfast.metrics.port to one that is free, or leave it out.",
        ) from error
    threading.Thread(target=server.serve_forever, args=(0.1,), name="holdfast-metrics", daemon=True).start()
    return server


def opened(consumer: HasMetrics, host: str, port: int) -> MetricsPort | None:
    """None where no port is set."""
    return MetricsPort(consumer, (host, port)) if port else None
