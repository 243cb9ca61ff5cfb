"""A group member on confluent-kafka (librdkafka), or with `--implementation holdfast` on `holdfast.Consumer`.

Run as a module; the options are in `options.py`. librdkafka has no eager sticky assignor.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from holdfast.testing.members.program import BATCH, POLL_S, Session, refuse


class ConfluentMember:
    """Drives one consumer of the confluent kind."""

    def __init__(self, session: Session, consumer_class: Any) -> None:
        self._session = session
        self._by_itself = session.options.config.get("enable.auto.commit") == "true"
        self._consumer = consumer_class(settings(session) | {"on_commit": self.on_commit})

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
            if session.take_metrics_request():
                session.log.event("metrics", json.dumps(consumer.metrics()))
            first = consumer.poll(POLL_S)
            if first is not None:
                # The next call says that what was returned before is done, so it is done first. consume() alone would
                # wait for its whole batch or the timeout; without a timeout it takes what is there already.
                session.processed(self._good([first]), handed_at=time.monotonic())
                rest = consumer.consume(BATCH - 1, 0)
                session.processed(self._good(rest), handed_at=time.monotonic())
            self._commit_in_passing(session.due_offsets())
            if session.draining and consumer.drain():
                session.log.event("drained")
                break
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

    def on_commit(self, error: KafkaError | None, answers: list[TopicPartition]) -> None:
        """The answer to a commit in passing. The blocking kind would stop the records of kept partitions meanwhile."""
        failed = error or next((answer.error for answer in answers if answer.error is not None), None)
        if failed is not None:
            self._session.commit_failed(KafkaException(failed))
        else:
            self._session.committed({answer.partition: answer.offset for answer in answers})

    def _commit_in_passing(self, offsets: dict[int, int]) -> None:
        if offsets and not self._by_itself:
            try:
                self._consumer.commit(offsets=self._wanted(offsets), asynchronous=True)
            except KafkaException as error:
                self._session.commit_failed(error)

    def _commit_and_wait(self, offsets: dict[int, int]) -> None:
        if offsets and not self._by_itself:
            try:
                answers = self._consumer.commit(offsets=self._wanted(offsets), asynchronous=False)
            except KafkaException as error:
                self._session.commit_failed(error)
            else:
                self.on_commit(None, answers)

    def _wanted(self, offsets: dict[int, int]) -> list[TopicPartition]:
        topic = self._session.options.topic
        return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._session.assigned(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._commit_and_wait(self._session.revoked(partition.partition for partition in partitions))

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._session.lost(partition.partition for partition in partitions)


def settings(session: Session) -> dict[str, Any]:
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
    member = ConfluentMember(session, consumer_class)
    session.await_join()
    member.run()


if __name__ == "__main__":
    main()
