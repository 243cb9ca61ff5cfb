"""One broker process of a real Kafka: its properties, its life by signals, and the question whether it serves.

It knows files, ports and one process; clusters and topics are `kafka.py`'s.
"""

from __future__ import annotations

import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import HoldfastError
from holdfast.testing.java import TEST_JVM_ARGS, compile_java, java_command, kafka_classpath, log_args
from holdfast.testing.kafka_security import Secure

JAVA_SOURCES = Path(__file__).parent / "java_sources"

PORTS = range(20_000, 32_000)
"""Below Linux's range for outgoing connections (32,768–60,999): no client takes one between a stop and a start."""

STOP_LIMIT_S = 20.0
"""A clean stop takes 0.3–0.5 s alone and a few seconds as one of several; then it is killed."""

TEST_HEAP = ("-Xms64m", "-Xmx256m")

# The flags of Kafka's own start script.
BENCHMARK_JVM_ARGS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What one node is started with."""

    number: int
    port: int
    controller_port: int
    cluster_id: str
    folder: Path
    rack: str | None
    settings: Mapping[str, str]
    benchmark: bool
    secure: Secure | None = None
    secure_port: int = 0

    def properties(self) -> dict[str, str]:
        """The contents of server.properties; the caller's settings come last and win."""
        controls = self.number == 1
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        if self.secure is not None:
            listeners.append(f"SECURE://127.0.0.1:{self.secure_port}")
        advertised = list(listeners)
        if controls:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        found = {
            "process.roles": "broker,controller" if controls else "broker",
            "node.id": str(self.number),
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            "log.dirs": str(self.folder / "data"),
        }
        if self.rack is not None:
            found["broker.rack"] = self.rack
        if self.secure is not None:
            found |= self.secure.properties(self.folder)
        return found | dict(self.settings)


class KafkaNode:
    """One broker process. `spawn` and `await_answer` are apart so that several can start at once."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self._process: subprocess.Popen[bytes] | None = None
        self._log = spec.folder / "kafka.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node was never started"
        return self._process.pid

    def spawn(self) -> None:
        """Starts the process, formatting the storage first if it is new. Does nothing if it runs."""
        if self.running:
            return
        self.spec.folder.mkdir(exist_ok=True)
        properties = self.spec.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in sorted(self.spec.properties().items())))
        args = [str(properties)]
        if not (self.spec.folder / "data" / "meta.properties").exists():
            args += ["format", "--cluster-id", self.spec.cluster_id, "--config", str(properties)]
            args += self.spec.secure.format_arguments() if self.spec.secure is not None else []
        flags = BENCHMARK_JVM_ARGS if self.spec.benchmark else (*TEST_HEAP, *TEST_JVM_ARGS)
        classes = compile_java([JAVA_SOURCES / "KafkaNode.java"])
        command = java_command(
            "KafkaNode", args, jvm_args=[*flags, *log_args("info")], classpath=kafka_classpath(classes)
        )
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C reaches the test run first, which then stops its brokers in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.spec.folder, start_new_session=True
            )

    def await_answer(self, deadline: float) -> None:
        """Returns when the broker has answered a request; raises with the end of its log if it died or is late."""
        while not answers(self.spec.port):
            if not self.running:
                raise self._failed("ended while starting")
            if time.monotonic() > deadline:
                raise self._failed("did not answer in time")
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not heard."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    def log_tail(self, lines: int) -> str:
        if not self._log.exists():
            return "(no log)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, sign: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(sign)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdin is not None
        process.stdin.close()
        self._process = None

    def _failed(self, how: str) -> HoldfastError:
        return HoldfastError(
            "KAFKA_START_FAILED",
            f"Kafka broker {self.spec.number} {how}. The end of its log:\n{self.log_tail(40)}",
            "Read the log above; a port that is taken or a setting it does not know are the usual causes.",
        )


def answers(port: int) -> bool:
    """Whether a broker on this loopback port answers ApiVersions (key 18, version 0), what clients ask first."""
    return _ask(port, 18, b"") is not None


def serves_groups(port: int) -> bool:
    """Whether this broker, or the one it names, serves as a group's coordinator and has loaded what it needs.

    Asked by hand: confluent-kafka's admin client (2.16) crashes the process when a coordinator that is still loading
    answers its `list_consumer_group_offsets`.
    """
    group = b"holdfast-warm-up"
    name = struct.pack(">h", len(group)) + group
    found = _ask(port, 10, name)  # FindCoordinator: error, node, host, port
    if found is None or found[:2] != b"\0\0":
        return False
    (host_length,) = struct.unpack_from(">h", found, 6)
    (coordinator,) = struct.unpack_from(">i", found, 8 + host_length)
    described = _ask(coordinator, 15, struct.pack(">i", 1) + name)  # DescribeGroups: count, then per group its error
    return described is not None and described[4:6] == b"\0\0"


def _ask(port: int, api_key: int, body: bytes) -> bytes | None:
    """The answer to a request of version 0, without its header; None if the broker can't be reached or hangs up."""
    request = struct.pack(">hhih", api_key, 0, 1, -1) + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.settimeout(5)
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                return answer.read(size)[4:]
    except (OSError, struct.error):
        return None


def free_port() -> int:
    """A loopback port that nobody listens on, outside the range of outgoing connections."""
    # Not the module's generator: tests seed that one, and two runs side by side would pick the same ports.
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise HoldfastError(
        "NO_FREE_PORT",
        f"200 loopback ports between {PORTS.start} and {PORTS.stop} were tried and all are taken.",
        "End what listens there.",
    )
