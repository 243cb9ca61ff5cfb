"""The compiled look into batches (`records.sound`), fetched when a broker has enough to look at.

It takes 50 MB of the system's memory to load, mostly LLVM's pages, and on a new machine some seconds to compile: too
much for a broker that a test starts, little for one that records pour into. So the first records are walked through in
Python. Then the machine code is loaded in a thread, and compiled before if need be, in a process of its own: numba
would stay in ours, and hold the event loop up meanwhile. A broker whose machine code can't be had goes on in Python.
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
"""Walked through in Python: 0.2 s of work. To load takes 0.03 s, to compile ten."""
LEAST_RECORDS = 16
"""Of a batch. For fewer Python is as quick as the way to the machine code and back."""
COMPILE_SECONDS = 300.0
"""For a busy machine; ten seconds are usual."""

_COMPILE = "import os; os.nice(10); from holdfast.records import native; native.decode()"


class Quick:
    """One broker's. Its methods are the loop's, but for `sound`, which threads may call too."""

    def __init__(self, *, fetch_after: int = FETCH_AFTER_RECORDS) -> None:
        self._left = fetch_after
        self._decode: Decode | None = None
        self._fetching: threading.Thread | None = None
        self._compiler: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()
        """Between starting the compiler and stopping it."""

    @property
    def ready(self) -> bool:
        return self._decode is not None

    def sound(self, count: int, base_timestamp: int, records: Buffer) -> bool:
        """True: the batch is sound. False: it is not, or nobody knows yet; look yourself."""
        if self._decode is None or count < LEAST_RECORDS:
            return False
        from holdfast.records.sound import is_sound

        return is_sound(self._decode, count, base_timestamp, records)

    def walked(self, count: int) -> None:
        """So many records were walked through, and were sound: what a false batch says of itself does not count."""
        self._left -= count
        if self._left <= 0 and self._fetching is None:
            self._fetching = threading.Thread(target=self._fetch, name="holdfast-quick", daemon=True)
            self._fetching.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._compiler is not None:
                self._compiler.kill()
        if self._fetching is not None:
            self._fetching.join()

    def _fetch(self) -> None:
        try:
            from holdfast.records import native

            found = native.decode_if_kept()
            if found is None and self._compile():
                found = native.decode_if_kept()
            self._decode = found
        except Exception as error:  # noqa: BLE001  # whatever it is, records can be looked at without
            log.warning("batches are looked into by Python, which is slower: %s", error)
            return
        if found is None and not self._stopped:
            log.warning("batches are looked into by Python, which is slower: nothing could be compiled or kept")

    def _compile(self) -> bool:
        with self._lock:
            if self._stopped:
                return False
            quiet = subprocess.DEVNULL
            command = [sys.executable, "-c", _COMPILE]
            self._compiler = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            return self._compiler.wait(COMPILE_SECONDS) == 0
        finally:
            self._compiler.kill()
            self._compiler.wait()
