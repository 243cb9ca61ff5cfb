"""A wire between the browser and the page's server that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Wire:
    """Passes bytes on in both directions; `cut` ends every connection and refuses new ones until `mend`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._whole = threading.Event()
        self._whole.set()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                came, _ = self._listening.accept()
                if not self._whole.is_set():
                    came.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self._to))
                self._open |= {came, there}
                for first, second in ((came, there), (there, came)):
                    threading.Thread(target=self._pass, args=(first, second), daemon=True).start()

    def _pass(self, first: socket.socket, second: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := first.recv(65_536):
                second.sendall(data)
        for each in (first, second):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._whole.clear()
        self._end()

    def _end(self) -> None:
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._end()


@contextlib.contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
