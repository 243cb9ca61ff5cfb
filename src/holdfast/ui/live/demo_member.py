"""One member of `holdfast demo --live`, in a process of its own: it consumes, and obeys lines on its standard input.

    hang     stop polling, like an application that is stuck; heartbeats go on until max.poll.interval.ms is exceeded
    drain    hand everything over while still working, then leave and end
    (end of input)  close and end: the demo is gone

Its arguments are the consumer's settings as JSON, and the topic.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

from holdfast import Consumer

POLL_S = 0.05


class Orders:
    """The orders received so far."""

    def __init__(self) -> None:
        self.hung = threading.Event()
        self.drain = threading.Event()
        self.end = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.end.set())
        threading.Thread(target=self._obey, name="orders", daemon=True).start()

    def _obey(self) -> None:
        for line in sys.stdin:
            {"hang": self.hung, "drain": self.drain}.get(line.strip(), threading.Event()).set()
        self.end.set()


def main() -> None:
    settings, topic = json.loads(sys.argv[1]), sys.argv[2]
    orders = Orders()
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not orders.end.is_set():
            if orders.hung.is_set():
                time.sleep(POLL_S)
                continue
            consumer.consume(num_messages=500, timeout=POLL_S)
            if orders.drain.is_set() and consumer.drain():
                return


if __name__ == "__main__":
    main()
