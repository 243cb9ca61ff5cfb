"""Lines of our own traces, as JSON; and saved outputs of `--describe`, from Kafka's tool and from ours.

A trace of a newer version is read as far as we know its steps, as `holdfast.trace` promises; the job reports how many
such lines there were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of
from holdfast.doctor.times import NO_TIME
from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace import decode

_LIMIT = re.compile(r"max\.poll\.interval\.ms is (\d{1,12})")

_STEPS: Mapping[tuple[str, str], str] = {
    ("coordinator", "rebalance-started"): e.PREPARING,
    ("coordinator", "generation"): e.GENERATION,
    ("coordinator", "stable"): e.STABLE,
    ("coordinator", "empty"): e.EMPTY,
    ("coordinator", "member-left"): e.LEFT,
    ("coordinator", "member-expired"): e.EXPIRED,
    ("coordinator", "member-expelled"): e.EXPELLED,
    ("coordinator", "member-replaced"): e.REPLACED,
    ("coordinator", "fenced"): e.FENCED,
    ("coordinator", "commit-refused"): e.REFUSED_COMMIT,
    ("member", "rejoin"): e.WANTS,
    ("member", "join-sent"): e.JOINING,
    ("member", "joined"): e.JOINED,
    ("member", "synced"): e.SYNCED,
    ("member", "poll-expired"): e.TOO_SLOW,
    ("member", "leave-sent"): e.LEAVING,
    ("member", "draining"): e.LEAVING,
    ("consumer", "callback-assigned"): e.ADDED,
    ("consumer", "callback-revoked"): e.REVOKED,
    ("consumer", "callback-lost"): e.LOST,
    ("sim", "commit-failed"): e.COMMIT_FAILED,
}


def parse_trace(text: str) -> Event | bool:
    """As `broker_lines.parse`. A step without use for the doctor still counts as known."""
    try:
        record = decode(text)
    except HoldfastError:
        return False
    kind = _STEPS.get((record.source, record.step))
    if kind is None:
        return True
    event = Event(
        at_ms=record.at if record.wall is None else record.wall,
        kind=kind,
        source=e.TRACE,
        group=record.group,
        member=record.member,
        client=client_of(record.member) or (record.member if record.source != "coordinator" else ""),
        generation=-1 if record.generation is None else record.generation,
        said=(record.cause or "")[: e.MAX_SAID],
        level="classic",
    )
    _fill(event, record)
    return event


def _fill(event: Event, record: TraceRecord) -> None:
    """The fields that only some kinds of events have."""
    data: Mapping[str, Any] = record.data
    if event.kind == e.PREPARING:
        event.member = record.culprit or ""
        event.client = client_of(event.member) or event.member
    elif event.kind == e.GENERATION:
        members = data.get("members")
        event.number = float(len(members)) if isinstance(members, list) else -1.0
        event.said = str(data.get("protocol", ""))
    elif event.kind == e.JOINED:
        event.said = str(data.get("protocol", ""))
    elif event.kind == e.SYNCED:
        event.partitions = flat(data.get("assigned"))
    elif event.kind in (e.ADDED, e.REVOKED, e.LOST):
        event.partitions = flat(data.get("partitions"))
        took = data.get("listener_ms")
        event.number = float(took) if isinstance(took, (int, float)) else -1.0
    elif event.kind == e.REPLACED:
        event.said = str(data.get("fenced", ""))
    elif event.kind in (e.LEFT, e.EXPIRED):
        event.client = str(data.get("client_id", "")) or event.client
    elif event.kind == e.TOO_SLOW and (limit := _LIMIT.search(event.said)):
        event.said = f"max.poll.interval.ms={limit[1]}"
    elif event.kind == e.LEAVING and record.step == "draining":
        event.said = "drain"


def flat(grouped: object) -> str:
    """Partitions by topic as `topic-0 topic-1`."""
    if not isinstance(grouped, dict):
        return ""
    return " ".join(
        f"{topic}-{number}"
        for topic, numbers in sorted(grouped.items())
        if isinstance(numbers, list)
        for number in numbers
        if isinstance(number, int)
    )


# -- --describe

_DASH = "-"


def header_of(text: str) -> tuple[str, ...] | None:
    """The columns, if this is the header of a table of `--describe`."""
    if "CONSUMER-ID" not in text:
        return None
    words = tuple(text.split())
    return words if words[0] == "GROUP" else None


def parse_described(text: str, header: tuple[str, ...]) -> Event | None:
    """A row under that header, or None. It has no time: the age of its file does not prove when it was taken."""
    cells = text.split()
    if len(cells) != len(header) or cells[0] == "GROUP":
        return None
    row = dict(zip(header, cells, strict=True))
    topic, number, member = row.get("TOPIC", ""), row.get("PARTITION", ""), row.get("CONSUMER-ID", _DASH)
    if not number.isdecimal():
        return None
    lag = row.get("LAG", _DASH)
    instance = row.get("GROUP-INSTANCE-ID") or row.get("INSTANCE-ID") or _DASH
    return Event(
        at_ms=NO_TIME,
        kind=e.HOLDS,
        source=e.DESCRIBE,
        group=row["GROUP"],
        member="" if member == _DASH else member,
        client=row.get("CLIENT-ID", "").strip(_DASH) or client_of(member),
        instance="" if instance == _DASH else instance,
        host=row.get("HOST", "").lstrip("/").strip(_DASH),
        number=float(lag) if lag.isdecimal() else -1.0,
        partitions=f"{topic}-{number}",
    )
