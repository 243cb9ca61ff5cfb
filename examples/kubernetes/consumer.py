"""A consumer for Kubernetes: its settings come from its pod, and it prints what it does.

Run it under `holdfast run`, as `statefulset.yaml` does: then SIGTERM and the preStop hook hand its partitions over
before the process gets SIGTERM. Without `holdfast run` it also ends cleanly.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import Consumer

BATCH = 200
"""Records between two commits. A batch must be done well within max.poll.interval.ms."""


def settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """The consumer's configuration. KAFKA_GROUP_INSTANCE_ID and KAFKA_CLIENT_RACK are read by holdfast itself."""
    found: dict[str, Any] = {
        "bootstrap.servers": environment["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": environment["KAFKA_GROUP_ID"],
        "client.id": environment.get("KAFKA_GROUP_INSTANCE_ID", "consumer"),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(environment.get("KAFKA_SESSION_TIMEOUT_MS", "45000")),
        "max.poll.interval.ms": int(environment.get("KAFKA_MAX_POLL_INTERVAL_MS", "120000")),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    password = Path(environment.get("KAFKA_PASSWORD_FILE", "/run/secrets/kafka/password"))
    if password.exists():  # a file and not a variable: the environment is inherited, dumped and shown
        found |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": environment.get("KAFKA_USER", "consumer"),
            "sasl.password": password.read_text("utf-8").strip(),
        }
    return found


def process(value: bytes | None) -> None:
    """The work. After a crash it may be done twice, so it must be idempotent."""


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    topics = os.environ["KAFKA_TOPICS"].split(",")
    done = 0
    with Consumer(settings(os.environ)) as consumer:
        consumer.subscribe(topics, on_assign=lambda _, partitions: print("assigned", len(partitions), flush=True))
        while not stopping:
            batch = consumer.consume(BATCH, timeout=1.0)
            records = [record for record in batch if record.error() is None]
            for record in records:
                process(record.value())
            if records:
                consumer.commit(asynchronous=False)  # once a batch, never once a record
                done += len(records)
                print("done", done, flush=True)


if __name__ == "__main__":
    main()
