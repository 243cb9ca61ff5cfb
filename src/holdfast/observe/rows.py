"""A snapshot as rows of tables: the columns of kafka-consumer-groups.sh in its order, then ours.

What is not known is "-", in every column, so that a table can be split at blanks. Rows are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.model import TopicPartition, by_topic
from holdfast.model.text import one_line
from holdfast.observe.snapshot import DescribedGroup, GroupSnapshot, ListedGroup, can_process, is_cooperative

UNKNOWN = "-"

Row = Mapping[str, Any]
"""Values by column. None is what is not known."""


def listed_rows(groups: Iterable[ListedGroup]) -> list[Row]:
    return [
        {
            "GROUP": one.group,
            "PROTOCOL": one.protocol_type or None,
            "TYPE": _kind(one.kind) or None,
            "STATE": one.state or None,
        }
        for one in groups
    ]


def _kind(kind: str) -> str:
    return kind[:1].upper() + kind[1:]


def offset_rows(snapshot: GroupSnapshot, *, verbose: bool = False) -> list[Row]:
    """One for each partition that the group has an offset of, or a member holds."""
    owners = snapshot.owners
    troubled = any(one.problem for one in snapshot.offsets.values())
    rows: list[Row] = []
    for at, one in sorted(snapshot.offsets.items()):
        owner = owners.get(at)
        row: dict[str, Any] = {"GROUP": snapshot.described.group, "TOPIC": at.topic, "PARTITION": at.partition}
        if verbose:
            row["LEADER-EPOCH"] = one.leader_epoch if one.leader_epoch >= 0 else None
        row |= {
            "CURRENT-OFFSET": one.committed,
            "LOG-END-OFFSET": one.end,
            "LAG": one.lag,
            "CONSUMER-ID": None if owner is None else owner.member_id,
            "HOST": None if owner is None else owner.host,
            "CLIENT-ID": None if owner is None else owner.client_id,
            "INSTANCE-ID": None if owner is None else owner.instance_id,
        }
        if troubled:
            row["PROBLEM"] = one.problem or None
        rows.append(row)
    return rows


def member_rows(described: DescribedGroup, *, verbose: bool = False) -> list[Row]:
    rows: list[Row] = []
    for member in described.members:
        row: dict[str, Any] = {
            "GROUP": described.group,
            "CONSUMER-ID": member.member_id,
            "GROUP-INSTANCE-ID": member.instance_id,
            "HOST": member.host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": len(member.assigned),
        }
        if verbose:
            row |= {
                "CURRENT-EPOCH": member.epoch if member.epoch >= 0 else None,
                "CURRENT-ASSIGNMENT": _ranges(member.assigned) or None,
                "TARGET-EPOCH": described.assignment_epoch if described.assignment_epoch >= 0 else None,
                "TARGET-ASSIGNMENT": None if member.target is None else _ranges(member.target) or None,
                "RACK": member.rack,
            }
        rows.append(row)
    return rows


def _ranges(partitions: Iterable[TopicPartition]) -> str:
    """As Kafka writes an assignment: orders:0,1,2;pay:3."""
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic(partitions).items())


def state_row(snapshot: GroupSnapshot, *, verbose: bool = False) -> Row:
    described = snapshot.described
    host, port = described.coordinator
    node = UNKNOWN if snapshot.coordinator_id is None else snapshot.coordinator_id
    row: dict[str, Any] = {
        "GROUP": described.group,
        "COORDINATOR (ID)": f"{host}:{port} ({node})",
        "ASSIGNMENT-STRATEGY": described.protocol or None,
        "STATE": described.state,
    }
    if verbose:
        row["GROUP-EPOCH"] = described.epoch if described.epoch >= 0 else None
        row["TARGET-ASSIGNMENT-EPOCH"] = described.assignment_epoch if described.assignment_epoch >= 0 else None
    row["#MEMBERS"] = len(described.members)
    row["CAN-PROCESS"] = can_process(described.state, cooperative=is_cooperative(described))
    return row


def table(rows: Sequence[Row]) -> list[str]:
    """Lines with aligned columns, the header first. No rows, no lines."""
    if not rows:
        return []
    columns = list(rows[0])
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cell(value: Any) -> str:
    """Groups and clients choose their own names: nothing of them may steer a terminal, or pretend to be a row."""
    return UNKNOWN if value is None or value == "" else one_line(str(value))


def as_json(row: Row) -> dict[str, Any]:
    """The same row for programs: current_offset for CURRENT-OFFSET."""
    return {_key(column): value for column, value in row.items()}


def _key(column: str) -> str:
    return column.replace("#", "").replace(" (ID)", "").lower().replace("-", "_")
