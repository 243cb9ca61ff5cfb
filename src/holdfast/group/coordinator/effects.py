"""What a coordinator wants done, as values, and the `Step` that collects them while one request is handled.

Rules. Effects are in the order in which they must be performed: what a reply depends on is persisted before it. The
machine performs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from holdfast.group.coordinator.records import Record
from holdfast.group.coordinator.requests import AdminAnswer
from holdfast.group.messages import Answer
from holdfast.model import TraceRecord, Value

Token = Hashable
"""Identifies a waiting client to the caller. The machine only keeps it and gives it back."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came with this token. Every token is answered once, unless its client went away."""

    token: Token
    answer: Answer | AdminAnswer


@dataclass(frozen=True, slots=True)
class Persist:
    """Append these records, together, before going on to the next effect."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """One step for the trace."""

    record: TraceRecord


Effect = Reply | Persist | Emit


class Step:
    """Collects what one request or one tick does to one group."""

    __slots__ = ("effects", "group_id", "now")

    def __init__(self, group_id: str, now: float) -> None:
        self.group_id = group_id
        self.now = now
        self.effects: list[Effect] = []

    def reply(self, token: Token, answer: Answer | AdminAnswer) -> None:
        self.effects.append(Reply(token, answer))

    def persist(self, *records: Record) -> None:
        if records:
            self.effects.append(Persist(records))

    def trace(
        self,
        step: str,
        *,
        member: str = "",
        generation: int | None = None,
        cause: str | None = None,
        culprit: str | None = None,
        **data: Value,
    ) -> None:
        record = TraceRecord(
            at=self.now,
            source="coordinator",
            step=step,
            group=self.group_id,
            member=member,
            generation=generation,
            cause=cause,
            culprit=culprit,
            data=data,
        )
        self.effects.append(Emit(record))
