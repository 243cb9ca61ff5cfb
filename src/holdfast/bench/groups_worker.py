"""One process of `holdfast bench groups`: many members of one kind, controlled by lines on its input.

    go          make all members and let them join
    join NAME   add one more
    stop        end without leaving, because the group's end is not measured; the end of the input does the same

It writes a JSON line for every callback of a member: the time (monotonic milliseconds, the same clock for all processes
of a machine), the member, the callback, the partitions.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

COMMON = {"auto.offset.reset": "earliest", "partition.assignment.strategy": "cooperative-sticky"}
POLL_S = 5.0
"""How long one poll waits. The topic is empty, and the group's calls wake a member at once."""

SWEEP_S = 0.002
"""Between two polls of all of librdkafka's consumers, which one thread serves in turn."""


def main() -> None:
    options = json.loads(sys.argv[1])
    config = {**COMMON, "bootstrap.servers": options["bootstrap"], "group.id": options["group"]}
    names = [f"{options['name']}-{number}" for number in range(options["count"])]
    if options["kind"] == "holdfast":
        Ours(config, options["topic"], names).run()
    else:
        Theirs(config, options["topic"], names).run()


def tell(member: str, what: str, partitions: list[int]) -> None:
    line = json.dumps({"t": time.monotonic() * 1_000.0, "m": member, "e": what, "p": partitions})
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


_lock = threading.Lock()


def hear(what: Callable[[str], object]) -> None:
    """Call this with every line of the input, on a thread of its own. The end of the input ends the process."""

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            what(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()


def callbacks(member: str) -> dict[str, Any]:
    def teller(what: str) -> Callable[..., None]:
        def told(_consumer: Any, partitions: list[Any]) -> None:
            if partitions:  # hundreds of members get nothing in a round: reporting that would distort the measurement
                tell(member, what, [p.partition for p in partitions])

        return told

    words = {"on_assign": "assigned", "on_revoke": "revoked", "on_lost": "lost"}
    return {word: teller(what) for word, what in words.items()}


class Ours:
    """AsyncConsumers on one loop."""

    def __init__(self, config: dict[str, Any], topic: str, names: list[str]) -> None:
        self._config = config
        self._topic = topic
        self._names = names

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        from holdfast import AsyncConsumer
        from holdfast.client.member.warm_up import warm_up
        from holdfast.records.arrow import warm_up as warm_decoder

        warm_up()
        warm_decoder()  # compiled once per machine, so not measured here
        self._make = AsyncConsumer
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str] = asyncio.Queue()
        hear(lambda line: loop.call_soon_threadsafe(lines.put_nowait, line))
        tell("", "ready", [])
        working: list[asyncio.Task[None]] = []
        while True:
            word, _, name = (await lines.get()).strip().partition(" ")
            for each in self._names if word == "go" else [name]:
                working.append(asyncio.create_task(self._work(each)))
                if len(working) % 20 == 0:
                    await asyncio.sleep(0)

    async def _work(self, name: str) -> None:
        try:
            member = self._make(self._config)
            member.subscribe([self._topic], **callbacks(name))
            while True:
                await member.poll(POLL_S)
        except Exception as error:  # noqa: BLE001  # the bench must know whatever ends a member
            tell(name, f"failed: {error}", [])


class Theirs:
    """librdkafka's consumers, served in turn by one thread, as its Python users serve a single one."""

    def __init__(self, config: dict[str, Any], topic: str, names: list[str]) -> None:
        self._config = config
        self._topic = topic
        self._names = names
        self._members: list[Any] = []

    def run(self) -> None:
        import confluent_kafka

        self._make = confluent_kafka.Consumer
        wanted: list[str] = []
        hear(wanted.append)
        tell("", "ready", [])
        while True:
            while wanted:
                self._obey(wanted.pop(0))
            for member in self._members:
                member.poll(0)
            time.sleep(SWEEP_S)

    def _obey(self, line: str) -> None:
        word, _, name = line.strip().partition(" ")
        for each in self._names if word == "go" else [name]:
            member = self._make(self._config)
            member.subscribe([self._topic], **callbacks(each))
            self._members.append(member)


if __name__ == "__main__":
    main()
