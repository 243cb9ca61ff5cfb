"""Checked before a reader joins: no other reader of the application may read the same topics in the same group.

Each reader publishes what it reads on its own socket, served by its own thread, so also while it joins or is busy. A
later reader looks at these sockets. It waits a while for a conflicting reader that may be stopping (a query that is
stopped and started again), and is refused if that one stays. The older reader is not affected. A reader that stops
closes its socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time

from holdfast.model import HoldfastError
from holdfast.spark import door
from holdfast.spark.sharing import Claim, collide, two_in_one_group

KIND = "holdfast-claim"
GRACE_S = 5.0
"""How long to wait for a stopping reader. Spark reports the query's end before the reader has really stopped."""
LOOK_S = 0.05
ASK_S = 1.0


class Claimed:
    """What this reader reads, visible to its siblings from `stake` to `release`."""

    def __init__(self, claim: Claim, parent: int | None = None) -> None:
        self._claim = claim
        self._parent = os.getppid() if parent is None else parent
        self._age = (time.monotonic(), os.getpid())  # the monotonic clock is the same for all processes
        self._listener: door.Listener | None = None

    def stake(self, grace_s: float = GRACE_S) -> None:
        """Publish the claim. Raises GROUP_SHARED if an older sibling's claim conflicts with it."""
        self._listener = door.Listener(door.new_name(KIND, self._parent), self._tell, thread="holdfast-claim")
        deadline = time.monotonic() + grace_s
        while (other := self._older()) is not None:
            if time.monotonic() > deadline:
                self.release()
                raise two_in_one_group(self._claim.group, other.topics or self._claim.topic_names)
            time.sleep(LOOK_S)

    def release(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _older(self) -> Claim | None:
        for sibling in door.processes(KIND, self._parent):
            if sibling == os.getpid():
                continue
            with contextlib.suppress(HoldfastError, KeyError, TypeError, ValueError):  # it has ended, or is no reader
                found = door.ask(self._parent, sibling, "claim", timeout_s=ASK_S, kind=KIND)
                claim = Claim.from_json(found["claim"])
                if tuple(found["age"]) < self._age and collide(self._claim, claim):
                    return claim
        return None

    def _tell(self, link: socket.socket) -> None:
        with link:
            link.settimeout(ASK_S)
            link.recv(64)  # the answer is always the same
            link.sendall(json.dumps({"claim": self._claim.to_json(), "age": self._age}).encode() + b"\n")
