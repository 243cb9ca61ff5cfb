"""Kafka's own command-line tools, from the jars: what `kafka-consumer-groups.sh` and its like run.

Each call starts a JVM, about 1.5 s.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model import HoldfastError
from holdfast.testing.java import TEST_JVM_ARGS, java_command, log_args

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"

TOOL_LIMIT_S = 120.0
"""A tool takes 1–3 s and some retry for a minute when a broker is gone; two minutes mean that it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool said. Kafka's log lines (warnings and worse) are on `stderr`."""

    returncode: int
    stdout: str
    stderr: str

    def table(self) -> list[dict[str, str]]:
        """The rows of a table such as `--describe` prints, by the names of its columns (GROUP, TOPIC, PARTITION, …).

        Cells are split at blanks, so this is for tables whose cells have none; a row of another length is left out.
        """
        rows = [line.split() for line in self.stdout.splitlines() if line.strip()]
        header: list[str] = next((row for row in rows if row[0] == "GROUP"), [])
        return [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header) and row != header]


def run_tool(
    main: str,
    args: Sequence[str],
    bootstrap: str | None = None,
    *,
    stdin: str = "",
    check: bool = True,
    limit_s: float = TOOL_LIMIT_S,
) -> ToolResult:
    """Runs one of Kafka's tools against `bootstrap`. With `check`, an exit code other than 0 is an error."""
    server = [] if bootstrap is None else ["--bootstrap-server", bootstrap]
    command = java_command(main, [*server, *args], jvm_args=["-Xmx128m", *TEST_JVM_ARGS, *log_args("warn")])
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=limit_s, check=False)
    if check and done.returncode != 0:
        raise HoldfastError(
            "KAFKA_TOOL_FAILED",
            f"{main} {' '.join(args)} ended with {done.returncode}: {done.stdout}{done.stderr}",
            "Read what it said above.",
        )
    return ToolResult(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)
