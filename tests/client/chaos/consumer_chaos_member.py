"""A plain application as a member: it does whatever its consumer hands out, and leaves every commit to the consumer.

    python consumer_chaos_member.py --kind holdfast|asyncio|confluent --reads poll|consume|arrow  OPTIONS

Nothing but the class differs between the kinds. To do a record is to write its line into the log of
`holdfast.testing.members.log`, one write each, so that a kill may fall between two records of one batch. Beside the
lines that every member program writes there are

    #acknowledged TIME P:OFFSET,…   on_commit: the coordinator has these
    #refused TIME TEXT              on_commit: it has not
    #told TIME TEXT                 an error that poll returned as a message
    #stalled TIME MS                this process did not run for so long, whoever is to blame

librdkafka counts a record as done when it hands it out, so a confluent member that is killed with a batch in its hands
may lose it, by design. It polls one by one and never works on a record for a while; then what is lost is never that.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck

import holdfast
from holdfast.testing.members.program import FROZEN_S, Session

POLL_S = 0.1
WORK_S = 0.001
"""One record takes so long: a batch is in the application's hands long enough for a fault to find it there."""
PULSE_S, STALLED_S = 0.2, 1.0


class Work:
    """What the kinds share: the configuration, the callbacks, the doing, the standing still."""

    def __init__(self, session: Session, kind: str, reads: str) -> None:
        self.session = session
        self.kind = kind
        self.reads = reads
        self.chance = random.Random(session.options.client_id)

    def config(self) -> dict[str, Any]:
        options = self.session.options
        given = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "client.id": options.client_id,
            "auto.offset.reset": options.reset,
            "session.timeout.ms": options.session_ms,
            "max.poll.interval.ms": options.max_poll_ms,
            "on_commit": self.on_commit,
        }
        if options.assignors:
            given["partition.assignment.strategy"] = ",".join(options.assignors)
        return given | dict(options.config)

    def callbacks(self) -> dict[str, Any]:
        """Each only writes down what it was told."""
        log = self.session.log
        return {
            f"on_{word}": lambda _consumer, partitions, past=past: log.partitions(
                past, [p.partition for p in partitions]
            )
            for word, past in (("assign", "assigned"), ("revoke", "revoked"), ("lost", "lost"))
        }

    def on_commit(self, error: Any, answers: list[ck.TopicPartition]) -> None:
        refused = error or next((answer.error for answer in answers or () if answer.error is not None), None)
        if refused is not None:
            self.session.log.event("refused", str(refused))
        else:
            told = ",".join(f"{answer.partition}:{answer.offset}" for answer in answers if answer.offset >= 0)
            self.session.log.event("acknowledged", told)

    def good(self, messages: list[ck.Message]) -> list[tuple[int, int]]:
        found = []
        for message in messages:
            if message.error() is not None:
                self.session.log.event("told", str(message.error()))
            else:
                found.append((message.partition() or 0, message.offset() or 0))
        return found

    def hang_s(self, *, in_hand: bool) -> float:
        """How long to stand still now: as told, sometimes between two polls and sometimes with a batch in hand."""
        if self.kind == "confluent" and in_hand:
            return 0.0
        return self.session.take_hang_s() if self.kind == "confluent" or self.chance.random() < 0.2 else 0.0

    def do(self, records: list[tuple[int, int]], handed_at: float) -> Iterator[float]:
        """Does them one by one. Between them it yields how long to sleep, as its caller sleeps."""
        for record in records:
            if self.kind != "confluent":
                yield WORK_S
            held_s = time.monotonic() - handed_at
            self.session.log.records([record], held_s=held_s if held_s > FROZEN_S else 0.0)


def columns(batch: Any) -> list[tuple[int, int]]:
    return list(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))


def run(work: Work) -> None:
    session = work.session
    consumer: Any = (ck.Consumer if work.kind == "confluent" else holdfast.Consumer)(work.config())
    session.await_join()
    consumer.subscribe([session.options.topic], **work.callbacks())

    def stand_still(seconds: float) -> None:
        if seconds:
            time.sleep(seconds)
            session.log.event("awake")

    def take() -> list[tuple[int, int]]:
        match work.reads:
            case "arrow":
                return columns(consumer.consume_arrow(200, POLL_S))
            case "consume":
                return work.good(consumer.consume(50, POLL_S))
            case _:
                message = consumer.poll(POLL_S)
                return work.good([message] if message is not None else [])

    while not session.stopping:
        stand_still(work.hang_s(in_hand=False))
        try:
            records, handed_at = take(), time.monotonic()
        except ck.KafkaException as error:  # consume_arrow() has no message to say it with
            session.log.event("told", str(error))
            continue
        if records:
            stand_still(work.hang_s(in_hand=True))
        for pause_s in work.do(records, handed_at):
            time.sleep(pause_s)
        if session.draining and consumer.drain():
            break
    session.log.event("closing")
    consumer.close()
    session.log.event("closed")


async def run_asyncio(work: Work) -> None:
    session = work.session
    consumer = holdfast.AsyncConsumer(work.config())
    session.await_join()
    await consumer.subscribe([session.options.topic], **work.callbacks())

    async def stand_still(seconds: float) -> None:
        if seconds and work.chance.random() < 0.5:
            time.sleep(seconds)  # noqa: ASYNC251 - an application that blocks its loop is one of those on trial
        elif seconds:
            await asyncio.sleep(seconds)
        if seconds:
            session.log.event("awake")

    async def take() -> list[tuple[int, int]]:
        match work.reads:
            case "arrow":
                return columns(await consumer.consume_arrow(200, POLL_S))
            case "consume":
                return work.good(await consumer.consume(50, POLL_S))
            case _:
                message = await consumer.poll(POLL_S)
                return work.good([message] if message is not None else [])

    while not session.stopping:
        await stand_still(work.hang_s(in_hand=False))
        try:
            records, handed_at = await take(), time.monotonic()
        except ck.KafkaException as error:
            session.log.event("told", str(error))
            continue
        if records:
            await stand_still(work.hang_s(in_hand=True))
        for pause_s in work.do(records, handed_at):
            await asyncio.sleep(pause_s)
        if session.draining and await consumer.drain():
            break
    session.log.event("closing")
    await consumer.close()
    session.log.event("closed")


def pulse(session: Session) -> None:
    """Writes down when this process did not run: frozen by somebody, or starved by a busy machine."""
    last = time.monotonic()
    while True:
        time.sleep(PULSE_S)
        now = time.monotonic()
        if now - last > STALLED_S:
            session.log.event("stalled", f"{(now - last) * 1000:.0f}")
        last = now


def main() -> None:
    flags = dict(zip(sys.argv[1:5:2], sys.argv[2:5:2], strict=True))
    session = Session(flags["--kind"], sys.argv[5:])
    threading.Thread(target=pulse, args=(session,), name="pulse", daemon=True).start()
    work = Work(session, flags["--kind"], flags["--reads"])
    if work.kind == "asyncio":
        asyncio.run(run_asyncio(work))
    else:
        run(work)


if __name__ == "__main__":
    main()
