"""Logs in the words of Kafka 4.1's coordinator, as the samples have them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.doctor.events import Event
from holdfast.doctor.findings import findings_of
from holdfast.doctor.history import History, history_of
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import scan

START_S = 1_714_557_600.0


@dataclass
class Coordinator:
    """Writes a coordinator's log. Times are seconds from the start; each change is a rebalance of `takes` seconds."""

    takes: float = 1.0
    generation: int = 0
    members: list[str] = field(default_factory=list)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def say(self, at: float, text: str) -> None:
        self.lines.append((at, f"[GroupCoordinator id=1 topic=__consumer_offsets partition=0] {text} (o.a.k.G)"))

    def round(self, at: float, reason: str) -> None:
        old = self.generation
        self.say(at, f"Preparing to rebalance group g in state Stable with old generation {old} (reason: {reason}).")
        self.generation += 1
        self.say(at + self.takes, f"Stabilized group g generation {self.generation} with {len(self.members)} members.")
        leader, count = self.members[0], len(self.members)
        self.say(at + self.takes + 0.01, f"Assignment received from leader {leader} for group g for generation "
                 f"{self.generation}. The group has {count} members, 0 of which are static.")  # fmt: skip

    def join(self, at: float, client: str) -> str:
        member = f"{client}-{uuid.UUID(int=len(self.lines) + 1)}"
        self.say(at, f"Dynamic member with unknown member id joins group g in Stable state. Created a new member id "
                 f"{member} and requesting the member to rejoin with this id.")  # fmt: skip
        self.members.append(member)
        self.round(at + 0.01, f"Adding new member {member} with group instance id null; client reason: not provided")
        return member

    def begin(self, *clients: str) -> list[str]:
        """All come to the first round."""
        return [self.join(number * 2.0, client) for number, client in enumerate(clients)]

    def leave(self, at: float, member: str, reason: str = "the consumer is being closed") -> None:
        self.say(at, f"[Group g] Member {member} has left group through explicit `LeaveGroup` request; client reason: "
                 f"{reason}")  # fmt: skip
        self.members.remove(member)
        if self.members:
            self.round(at + 0.001, f"explicit `LeaveGroup` request for ({member}) members.")
        else:
            self.say(at + 0.001, f"Group g with generation {self.generation} is now empty.")

    def expire(self, at: float, member: str) -> None:
        self.say(at, f"Member {member} in group g has failed, removing it from the group.")
        self.members.remove(member)
        if self.members:
            self.round(at + 0.001, f"removing member {member} on heartbeat expiration.")
        else:
            self.say(at + 0.001, f"Group g with generation {self.generation} is now empty.")

    def instance(self, at: float, name: str) -> str:
        """A static member joins for the first time."""
        member = f"{name}-{uuid.UUID(int=len(self.lines) + 1)}"
        self.say(at, f"Static member with groupInstanceId={name} and unknown member id joins group g in Stable state. "
                 f"Created a new member id {member} for this member and added to the group.")  # fmt: skip
        return member

    def replace(self, at: float, name: str, before: str) -> str:
        """It comes back within its session: no rebalance."""
        self.say(at, f"Static member with groupInstanceId={name} and unknown member id joins group g in Stable state. "
                 f"Replacing previously mapped member {before} with this groupInstanceId.")  # fmt: skip
        return f"{name}-{uuid.UUID(int=len(self.lines) + 1)}"

    def history(self, *told: Event) -> History:
        """`told` is what members' logs and traces say."""
        text = ""
        for at, line in sorted(self.lines, key=lambda one: one[0]):
            stamp = datetime.fromtimestamp(START_S + at, UTC).strftime("[%Y-%m-%d %H:%M:%S,%f")[:-3]
            text += f"{stamp}] INFO {line}\n"
        read = scan(text.encode(), file="server.log")
        assert not read.strange, read.strange
        return history_of("g", by_group([*read.events, *told])["g"])

    def found(self) -> set[tuple[str, str]]:
        return {(one.kind, one.culprit) for one in findings_of(self.history())}
