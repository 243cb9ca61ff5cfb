"""The attacks of `holdfast bench broker --hostile`, and the well-behaved client beside them, each in a process.

    python -m holdfast.bench.broker_attacks '{"work": "polite", "bootstrap": …, "seconds": 5}'

Every attack once stopped the broker for others, or made its memory grow. Each goes on for its time, on as many
connections as it needs, and writes one JSON line with what it got done. The well-behaved client produces a record and
sends a heartbeat every 20 ms, each on its own connection, and writes how long it waited for every answer.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.bench.broker_wire import MECHANISM, Wire, produce_frame, records
from holdfast.wire.api import Api

MIB = 1024 * 1024
EVERY_S = 0.020
"""Between two requests of the well-behaved client: short enough to meet every stall of 50 ms twice."""
MANY = 80
"""Connections of an attack that is about their number."""
LAST_ANSWER_S = 60.0
"""How long the answers that are still awaited at an attack's end may take."""
FEW = 4
"""Connections of an attack whose single request does the harm."""

Given = Mapping[str, Any]
Done = dict[str, Any]


def polite(given: Given) -> Done:
    """Milliseconds of every produce and every heartbeat."""
    login = (given["login"][0], given["login"][1]) if given.get("login") else None
    with Wire(given["bootstrap"], login=login) as producer, Wire(given["bootstrap"], login=login) as member:
        producer.create("polite")
        beat = member.join("polite")
        frame = produce_frame("polite", records([b"x" * 1_000]))
        print("ready", flush=True)
        until = time.monotonic() + given["seconds"]
        waited: dict[str, list[float]] = {"produce": [], "heartbeat": []}

        def produce() -> None:
            producer.send(frame)
            producer.receive()

        def heartbeat() -> None:
            member.ask(Api.HEARTBEAT, 3, beat)

        threads = [
            threading.Thread(target=_again, args=(ask, waited[name], until))
            for name, ask in (("produce", produce), ("heartbeat", heartbeat))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return waited


def _again(ask: Callable[[], None], waited: list[float], until: float) -> None:
    while time.monotonic() < until:
        began = time.monotonic()
        ask()
        waited.append((time.monotonic() - began) * 1_000)
        time.sleep(EVERY_S)


# -- attacks


def nothing(given: Given) -> Done:
    """No attack, for comparison."""
    time.sleep(given["seconds"])
    return {"done": 0}


def large_frames(given: Given) -> Done:
    """80 producers of 2 MiB each, as fast as they can."""
    with Wire(given["bootstrap"]) as admin:
        admin.create("large", max_message_bytes=str(4 * MIB), segment_bytes=str(64 * MIB), retention_bytes="1")
    frame = produce_frame("large", records([bytes(2 * MIB)]))

    def produce(wire: Wire) -> None:
        wire.send(frame)
        wire.receive()

    return _crowd(given, MANY, produce)


def stalled_frames(given: Given) -> Done:
    """200 connections that begin a frame of 16 MiB and send no more than a part of it."""
    wires = [Wire(given["bootstrap"]) for _ in range(200)]
    for wire in wires:
        wire.socket.setblocking(False)
        try:
            wire.socket.send(struct.pack(">i", 15 * MIB) + bytes(200_000))
        except OSError:
            continue
    time.sleep(given["seconds"])
    for wire in wires:
        wire.close()
    return {"done": len(wires)}


def repeated_groups(given: Given) -> Done:
    """One large group, named 400 times in one request."""
    with Wire(given["bootstrap"]) as admin:
        admin.join("described", bytes(900_000))
    return _asking(given, Api.DESCRIBE_GROUPS, 5, {"groups": ["described"] * 400})


def deaf_readers(given: Given) -> Done:
    """80 clients that ask for large answers and take none of them."""
    names = [f"loud-{number}" for number in range(16)]
    with Wire(given["bootstrap"]) as admin:
        for name in names:
            admin.join(name, bytes(900_000))
    wires = [Wire(given["bootstrap"]) for _ in range(MANY)]
    asked = b"".join(wires[0].request(Api.DESCRIBE_GROUPS, 5, {"groups": names}) for _ in range(4))
    for wire in wires:
        wire.send(asked)
    time.sleep(given["seconds"])
    for wire in wires:
        wire.close()
    return {"done": len(wires)}


def repeated_configs(given: Given) -> Done:
    """A topic's settings, 20,000 times in one request."""
    with Wire(given["bootstrap"]) as admin:
        admin.create("described")
    one = {"resource_type": 2, "resource_name": "described", "configuration_keys": None}
    asked = {"resources": [one] * 20_000, "include_synonyms": True, "include_documentation": True}
    return _asking(given, Api.DESCRIBE_CONFIGS, 4, asked)


def many_resources(given: Given) -> Done:
    """40,000 different topics that are not there, in one request."""
    resources = [
        {"resource_type": 2, "resource_name": f"absent-{number}", "configuration_keys": None}
        for number in range(40_000)
    ]
    return _asking(given, Api.DESCRIBE_CONFIGS, 4, {"resources": resources})


def search_by_time(given: Given) -> Done:
    """ListOffsets by time in a batch of a million small records, compressed well."""
    with Wire(given["bootstrap"]) as admin:
        admin.create("searched", max_message_bytes=str(4 * MIB))
        data = records([b""] * 1_000_000, codec=4)
        admin.send(produce_frame("searched", data))
        admin.receive()
    asked = {"replica_id": -1, "topics": [{"name": "searched", "partitions": [_at(999_999)]}]}
    return _asking(given, Api.LIST_OFFSETS, 6, asked)


def _at(timestamp: int) -> dict[str, int]:
    return {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}


def new_names(given: Given) -> Done:
    """9,000 topics that are to be made, in one request."""
    names = [{"name": f"new-{number}"} for number in range(9_000)]
    return _asking(given, Api.METADATA, 9, {"topics": names, "allow_auto_topic_creation": True}, connections=1)


def packed_bombs(given: Given) -> Done:
    """Batches of a few KB that unpack to 60 MB."""
    with Wire(given["bootstrap"]) as admin:
        admin.create("bombed", segment_bytes=str(64 * MIB))
    frame = produce_frame("bombed", records([bytes(1_000_000)] * 60, codec=4))

    def produce(wire: Wire) -> None:
        wire.send(frame)
        wire.receive()

    return _crowd(given, FEW, produce)


def scram_garbage(given: Given) -> Done:
    """Logins with a nonce that is not ASCII, one after the other, from strangers."""

    def fail(_: Wire) -> None:
        with Wire(given["bootstrap"]) as wire:
            wire.ask(Api.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
            wire.ask(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"n,,n=polite,r=abc"})
            for _answer in range(100):
                wire.ask(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": "c=biws,r=ä,p=AAAA".encode()})

    return _crowd(given, FEW, fail, endless=True)


def _asking(given: Given, api: Api, version: int, body: Any, *, connections: int = FEW) -> Done:
    """The same request, again and again, on a few connections."""
    with Wire(given["bootstrap"]) as first:
        frame = first.request(api, version, body)

    def ask(wire: Wire) -> None:
        wire.send(frame)
        wire.receive()

    return _crowd(given, connections, ask)


def _crowd(given: Given, connections: int, do: Callable[[Wire], None], *, endless: bool = False) -> Done:
    """All connections do it as often as time allows. Returns how often in all, how often the slowest did, and how many
    were cut off."""
    until = time.monotonic() + given["seconds"]
    done = [0] * connections
    cut = [0] * connections

    def work(number: int) -> None:
        try:
            with Wire(given["bootstrap"]) as wire:
                while time.monotonic() < until:
                    try:
                        do(wire)
                    except ConnectionError:
                        if not endless:
                            raise
                        cut[number] += 1
                    done[number] += 1
        except OSError:
            cut[number] += 1

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until + LAST_ANSWER_S - time.monotonic(), 0.1))
    return {"done": sum(done), "least": min(done), "cut": sum(cut)}


ATTACKS: Mapping[str, Callable[[Given], Done]] = {
    "nothing": nothing,
    "large_frames": large_frames,
    "stalled_frames": stalled_frames,
    "repeated_groups": repeated_groups,
    "deaf_readers": deaf_readers,
    "repeated_configs": repeated_configs,
    "many_resources": many_resources,
    "search_by_time": search_by_time,
    "new_names": new_names,
    "packed_bombs": packed_bombs,
    "scram_garbage": scram_garbage,
}
NEEDS_LOGIN = frozenset({"scram_garbage"})


def main() -> None:
    given = json.loads(sys.argv[1])
    socket.setdefaulttimeout(60.0)
    work = polite if given["work"] == "polite" else ATTACKS[given["work"]]
    print(json.dumps(work(given)), flush=True)


if __name__ == "__main__":
    main()
