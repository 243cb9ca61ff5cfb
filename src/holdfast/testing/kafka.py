"""A real Apache Kafka on loopback, from its jars, for tests and benchmarks.

    with RealKafka() as kafka:
        kafka.create_topic("orders", partitions=6)
        Consumer({"bootstrap.servers": kafka.bootstrap, ...})

Rules: free loopback ports, a temporary folder, its own process ids; started once and ready when it has answered a real
request; `stop()`, `kill()` and `start()` keep ports and data, so a restart looks to clients as one in production does.
Node 1 is also the controller, so with several brokers stop or kill the others. This module knows nothing of groups.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError
from holdfast.testing.kafka_node import KafkaNode, NodeSpec, free_port, serves_groups
from holdfast.testing.kafka_security import Secure

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

START_LIMIT_S = 90.0
"""3–4 s on an idle machine, several times that beside other work; beyond this Kafka is not coming."""

METADATA_LIMIT_S = 90.0
"""How long a topic or a broker may take to show in the metadata: a second or two, far more beside other work."""

SINGLE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Kafka's defaults ask for three brokers; a small one can't create its internal topics with them."""

QUICK_INTERNAL_TOPICS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
"""Kafka creates 50 partitions of each, a second of work that no test needs. Benchmarks keep Kafka's number."""


class RealKafka:
    """A Kafka of one or several brokers in KRaft mode, as a context manager."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        racks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        initial_rebalance_delay_ms: int | None = 0,
        benchmark: bool = False,
        secure: Secure | None = None,
    ) -> None:
        """`racks` names one rack per broker and lets consumers fetch from the replica in theirs.

        `initial_rebalance_delay_ms=None` leaves Kafka's own default of 3,000 ms. `benchmark` gives Kafka the JVM flags
        and internal topics it has by default, instead of those that start quickly. `secure` adds
        a listener with TLS and SASL at `secure_bootstrap`. `settings` win over everything.
        """
        if racks and len(racks) != brokers:
            raise HoldfastError(
                "KAFKA_RACKS_MISMATCH",
                f"{len(racks)} racks were named for {brokers} brokers.",
                "Name one rack per broker, or none.",
            )
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
        common = dict(SINGLE_REPLICA)
        if not benchmark:
            common.update(QUICK_INTERNAL_TOPICS)
        if initial_rebalance_delay_ms is not None:
            common["group.initial.rebalance.delay.ms"] = str(initial_rebalance_delay_ms)
        if racks:
            common["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        common.update(settings or {})
        cluster_id = new_cluster_id()
        controller_port = free_port()
        self.nodes = tuple(
            KafkaNode(
                NodeSpec(
                    number=number,
                    port=free_port(),
                    controller_port=controller_port,
                    cluster_id=cluster_id,
                    folder=self._folder / f"node-{number}",
                    rack=racks[number - 1] if racks else None,
                    settings=common,
                    benchmark=benchmark,
                    secure=secure,
                    secure_port=free_port(),
                )
            )
            for number in range(1, brokers + 1)
        )
        self._admin: AdminClient | None = None
        self.start_seconds = 0.0
        """What the last `start()` took, from the first process to the answered request."""

    @property
    def bootstrap(self) -> str:
        """What goes into `bootstrap.servers`. It stays the same over restarts."""
        return ",".join(f"127.0.0.1:{node.spec.port}" for node in self.nodes)

    @property
    def secure_bootstrap(self) -> str:
        """The same for the listener with TLS and SASL."""
        return ",".join(f"127.0.0.1:{node.spec.secure_port}" for node in self.nodes)

    def __enter__(self) -> RealKafka:
        try:
            self.start()
            self.await_groups()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self, broker: int | None = None) -> None:
        """Starts the broker (or all) and returns when every running one serves requests and knows the others."""
        began = time.monotonic()
        for node in self._chosen(broker):
            node.spawn()
        deadline = began + START_LIMIT_S
        running = [node for node in self.nodes if node.running]
        for node in running:
            node.await_answer(deadline)
        self._await(
            lambda: {node.spec.number for node in running} <= set(self.admin.list_topics(timeout=5).brokers),
            "the brokers to know each other",
        )
        self.start_seconds = time.monotonic() - began

    def stop(self, broker: int | None = None) -> None:
        """Stops cleanly (SIGTERM). The last broker first, since the first one is the controller."""
        for node in reversed(self._chosen(broker)):
            node.stop()

    def kill(self, broker: int | None = None) -> None:
        """Kills it (SIGKILL), as a crash does.

        The next start takes 9 s longer, because the controller first waits for the dead broker's session to end; a
        test that minds sets `broker.session.timeout.ms` lower.
        """
        for node in reversed(self._chosen(broker)):
            node.kill()

    def restart(self, broker: int | None = None) -> None:
        """A clean stop, then a start on the same ports and data."""
        self.stop(broker)
        self.start(broker)

    def close(self) -> None:
        """Stops everything and deletes the data."""
        self._admin = None
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def admin(self) -> AdminClient:
        """One confluent admin client, made when first asked for."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            # Level 2 keeps librdkafka from printing each refused connection while a broker is down on purpose.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return self._admin

    def await_groups(self) -> None:
        """Returns when a group coordinator serves: Kafka makes its offsets topic only when first asked for one."""
        self._await(lambda: serves_groups(self.nodes[0].spec.port), "a group coordinator")

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int = 1,
        replicas: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic and returns when every partition has a leader.

        `replicas` lists the brokers of each partition and takes the place of `partitions` and `replication`.
        """
        from confluent_kafka.cimpl import NewTopic

        if replicas is None:
            topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config or {}))
        else:
            partitions = len(replicas)
            placed = [list(brokers) for brokers in replicas]
            topic = NewTopic(name, num_partitions=partitions, replica_assignment=placed, config=dict(config or {}))
        self.admin.create_topics([topic])[name].result(timeout=METADATA_LIMIT_S)
        self._await(lambda: self._led_partitions(name) == partitions, f"the partitions of {name} to have leaders")

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and returns when the metadata no longer lists it."""
        self.admin.delete_topics([name])[name].result(timeout=METADATA_LIMIT_S)
        self._await(lambda: name not in self.admin.list_topics(timeout=5).topics, f"{name} to be gone")

    def resident_bytes(self) -> int:
        """The memory that all running brokers hold, for benchmarks."""
        return sum(node.resident_bytes() for node in self.nodes if node.running)

    def log_tail(self, lines: int = 40) -> str:
        """The end of every broker's log, for messages about failures."""
        return "\n".join(f"broker {node.spec.number}:\n{node.log_tail(lines)}" for node in self.nodes)

    def _chosen(self, broker: int | None) -> list[KafkaNode]:
        return [node for node in self.nodes if broker is None or node.spec.number == broker]

    def _led_partitions(self, topic: str) -> int:
        found: Any = self.admin.list_topics(topic, timeout=5).topics.get(topic)
        if found is None or found.error is not None:
            return 0
        return sum(1 for partition in found.partitions.values() if partition.leader >= 0)

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + METADATA_LIMIT_S
        while True:
            try:
                if holds():
                    return
            except KafkaException as error:
                if not error.args[0].retriable() and time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise HoldfastError(
                    "KAFKA_NOT_READY",
                    f"Waited {METADATA_LIMIT_S:.0f} s for {what}.\n{self.log_tail()}",
                    "Read the broker's log above.",
                )
            time.sleep(0.02)


def new_cluster_id() -> str:
    """22 characters of URL-safe base 64. Never a leading dash: the storage tool would take it for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
