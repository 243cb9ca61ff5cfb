"""The compiled check of batches (`records.sound`), loaded when a broker has received enough records.

Loading it takes 50 MB of memory, mostly LLVM's pages, and on a new machine it takes some seconds to compile. That is
too much for a broker that a test starts, and little for a busy one. So the first records are checked in Python. Then
the machine code is loaded in a thread. If it must be compiled first, that happens in another process: in ours, numba
would stay in memory and block the event loop. Without machine code the broker goes on in Python.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from holdfast.broker.storage.files import Buffer

if TYPE_CHECKING:
    from holdfast.records.native import Decode

log = logging.getLogger("holdfast.broker")

FETCH_AFTER_RECORDS = 250_000
"""Records checked in Python before the machine code is loaded: 0.2 s of work. Loading takes 0.03 s, compiling 10 s."""
LEAST_RECORDS = 16
"""A batch with fewer records is checked in Python, which is as fast as a call to the machine code."""
COMPILE_SECONDS = 300.0
"""Time limit for compiling on a busy machine; usually it takes ten seconds."""

COMPILE = "import os; os.nice(10); from holdfast.records import native; native.decode()"


class CompiledCheck:
    """One per broker. Its methods are called on the loop, except `sound`, which threads may call too."""

    def __init__(self, *, fetch_after: int = FETCH_AFTER_RECORDS) -> None:
        self._left = fetch_after
        self._decode: Decode | None = None
        self.fetching: threading.Thread | None = None
        self._compiler: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()
        """Held while the compiler is started or stopped."""

    @property
    def ready(self) -> bool:
        return self._decode is not None

    def sound(self, count: int, base_timestamp: int, records: Buffer) -> bool:
        """True: the batch is sound. False: not known, so the caller has to check in Python."""
        if self._decode is None or count < LEAST_RECORDS:
            return False
        from holdfast.records.sound import is_sound

        return is_sound(self._decode, count, base_timestamp, records)

    def walked(self, count: int) -> None:
        """Count records that Python has checked and found sound. (A bad batch's own count can't be trusted.)"""
        self._left -= count
        if self._left <= 0 and self.fetching is None:
            self.fetching = threading.Thread(target=self._fetch, name="holdfast-compiled", daemon=True)
            self.fetching.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._compiler is not None:
                self._compiler.kill()
        if self.fetching is not None:
            self.fetching.join()

    def _fetch(self) -> None:
        try:
            from holdfast.records import native

            found = native.decode_if_kept()
            if found is None and self._compile():
                found = native.decode_if_kept()
            self._decode = found
        except Exception as error:  # noqa: BLE001  # whatever it is, Python can check the records
            log.warning("batches are checked in Python, which is slower: %s", error)
            return
        if found is None and not self._stopped:
            log.warning("batches are checked in Python, which is slower: nothing could be compiled, or kept")

    def _compile(self) -> bool:
        with self._lock:
            if self._stopped:
                return False
            quiet = subprocess.DEVNULL
            command = [sys.executable, "-c", COMPILE]
            self._compiler = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            return self._compiler.wait(COMPILE_SECONDS) == 0
        finally:
            self._compiler.kill()
            self._compiler.wait()
