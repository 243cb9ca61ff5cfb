"""A group member on confluent-kafka (librdkafka), or with `--implementation holdfast` on `holdfast.Consumer`.

Run as a module; the options are in `options.py`. librdkafka has no eager sticky assignor.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from holdfast.testing.members.program import BATCH, POLL_S, Session, refuse


class ConfluentMember:
    """Drives one consumer of the confluent kind."""

    def __init__(self, session: Session, consumer: Any) -> None:
        self._session = session
        self._consumer = consumer

    def run(self) -> None:
        session, consumer = self._session, self._consumer
        consumer.subscribe(
            [session.options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        while not session.stopping:
            hang_s = session.take_hang_s()
            if hang_s:
                time.sleep(hang_s)
                session.log.event("awake")
            first = consumer.poll(POLL_S)
            if first is not None:
                # consume() alone would wait for its whole batch or the timeout; this takes what is there already.
                session.processed(self._good([first, *consumer.consume(BATCH - 1, 0)]))
            self._commit(session.due_offsets())
        session.log.event("closing")
        consumer.close()
        session.log.event("closed")

    def _good(self, messages: list[Message]) -> list[tuple[int, int]]:
        found = []
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                self._session.log.event("client-error", str(error))
            elif partition is not None and offset is not None:
                found.append((partition, offset))
        return found

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        topic = self._session.options.topic
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        try:
            for answer in self._consumer.commit(offsets=wanted, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as error:
            self._session.commit_failed(error)
        else:
            self._session.committed(offsets)

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._session.assigned(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._commit(self._session.revoked(partition.partition for partition in partitions))

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._session.lost(partition.partition for partition in partitions)


def settings(session: Session) -> dict[str, str | int | bool]:
    """The consumer's configuration."""
    options = session.options
    named: dict[str, str | int | bool | None] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": options.reset,
        "enable.auto.commit": False,
        "partition.assignment.strategy": ",".join(options.assignors) or None,
        "session.timeout.ms": options.session_ms,
        "heartbeat.interval.ms": options.heartbeat_ms,
        "max.poll.interval.ms": options.max_poll_ms,
        "group.instance.id": options.instance_id,
        "client.rack": options.rack,
        "client.id": options.client_id,
    }
    return {key: value for key, value in named.items() if value is not None} | dict(options.config)


def main() -> None:
    argv = sys.argv[1:]
    module = "confluent_kafka"
    if argv[:2] == ["--implementation", "holdfast"]:
        module, argv = "holdfast", argv[2:]
    consumer_class = import_module(module).Consumer
    session = Session("confluent" if module == "confluent_kafka" else module, argv)
    if module == "confluent_kafka" and "sticky" in session.options.assignors:
        refuse("librdkafka", ["sticky"])
    member = ConfluentMember(session, consumer_class(settings(session)))
    session.await_join()
    member.run()


if __name__ == "__main__":
    main()
