"""What a member program is told, as a value, as command-line arguments, and back. Shared by every kind of member."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Settings left at None are not passed on: the client's own default holds."""

    bootstrap: str
    group: str
    topic: str
    assignors: tuple[str, ...] = ()
    """Kafka's names, most wanted first: range, roundrobin, sticky, cooperative-sticky. Empty: the client's default."""
    session_ms: int | None = None
    heartbeat_ms: int | None = None
    max_poll_ms: int | None = None
    instance_id: str | None = None
    rack: str | None = None
    client_id: str | None = None
    reset: str = "earliest"
    commit_every_ms: int = 1000
    """How often positions are committed in passing; 0 commits at revocation and close only."""
    join_on_command: bool = False
    """Load, say #ready, and join when told: leaves start-up out of what is measured."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Passed to the client as it is, under the client's own names; wins over the rest."""

    def arguments(self) -> list[str]:
        """The command line, without the log."""
        named = {
            "--bootstrap": self.bootstrap,
            "--group": self.group,
            "--topic": self.topic,
            "--assignor": ",".join(self.assignors) or None,
            "--session-ms": self.session_ms,
            "--heartbeat-ms": self.heartbeat_ms,
            "--max-poll-ms": self.max_poll_ms,
            "--instance-id": self.instance_id,
            "--rack": self.rack,
            "--client-id": self.client_id,
            "--reset": self.reset,
            "--commit-every-ms": self.commit_every_ms,
        }
        words = [word for flag, value in named.items() if value is not None for word in (flag, str(value))]
        if self.join_on_command:
            words.append("--join-on-command")
        for key, value in sorted(self.config.items()):
            words += ["--config", f"{key}={value}"]
        return words


def parse_arguments(argv: Sequence[str]) -> tuple[MemberOptions, Path]:
    """The options and the log of a Python member program."""
    parser = argparse.ArgumentParser(description="A member of a consumer group that logs all it does.")
    for flag in ("--bootstrap", "--group", "--topic", "--log"):
        parser.add_argument(flag, required=True)
    for flag in ("--session-ms", "--heartbeat-ms", "--max-poll-ms"):
        parser.add_argument(flag, type=int)
    for flag in ("--instance-id", "--rack", "--client-id"):
        parser.add_argument(flag)
    parser.add_argument("--assignor", default="")
    parser.add_argument("--reset", default="earliest")
    parser.add_argument("--commit-every-ms", type=int, default=1000)
    parser.add_argument("--join-on-command", action="store_true")
    parser.add_argument("--config", action="append", default=[])
    found = vars(parser.parse_args(argv))
    log = Path(found.pop("log"))
    assignors = tuple(name for name in found.pop("assignor").split(",") if name)
    config = dict(pair.split("=", 1) for pair in found.pop("config"))
    return MemberOptions(**found, assignors=assignors, config=config), log
